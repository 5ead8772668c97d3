"""A gateway inside a command, on a free loopback port, for as long as the command runs."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from msgspec import structs

from turnbridge.bootstrap import running_gateway
from turnbridge.cli.gateway_client import Endpoint
from turnbridge.engine.keys import new_key
from turnbridge.logs.setup import configure_logging
from turnbridge.scripted_model.persona import respond
from turnbridge.scripted_model.websocket import WebSocketModel
from turnbridge.settings.fields import Settings
from turnbridge.web.server.http_server import HttpServer

T = TypeVar("T")

HOST = "127.0.0.1"


def with_own_gateway(settings: Settings, work: Callable[[Endpoint], T], *, demo: bool) -> T:
    """Return the result of blocking work with a gateway of its own."""
    configure_logging("critical")  # Errors reach the client, and are printed as the command's own.

    async def run() -> T:
        async with _own_gateway(settings, demo=demo) as endpoint:
            return await asyncio.to_thread(work, endpoint)

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def _own_gateway(settings: Settings, *, demo: bool) -> AsyncIterator[Endpoint]:
    """Run a gateway for one request: nothing is stored or kept for a next one."""
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = new_key()
    frugal = structs.replace(settings, worker_count=1, warm_threads_max=0, store_ttl_days=0, log_proto=False)
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(WebSocketModel(respond)) if demo else None
        provider = None if model is None else model.websocket_url
        gateway = await stack.enter_async_context(running_gateway(frugal, api_key=key, provider=provider, alone=True))
        listener = stack.enter_context(socket.create_server((HOST, 0)))
        server = HttpServer(gateway.app)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield Endpoint(host=HOST, port=listener.getsockname()[1], key=key)
        finally:
            server.stop(at_once=True)
            await serving
