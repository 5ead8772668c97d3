"""Serves an ASGI application from a process of its own: prints where, and ends when stdin does."""

import asyncio
import socket
import sys

from starlette.types import ASGIApp

from turnbridge.web.server.http_server import HttpServer

BACKLOG = 2048


async def serve(app: ASGIApp) -> None:
    """Serve on a free loopback port, with the gateway's own server."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        # From here on a client may connect, and waits until the server takes it.
        listener.listen(BACKLOG)
        server = HttpServer(app)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.stop()
        await serving
