"""A whole gateway for tests: HTTP in front, behind it the real Codex, and behind that a model that does as told."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2
import openai
from starlette.types import ASGIApp

from turnbridge.bootstrap import Gateway, running_gateway
from turnbridge.scripted_model.replies import Reply, answer, message
from turnbridge.scripted_model.server import ScriptedModel, in_order
from turnbridge.scripted_model.websocket import WebSocketModel
from turnbridge.settings.fields import Settings, load_settings
from turnbridge.turn.items import JsonObject
from turnbridge.web.server.http_server import HttpServer

API_KEY = "sk-test-0123456789abcdef"
# Longer than anything here takes, shorter than the patience of a test.
TIMEOUT_S = 30
# Longer than the first output takes on a busy machine, so that what fails before it has its status there too.
HOLD_MS = 20_000
# There is no TLS on loopback, and each client would read all certificates, which takes 20 ms.
NO_CERTIFICATES = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """A running gateway, seen from both banks."""

    url: str
    gateway: Gateway
    model: ScriptedModel
    client: openai.AsyncOpenAI
    """The official SDK, pointed at the gateway; it never retries, so that every failure is seen."""
    http: httpx2.AsyncClient
    """A plain HTTP client that sends the key."""

    def script(self, *replies: Reply) -> None:
        """Let the model answer the next requests so, and forget what it was asked before."""
        self.model.requests.clear()
        self.model.respond = in_order(*replies)

    def says(self, text: str) -> None:
        """Let the model answer the next request with `text`."""
        self.script(answer(message(text)))

    def seen(self) -> JsonObject:
        """Return the only request that the model got since it was scripted."""
        (request,) = self.model.requests
        return request.body


def settings_for_tests(data_dir: Path, **chosen: object) -> Settings:
    """Return settings that touch nothing of the user's; threads are not kept, so that no test meets another's."""
    usual = {
        "PROXY_DATA_DIR": data_dir,
        "CODEX_HOME": data_dir / "user-codex",
        "WORKER_COUNT": 1,
        "PROXY_STREAM_HOLD_MS": HOLD_MS,
        "PROXY_WARM_THREADS_MAX": 0,
        "PROXY_VALIDATE_RPC": True,
    }
    return load_settings(**{**usual, **chosen})


def running_bridge(
    data_dir: Path, *, api_key: str = API_KEY, **chosen: object
) -> contextlib.AbstractAsyncContextManager[Bridge]:
    """Run a gateway with these settings until the context ends."""
    return _bridge(settings_for_tests(data_dir, **chosen), api_key, lambda model: model.base_url)


def running_bridge_over_websocket(data_dir: Path, **chosen: object) -> contextlib.AbstractAsyncContextManager[Bridge]:
    """Run a gateway whose Codex reaches the model over WebSocket, as it reaches OpenAI."""
    return _bridge(settings_for_tests(data_dir, **chosen), API_KEY, lambda model: model.websocket_url)


@contextlib.asynccontextmanager
async def _bridge(settings: Settings, api_key: str, provider: Callable[[WebSocketModel], str]) -> AsyncIterator[Bridge]:
    async with (
        WebSocketModel(in_order(), record=True) as model,
        running_gateway(settings, api_key=api_key, provider=provider(model)) as gateway,
        listening(gateway) as url,
    ):
        await gateway.pool.worker()
        async with official_client(url) as client, plain_client(url) as http:
            yield Bridge(url=url, gateway=gateway, model=model, client=client, http=http)


def official_client(url: str) -> openai.AsyncOpenAI:
    """Return the official SDK, pointed at a gateway."""
    unencrypted = openai.DefaultAsyncHttpxClient(verify=NO_CERTIFICATES)
    return openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key=API_KEY, max_retries=0, timeout=TIMEOUT_S, http_client=unencrypted
    )


def plain_client(url: str) -> httpx2.AsyncClient:
    """Return an HTTP client that sends the key to a gateway."""
    headers = {"authorization": f"Bearer {API_KEY}"}
    return httpx2.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S, verify=NO_CERTIFICATES)


def listening(gateway: Gateway) -> contextlib.AbstractAsyncContextManager[str]:
    """Serve a gateway on a free loopback port."""
    return listening_with(gateway.app)


@contextlib.asynccontextmanager
async def listening_with(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Serve an application on a loopback port, or on a free one."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        server = HttpServer(app)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stop()
            await serving
