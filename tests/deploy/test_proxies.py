"""The reverse proxies of `deploy/` in front of a real gateway: TLS, streams, WebSockets, and no metrics."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from websockets.asyncio.client import connect

from tests.deploy.proxies import ReverseProxy, running_proxy
from tests.support.gateway import API_KEY, TIMEOUT_S, Bridge, running_bridge
from tests.support.sockets import Socket, text_of
from turnbridge.scripted_model.replies import StreamReply, Wait, answer, message
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

KEY = {"authorization": f"Bearer {API_KEY}"}
ASK: JsonObject = {"model": "gpt-5.5", "input": "hi", "stream": True}


def found(program: str) -> bool:
    return shutil.which(program, path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin") is not None


PROXIES = [
    pytest.param(name, marks=pytest.mark.skipif(not found(name), reason=f"{name} is not installed"))
    for name in ("nginx", "caddy")
]


@pytest.fixture(scope="module")
async def behind(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway to put behind a proxy."""
    del anyio_backend
    async with running_bridge(tmp_path_factory.mktemp("behind")) as bridge:
        yield bridge


@pytest.fixture(params=PROXIES)
async def proxy(request: pytest.FixtureRequest, tmp_path: Path, behind: Bridge) -> AsyncIterator[ReverseProxy]:
    """Return a proxy in front of it."""
    async with running_proxy(request.param, tmp_path, behind.url) as running:
        yield running


def held(gate: asyncio.Event) -> StreamReply:
    """Return an answer that begins, and goes on when the gate opens."""
    return answer(message("Begun, done.", pieces=["Begun", Wait(gate=gate), ", done."]))


@pytest.mark.promise("deploy.proxies")
async def test_a_proxy_passes_streams_and_websockets_on_and_closes_the_metrics(
    behind: Bridge, proxy: ReverseProxy
) -> None:
    async with httpx2.AsyncClient(base_url=proxy.url, headers=KEY, verify=proxy.trust, timeout=TIMEOUT_S) as http:
        for path in ("/metrics", "//metrics", "/metrics/", "/%6detrics"):
            # A whole URL: a client would take `//metrics` for a host.
            assert (await http.get(f"{proxy.url}{path}")).status_code == 404, path
        assert (await http.get("/readyz")).json()["status"] == "ready"
        refused = await http.get("/v1/models", headers={"authorization": "Bearer wrong"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        await _streams(http, behind)
        # Far more than nginx takes by itself.
        behind.says("Much.")
        large = await http.post("/v1/responses", json={"model": "gpt-5.5", "input": "much " * 600_000})
        assert (large.status_code, large.json()["output"][0]["content"][0]["text"]) == (200, "Much.")
    await _speaks_websocket(behind, proxy)


async def _streams(http: httpx2.AsyncClient, behind: Bridge) -> None:
    gate = asyncio.Event()
    behind.script(held(gate))
    text = ""
    async with asyncio.timeout(TIMEOUT_S), http.stream("POST", "/v1/responses", json=ASK) as stream:
        async for line in stream.aiter_lines():
            text += f"{line}\n"
            if "Begun" in line:
                # It came while the model still waits: nothing on the way has kept it.
                gate.set()
    assert gate.is_set()
    assert text.count("response.completed") == 2, "The event and its type."


async def _speaks_websocket(behind: Bridge, proxy: ReverseProxy) -> None:
    gate = asyncio.Event()
    behind.script(held(gate))
    address = f"wss{proxy.url.removeprefix('https')}/v1/responses"
    async with connect(address, ssl=proxy.trust, additional_headers=KEY, proxy=None) as connection:
        socket = Socket(connection)
        await socket.create()
        await socket.until(lambda event: event["type"] == "response.output_text.delta")
        gate.set()
        assert text_of(await socket.response()) == "Begun, done."
