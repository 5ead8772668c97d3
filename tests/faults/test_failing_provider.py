"""A provider that fails, with Codex's own retry counts: a truthful status, soon, and an answer after a short outage."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx2
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from tests.support.failing_provider import (
    FAULTS,
    TRANSPORTS,
    Fault,
    Transport,
    failing_provider,
    write_user_home,
)
from tests.support.gateway import API_KEY, listening, settings_for_tests
from tests.support.plain_http import CHAT, RESPONSES, Ending, ask, client
from tests.support.waiting import PATIENCE_S, until
from turnbridge.bootstrap import running_gateway
from turnbridge.scripted_model.replies import (
    HttpReply,
    Pause,
    Reply,
    Wait,
    answer,
    message,
    reasoning,
)
from turnbridge.scripted_model.server import ScriptedModel, in_order
from turnbridge.turn.items import JsonObject
from turnbridge.web.answer import INTERVALS_BEFORE_BLANKS

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ASK: dict[str, JsonObject] = {
    CHAT: {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": "gpt-5.5", "input": "hi"},
}
EVERY_WAY = [(path, stream) for path in (CHAT, RESPONSES) for stream in (False, True)]
FAILED = Ending(status=502, code="upstream_error")
EXPECTED: dict[Fault, Ending] = {
    **dict.fromkeys(FAULTS, FAILED),
    "503": Ending(status=503, code="server_is_overloaded"),
    "429": Ending(status=429, code="rate_limit_exceeded"),
}
# The hold of the defaults, so that a stream that begins too early is seen.
HOLD_MS = 3000
RETRYING_MS = 1000
"""How long Codex may retry here; the retries themselves are its own."""
SILENCE_MS = 1000
"""How long a model may be silent here; a provider that hangs looks like one."""
SOON_S = 20.0
"""The promise: well below the 30 seconds after which many clients and proxies hang up."""
GATEWAYS_AT_ONCE = 3
"""Each starts two app-servers, and then mostly waits."""
PROVIDER_REFUSES = HttpReply(status=400, body={"error": {"message": "No.", "type": "x", "code": "no"}})
PROVIDER_FAILS = HttpReply(status=500, body={"error": {"message": "Oh.", "type": "x", "code": None}})


@contextlib.asynccontextmanager
async def asking(
    directory: Path, base_url: str, transport: Transport, *config: str, **chosen: object
) -> AsyncIterator[httpx2.AsyncClient]:
    """Run a gateway of a user who has this provider, and yield a client of it."""
    write_user_home(directory / "user-codex", base_url, transport, *config)
    settings = settings_for_tests(directory, **{"PROXY_STREAM_HOLD_MS": HOLD_MS, **chosen})
    async with (
        running_gateway(settings, api_key=API_KEY) as gateway,
        listening(gateway) as url,
        client(url, API_KEY, timeout_s=2 * PATIENCE_S) as http,
    ):
        await until(lambda: gateway.pool.readiness().ready, within_s=2 * PATIENCE_S)
        yield http


async def endings(http: httpx2.AsyncClient) -> list[Ending]:
    """Ask in every way at once."""
    return await asyncio.gather(*(ask(http, path, {**ASK[path], "stream": stream}) for path, stream in EVERY_WAY))


def tracebacks(logs: Sequence[EventDict]) -> list[EventDict]:
    """Return what was logged with a traceback."""
    return [event for event in logs if event.get("exc_info")]


@pytest.mark.promise("limits.time.connect")
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_way_of_failing_is_a_status_though_codex_would_retry(tmp_path: Path, transport: Transport) -> None:
    # Shorter than by default is only the time that retries may take, that of a silent model, and that of a handshake.
    waits: dict[Fault, dict[str, object]] = {"hanging": {"PROXY_IDLE_TIMEOUT_MS": SILENCE_MS}}
    handshake: tuple[str, ...] = ()
    if transport == "websocket":
        waits, handshake = {}, ("websocket_connect_timeout_ms = 300",)
    room = asyncio.Semaphore(GATEWAYS_AT_ONCE)

    async def told(fault: Fault) -> list[Ending]:
        async with (
            room,
            failing_provider(fault) as base_url,
            asking(
                tmp_path / fault,
                base_url,
                transport,
                *handshake,
                **{"PROXY_CONNECT_TIMEOUT_MS": RETRYING_MS, **waits.get(fault, {})},
            ) as http,
        ):
            return await endings(http)

    with capture_logs() as logs:
        seen = dict(zip(FAULTS, await asyncio.gather(*map(told, FAULTS)), strict=True))
    hanging = FAILED if transport == "websocket" else Ending(status=504, code="turn_timeout")
    assert seen == {fault: [ending] * len(EVERY_WAY) for fault, ending in {**EXPECTED, "hanging": hanging}.items()}
    assert tracebacks(logs) == []


@pytest.mark.promise("limits.time.connect")
async def test_by_default_a_dead_provider_is_told_soon_whatever_its_transport(tmp_path: Path) -> None:
    async def told(transport: Transport) -> tuple[list[Ending], float]:
        async with failing_provider("refused") as base_url, asking(tmp_path / transport, base_url, transport) as http:
            asked_at = asyncio.get_running_loop().time()
            return await endings(http), asyncio.get_running_loop().time() - asked_at

    for seen, took_s in await asyncio.gather(*map(told, TRANSPORTS)):
        assert seen == [FAILED] * len(EVERY_WAY)
        assert took_s < SOON_S


@pytest.mark.promise("limits.time.connect")
async def test_without_any_patience_the_first_failure_is_told_with_what_to_look_at(tmp_path: Path) -> None:
    async with (
        failing_provider("refused") as base_url,
        asking(tmp_path, base_url, "http", PROXY_CONNECT_TIMEOUT_MS=0) as http,
    ):
        told = (await http.post(CHAT, json=ASK[CHAT])).json()["error"]["message"]
    assert told.startswith("Codex cannot reach the provider: Connection failed")
    assert told.endswith("Check the network, the provider's address and its certificate.")


@pytest.mark.promise("limits.time.connect")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_short_outage_is_ridden_out_however_long_the_model_then_thinks(tmp_path: Path, stream: bool) -> None:
    # The third retry comes after more than this time.
    patience_ms = 1000
    replies = in_order(*[PROVIDER_FAILS] * 3, answer(Pause(seconds=2 * patience_ms / 1000), message("Well.")))
    async with (
        ScriptedModel(replies) as model,
        asking(tmp_path, model.base_url, "http", PROXY_CONNECT_TIMEOUT_MS=patience_ms) as http,
    ):
        assert await ask(http, CHAT, {**ASK[CHAT], "stream": stream}) == Ending(status=200, text="Well.")


@pytest.mark.promise("limits.time.connect")
async def test_neither_headers_nor_blanks_are_sent_while_codex_retries(tmp_path: Path) -> None:
    # The fourth retry comes after three seconds, long after both would be due, and has a status of its own.
    due_ms = 2000
    timing = {"PROXY_STREAM_HOLD_MS": due_ms, "PROXY_SSE_KEEPALIVE_MS": int(due_ms / INTERVALS_BEFORE_BLANKS)}
    asked: Counter[str] = Counter()

    def reply(request: JsonObject) -> Reply:
        thread = str(request["prompt_cache_key"])
        asked[thread] += 1
        return PROVIDER_FAILS if asked[thread] <= 4 else PROVIDER_REFUSES

    async with (
        ScriptedModel(reply) as model,
        asking(tmp_path, model.base_url, "http", **timing) as http,
    ):
        assert await endings(http) == [Ending(status=400, code="no")] * len(EVERY_WAY)


@pytest.mark.promise("limits.keepalive.whole", "limits.time.connect")
async def test_a_provider_that_never_answers_is_a_status_long_after_blanks_would_be_due(tmp_path: Path) -> None:
    async with (
        failing_provider("hanging") as base_url,
        asking(tmp_path, base_url, "http", PROXY_SSE_KEEPALIVE_MS=100, PROXY_IDLE_TIMEOUT_MS=SILENCE_MS) as http,
    ):
        assert await ask(http, CHAT, ASK[CHAT]) == Ending(status=504, code="turn_timeout")


@pytest.mark.promise("limits.keepalive.whole")
async def test_a_whole_answer_that_fails_after_its_first_blank_is_logged_without_a_traceback(tmp_path: Path) -> None:
    gate = asyncio.Event()
    with capture_logs() as logs:
        async with (
            ScriptedModel(lambda _: answer(reasoning(), Wait(gate=gate))) as model,
            asking(
                tmp_path, model.base_url, "http", PROXY_SSE_KEEPALIVE_MS=100, PROXY_IDLE_TIMEOUT_MS=SILENCE_MS
            ) as http,
        ):
            with pytest.raises(httpx2.RemoteProtocolError):
                await http.post(CHAT, json=ASK[CHAT])
    (told,) = [event for event in logs if event["event"] == "error_after_response_began"]
    assert told["code"] == "turn_timeout"
    assert "silent for 1 seconds" in told["reason"]


@pytest.mark.promise("start.no-provider-key")
@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_missing_key_of_the_provider_is_a_missing_login_that_names_the_variable(
    tmp_path: Path, transport: Transport
) -> None:
    config = ('env_key = "ACME_API_KEY"', 'env_key_instructions = "Get one from Acme."')
    async with failing_provider("500") as base_url, asking(tmp_path, base_url, transport, *config) as http:
        assert await endings(http) == [Ending(status=401, code="codex_login_required")] * len(EVERY_WAY)
        told = (await http.post(CHAT, json=ASK[CHAT])).json()["error"]["message"]
    assert told == (
        "Codex has no key for the provider: Missing environment variable: `ACME_API_KEY`. Get one from Acme. "
        "Set the variable for Turnbridge, or in `.env` in the user's Codex home, and restart Turnbridge."
    )
