"""The gateway as a process of its own, in front of a given provider: prints its URL, then serves."""

import asyncio
import socket
import sys
import tempfile
from pathlib import Path

import uvloop

from turnbridge.bootstrap import http_server, running_gateway
from turnbridge.logs import configure_logging
from turnbridge.settings import load_settings

API_KEY = "sk-bench"


async def serve(provider: str, workers: int, warm: int) -> None:
    """Serve until stdin ends."""
    configure_logging("error")
    with tempfile.TemporaryDirectory() as data, socket.socket() as listener:
        settings = load_settings(
            PROXY_DATA_DIR=Path(data),
            CODEX_HOME=Path(data) / "none",
            WORKER_COUNT=workers,
            # No replacement in the middle of a measurement.
            WORKER_MAX_THREADS=1_000_000,
            PROXY_WARM_THREADS_MAX=warm,
        )
        listener.bind(("127.0.0.1", 0))
        async with running_gateway(settings, api_key=API_KEY, provider=provider) as gateway:
            await gateway.pool.worker()
            server = http_server(gateway.app)
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
            await asyncio.to_thread(sys.stdin.read)
            server.should_exit = True
            await serving


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
