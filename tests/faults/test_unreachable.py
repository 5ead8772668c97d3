"""A provider that cannot be reached: a truthful error in time, and an answer if it comes back before."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from soak.asking import CHAT, RESPONSES, Ending, ask, client
from soak.patience import PATIENCE_S
from tests.support.gateway import API_KEY, listening, settings_for_tests
from turnbridge.bootstrap import running_gateway
from turnbridge.demo.replies import Pause, answer, message
from turnbridge.demo.server import ScriptedModel
from turnbridge.turn.events import TurnEvent
from turnbridge.turn.items import JsonObject
from turnbridge.wire.codex.decode import TurnDecoder
from turnbridge.wire.codex.older import Told
from turnbridge.wire.codex.schema import ErrorReported

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ASK: dict[str, JsonObject] = {
    CHAT: {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": "gpt-5.5", "input": "hi"},
}
UNREACHABLE = Ending(status=502, code="upstream_error")


@pytest.fixture
def closed() -> Iterator[socket.socket]:
    """Return a port that refuses every connection until it listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener


@contextlib.asynccontextmanager
async def passing_on(listener: socket.socket, model: ScriptedModel) -> AsyncIterator[None]:
    """Let a port lead to a model."""
    port = int(model.base_url.split(":")[-1].removesuffix("/v1"))

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                sink.write(data)
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, ours), copy(theirs, writer))

    async with await asyncio.start_server(serve, sock=listener):
        yield


@contextlib.asynccontextmanager
async def asking(directory: Path, provider: socket.socket, *, patience_ms: int) -> AsyncIterator[httpx2.AsyncClient]:
    """Run a gateway whose provider is behind this port, and yield a client of it."""
    base_url = f"http://127.0.0.1:{provider.getsockname()[1]}/v1"
    settings = settings_for_tests(directory, PROXY_CONNECT_TIMEOUT_MS=patience_ms)
    async with (
        running_gateway(settings, api_key=API_KEY, provider=base_url) as gateway,
        listening(gateway) as url,
        client(url, API_KEY, timeout_s=2 * PATIENCE_S) as http,
    ):
        yield http


@pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])
async def test_who_has_no_patience_hears_at_once_that_the_provider_cannot_be_reached(
    tmp_path: Path, closed: socket.socket, path: str
) -> None:
    async with asking(tmp_path, closed, patience_ms=0) as http:
        for stream in (False, True):
            assert await ask(http, path, {**ASK[path], "stream": stream}) == UNREACHABLE
        told = (await http.post(path, json=ASK[path])).json()["error"]["message"]
        assert told.startswith("Codex cannot reach the provider: Connection failed")


async def test_a_provider_that_comes_back_is_waited_for_however_long_its_model_then_thinks(
    tmp_path: Path, closed: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()
    real = TurnDecoder.feed

    def feed(decoder: TurnDecoder, note: Told) -> list[TurnEvent]:
        if isinstance(note, ErrorReported):
            failed.set()
        return real(decoder, note)

    monkeypatch.setattr(TurnDecoder, "feed", feed)
    # Codex tries again after five seconds; by then this time is over.
    async with (
        ScriptedModel(lambda _: answer(Pause(seconds=1.5), message("Well."))) as model,
        asking(tmp_path, closed, patience_ms=1000) as http,
    ):
        asked = asyncio.ensure_future(ask(http, CHAT, ASK[CHAT]))
        async with asyncio.timeout(PATIENCE_S):
            await failed.wait()
        async with passing_on(closed, model):
            assert await asked == Ending(status=200, text="Well.")
