"""Bounds on how many turns run, how long one waits for its turn, and how long it may take: each told truthfully."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.gateway import Bridge, running_bridge
from tests.support.plain_http import CHAT, RESPONSES, Answer, Call, Ending, ask
from tests.support.waiting import PATIENCE_S, until
from turnbridge.scripted_model.replies import (
    Pause,
    Reply,
    Wait,
    answer,
    function_call,
    message,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ASK: dict[str, JsonObject] = {
    CHAT: {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": "gpt-5.5", "input": "hi"},
}
BOTH_APIS = pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

WELL = Ending(status=200, text="Well.")
QUEUED = "x-turnbridge-queued-ms"
# A turn that ends well takes a tenth of a second, and on a busy machine several times as long.
SILENCE_MS, WHOLE_MS = 1000, 2500


def request(path: str, *, stream: bool) -> JsonObject:
    return {**ASK[path], "stream": stream}


def timing(ending: Ending) -> dict[str, float]:
    """Return the header `Server-Timing`: milliseconds by stage."""
    parts = (part.partition(";dur=") for part in ending.headers["server-timing"].split(", "))
    return {name: float(milliseconds) for name, _, milliseconds in parts}


@pytest.mark.promise("limits.queue", "limits.queue.told", "limits.server-timing")
async def test_who_finds_a_full_queue_is_told_to_come_back_and_who_waits_is_told_how_long(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_MAX_TURNS=1, PROXY_QUEUE_MAX=1) as bridge:
        gate = asyncio.Event()
        bridge.script(answer(Wait(gate=gate), message("Well.")), answer(message("Well.")))
        first = asyncio.ensure_future(ask(bridge.http, CHAT, request(CHAT, stream=True)))
        await bridge.model.until(lambda model: model.active == 1)
        second = asyncio.ensure_future(ask(bridge.http, RESPONSES, request(RESPONSES, stream=False)))
        await until(lambda: bridge.gateway.admission.waiting == 1)
        for path in (CHAT, RESPONSES):
            for stream in (False, True):
                refused = await ask(bridge.http, path, request(path, stream=stream))
                assert refused == Ending(status=429, code="queue_full")
                assert int(refused.headers["retry-after"]) >= 1
        gate.set()
        endings = [await first, await second]
        assert endings == [WELL, WELL]
        waits = [int(ending.headers[QUEUED]) for ending in endings]
        assert waits[0] == 0 < waits[1]
        streamed, whole = (timing(ending) for ending in endings)
        stages = ["decode", "queue", "thread", "first_output"]
        assert (list(streamed), list(whole)) == (stages, [*stages, "total"])
        assert whole["queue"] == pytest.approx(waits[1], abs=5)
        assert whole["total"] >= sum(whole[stage] for stage in stages) - 1
        assert list(timing(refused)) == ["decode", "total"]


@pytest.mark.promise("ingress.metrics")
async def test_the_queue_is_seen_in_the_metrics(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_MAX_TURNS=1, PROXY_QUEUE_MAX=1) as bridge:
        gate = asyncio.Event()
        bridge.script(answer(Wait(gate=gate), message("Well.")), answer(message("Well.")))
        asked = [asyncio.ensure_future(ask(bridge.http, CHAT, request(CHAT, stream=True))) for _ in range(2)]
        await until(lambda: bridge.gateway.admission.waiting == 1)
        assert await ask(bridge.http, CHAT, request(CHAT, stream=True)) == Ending(status=429, code="queue_full")
        metrics = (await bridge.http.get("/metrics")).text.splitlines()
        gate.set()
        assert [await asking for asking in asked] == [WELL, WELL]
        assert {"turnbridge_turns_running 1.0", "turnbridge_requests_waiting 1.0"} <= set(metrics)
        assert 'turnbridge_errors_total{code="queue_full",source="gateway"} 1.0' in metrics


@pytest.mark.promise("limits.queue")
@BOTH_WAYS
async def test_who_waits_too_long_is_told_to_come_back_and_the_others_go_on(tmp_path: Path, stream: bool) -> None:
    async with running_bridge(tmp_path, PROXY_MAX_TURNS=1, PROXY_QUEUE_TIMEOUT_MS=300) as bridge:
        gate = asyncio.Event()
        bridge.script(answer(Wait(gate=gate), message("Well.")), answer(message("Well.")))
        first = asyncio.ensure_future(ask(bridge.http, CHAT, request(CHAT, stream=stream)))
        await bridge.model.until(lambda model: model.active == 1)
        refused = await ask(bridge.http, RESPONSES, request(RESPONSES, stream=stream))
        assert refused == Ending(status=503, code="queue_timeout")
        assert int(refused.headers["retry-after"]) >= 1
        gate.set()
        assert await first == WELL
        assert await ask(bridge.http, CHAT, request(CHAT, stream=stream)) == WELL


@pytest.fixture(scope="module")
async def strict(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that has little patience."""
    del anyio_backend  # Named so that its scope fits.
    directory = tmp_path_factory.mktemp("strict")
    async with running_bridge(directory, PROXY_IDLE_TIMEOUT_MS=SILENCE_MS, PROXY_TIMEOUT_MS=WHOLE_MS) as running:
        yield running


def never() -> Wait:
    return Wait(gate=asyncio.Event())


def silent() -> Reply:
    return answer(never())


def begun() -> Reply:
    return answer(message("Begun", pieces=["Begun", never()]))


def talkative() -> Reply:
    return answer(message("", pieces=["Begun", *[piece for _ in range(200) for piece in (".", Pause(seconds=0.05))]]))


@pytest.mark.promise("limits.time")
@BOTH_APIS
@pytest.mark.parametrize(
    ("reply", "streamed"),
    [
        (silent, Ending(status=504, code="turn_timeout")),
        (begun, Ending(status=200, text="Begun", code="turn_timeout")),
        (talkative, Ending(status=200, text="Begun", code="turn_timeout")),
    ],
    ids=["silent from the start", "silent after some words", "no end to its words"],
)
@BOTH_WAYS
async def test_a_turn_whose_time_is_up_is_interrupted_and_its_client_told_once(
    strict: Bridge, path: str, reply: Callable[[], Reply], streamed: Ending, stream: bool
) -> None:
    strict.script(reply())
    dropped = strict.model.dropped
    ending = await ask(strict.http, path, request(path, stream=stream))
    told = replace(ending, text=ending.text.rstrip("."))
    assert told == (streamed if stream else Ending(status=504, code="turn_timeout"))
    async with asyncio.timeout(PATIENCE_S):
        await strict.model.until(lambda model: model.dropped == dropped + 1)
    strict.says("Well.")
    assert await ask(strict.http, path, request(path, stream=stream)) == WELL


@pytest.mark.promise("limits.time")
@pytest.mark.parametrize(
    ("reply", "words"),
    [(silent, "sent nothing for 0.333 seconds"), (talkative, "longer than 2.5 seconds")],
    ids=["silence", "whole"],
)
async def test_the_error_says_which_time_is_up(strict: Bridge, reply: Callable[[], Reply], words: str) -> None:
    strict.script(reply())
    response = await strict.http.post(RESPONSES, json=request(RESPONSES, stream=False))
    assert words in response.json()["error"]["message"]


@pytest.mark.promise("limits.time")
async def test_every_word_of_the_model_gives_it_more_time(strict: Bridge) -> None:
    pieces = [piece for word in ("One", ", two", ", three.") for piece in (word, Pause(seconds=0.45))]
    strict.script(answer(message("One, two, three.", pieces=pieces)))
    heard = Answer()
    ending = await ask(strict.http, CHAT, request(CHAT, stream=True), heard=heard)
    assert ending == Ending(status=200, text="One, two, three.")


@pytest.mark.promise("limits.time.tools")
async def test_the_time_that_a_client_takes_for_its_tools_does_not_count(strict: Bridge) -> None:
    look: JsonObject = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    call = Call(id="call_slow", name="look", arguments="{}")
    strict.script(answer(function_call("look", "{}", call_id=call.id)), answer(message("Well.")))
    items: list[JsonObject] = [{"role": "user", "content": "hi"}]
    asked: JsonObject = {"model": "gpt-5.5", "input": [*items], "tools": [look]}
    assert await ask(strict.http, RESPONSES, asked) == Ending(status=200, calls=(call,))
    # Longer than the model may be silent, and than a turn may take.
    await asyncio.sleep((SILENCE_MS + WHOLE_MS) / 1000)
    items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments})
    items.append({"type": "function_call_output", "call_id": call.id, "output": "it"})
    assert await ask(strict.http, RESPONSES, {**asked, "input": [*items]}) == WELL
    first, second = strict.model.requests
    assert first.body["prompt_cache_key"] == second.body["prompt_cache_key"], "the turn went on where it was left"
