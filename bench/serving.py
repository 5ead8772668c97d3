"""Serves an ASGI application from a process of its own: prints where, and ends when stdin does."""

import asyncio
import socket
import sys

import uvicorn
from starlette.types import ASGIApp

BACKLOG = 2048
# As in the gateway: clients of a bench wait while the other sides have their turn.
IDLE_CONNECTION_S = 75


async def serve(app: ASGIApp) -> None:
    """Serve on a free loopback port, with uvicorn as the gateway uses it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        # From here on a client may connect, and waits until the server takes it.
        listener.listen(BACKLOG)
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE_CONNECTION_S,
        )
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving
