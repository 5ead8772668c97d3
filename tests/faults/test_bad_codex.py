"""An app-server that misbehaves in one turn: its client hears one ending, the turn beside it nothing, nothing stays."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.leftovers import is_whole, nothing_left
from tests.support.gateway import API_KEY, Bridge
from tests.support.plain_http import RESPONSES, Ending, ask, client
from tests.support.processes import restarts
from tests.support.waiting import PATIENCE_S, until
from turnbridge.turn.items import Json, JsonObject

pytestmark = pytest.mark.anyio

HELLO = Ending(status=200, text="Hello!")
DIED = Ending(status=503, code="backend_unavailable")
DIED_LATER = Ending(status=200, text="Hel", code="backend_unavailable")
UNREADABLE = Ending(status=500, code="internal_error")
UNREADABLE_LATER = Ending(status=200, text="Hel", code="internal_error")


async def turn(bridge: Bridge, *, stream: bool = True, **wish: object) -> Ending:
    """Return how a turn ended in which this went wrong; its connections are closed then."""
    body: JsonObject = {"model": "gpt-5.5", "input": "hi", "instructions": json.dumps(wish, default=str)}
    async with client(bridge.url, API_KEY, timeout_s=PATIENCE_S) as http:
        return await ask(http, RESPONSES, {**body, "stream": stream})


def open_gate(gate: Path) -> None:
    gate.touch()


@contextlib.asynccontextmanager
async def an_undisturbed_turn(bridge: Bridge, gate: Path) -> AsyncIterator[None]:
    """Assert that a turn which runs on the other app-server all the while ends well."""
    beside = asyncio.ensure_future(turn(bridge, gate=gate))
    await until(lambda: sum(worker.load for worker in bridge.gateway.pool.workers) == 1)
    try:
        yield
        assert not beside.done()
        open_gate(gate)
        assert await beside == HELLO
    finally:
        beside.cancel()


@pytest.mark.promise("faults.garbage")
@pytest.mark.parametrize(
    "fault",
    [
        "garbage",
        "half_lines",
        "huge_garbage",
        "huge_notification",
        "wrong_ids",
        "unknown_notifications",
        "other_threads",
        "broken_tool_call",
    ],
)
async def test_what_concerns_no_turn_harms_none(bad: Bridge, tmp_path: Path, fault: str) -> None:
    async with nothing_left(bad), an_undisturbed_turn(bad, tmp_path / "gate"):
        assert await turn(bad, fault=fault, when="after") == HELLO


@pytest.mark.promise("faults.unanswered", "faults.one-ending")
@pytest.mark.parametrize(
    ("fault", "when", "streamed", "whole"),
    [
        ("broken_notification", "before", UNREADABLE, UNREADABLE),
        ("broken_notification", "after", UNREADABLE_LATER, UNREADABLE),
        ("broken_answer", "thread", UNREADABLE, UNREADABLE),
        ("silence", "thread", HELLO, HELLO),
        ("silence", "items", HELLO, HELLO),
        ("silence", "turn", HELLO, HELLO),
        ("internal_error", "thread", HELLO, HELLO),
        ("internal_error", "items", HELLO, HELLO),
        ("internal_error", "turn", HELLO, HELLO),
        ("answer_not_utf8", "thread", HELLO, HELLO),
        ("answer_not_utf8", "turn", HELLO, HELLO),
        ("delta_not_utf8", "before", HELLO, HELLO),
        ("delta_not_utf8", "after", DIED_LATER, HELLO),
        ("item_not_utf8", "before", HELLO, HELLO),
        ("item_not_utf8", "after", DIED_LATER, HELLO),
        ("exit_now", "thread", HELLO, HELLO),
        ("exit_now", "before", HELLO, HELLO),
        ("exit_now", "after", DIED_LATER, HELLO),
        ("half_a_line_and_exit", "before", HELLO, HELLO),
        ("half_a_line_and_exit", "after", DIED_LATER, HELLO),
        ("stop", "thread", HELLO, HELLO),
        ("stop", "before", HELLO, HELLO),
        ("stop", "after", DIED_LATER, HELLO),
        ("closed_stdout", "before", HELLO, HELLO),
        ("closed_stdout", "after", DIED_LATER, HELLO),
        ("endless_line", "before", HELLO, HELLO),
        ("endless_line", "after", DIED_LATER, HELLO),
    ],
)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_what_ends_a_turn_ends_it_once_and_is_made_good_if_its_client_has_seen_nothing(
    bad: Bridge, tmp_path: Path, fault: str, when: str, streamed: Ending, whole: Ending, stream: bool
) -> None:
    async with nothing_left(bad):
        async with an_undisturbed_turn(bad, tmp_path / "gate"):
            ending = await turn(bad, stream=stream, fault=fault, when=when, once=tmp_path / "once")
        assert ending == (streamed if stream else whole)
        assert await turn(bad) == HELLO


@pytest.mark.promise("faults.internal-error")
@pytest.mark.parametrize("when", ["thread", "items", "turn"])
async def test_an_internal_error_of_codex_is_the_servers_fault(bad: Bridge, when: str) -> None:
    assert await turn(bad, fault="internal_error", when=when) == DIED


@pytest.mark.promise("faults.unanswered")
async def test_an_app_server_that_leaves_a_call_unanswered_is_replaced_and_ends_its_other_turns(
    bad: Bridge, tmp_path: Path
) -> None:
    pool = bad.gateway.pool
    await until(lambda: is_whole(pool))
    gates = [tmp_path / f"gate-{number}" for number in range(2)]
    beside = [asyncio.ensure_future(turn(bad, gate=gate)) for gate in gates]
    await until(lambda: [worker.load for worker in pool.workers] == [1, 1])
    before = set(pool.workers)
    assert await turn(bad, fault="silence", when="turn", once=tmp_path / "once") == HELLO
    (replaced,) = before - set(pool.workers)
    assert not replaced.process.exited.done()
    for gate in gates:
        open_gate(gate)
    assert await asyncio.gather(*beside) == [HELLO, HELLO]
    await until(replaced.process.exited.done)


@pytest.mark.promise("faults.death.unseen")
@pytest.mark.parametrize("when", ["thread", "before"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_turn_that_kills_every_app_server_is_tried_twice_and_no_more(
    bad: Bridge, tmp_path: Path, when: str, stream: bool
) -> None:
    async with nothing_left(bad):
        before = restarts(bad.gateway.pool)
        async with an_undisturbed_turn(bad, tmp_path / "gate"):
            assert await turn(bad, stream=stream, fault="exit_now", when=when) == DIED
        assert restarts(bad.gateway.pool) - before == 2
        assert await turn(bad) == HELLO


@pytest.mark.promise("tools.mode.native-at-once")
async def test_calls_that_codex_opens_at_once_are_all_told_and_answered(bad: Bridge, tmp_path: Path) -> None:
    asked: list[Json] = [{"role": "user", "content": "Weather?"}]
    wish = json.dumps({"fault": "calls_at_once", "when": "before"})
    tool: JsonObject = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
    body: JsonObject = {"model": "gpt-5.5", "instructions": wish, "tools": [tool]}
    async with nothing_left(bad), an_undisturbed_turn(bad, tmp_path / "gate"):
        async with client(bad.url, API_KEY, timeout_s=PATIENCE_S) as http:
            first = await ask(http, RESPONSES, {**body, "input": asked})
            assert [(call.id, json.loads(call.arguments)["city"]) for call in first.calls] == [
                ("exec-Oslo", "Oslo"),
                ("exec-Bern", "Bern"),
            ]
            called: list[Json] = [
                {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
                for call in first.calls
            ]
            outputs: list[Json] = [
                {"type": "function_call_output", "call_id": f"exec-{city}", "output": f"sunny in {city}"}
                for city in ("Oslo", "Bern")
            ]
            second = await ask(http, RESPONSES, {**body, "input": [*asked, *called, *outputs]})
        assert second == HELLO
        assert second.headers["x-turnbridge-thread"] == "parked"
