"""App-servers that are replaced under load: every turn is served, and the old processes are gone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.faults.leftovers import grow
from tests.support.gateway import Bridge, running_bridge
from tests.support.plain_http import CHAT, RESPONSES, Call, Ending, ask
from tests.support.processes import command, resident_mb, restarts, with_variable
from tests.support.waiting import until
from turnbridge.scripted_model.replies import (
    Reply,
    Wait,
    answer,
    function_call,
    message,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

HOME = "demo-home"
THREADS = 5
WELL = Ending(status=200, text="Well.")
LOOK: JsonObject = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
ASK: dict[str, JsonObject] = {
    CHAT: {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}], "stream": True},
    RESPONSES: {"model": "gpt-5.5", "input": "hi"},
}
REPLACED_S = 30
"""When the old app-servers must be gone: each is looked at every second while it waits for its last turn."""


def app_servers(directory: Path) -> list[int]:
    """Return the app-servers of the gateway in a directory; others in this process come and go as they like."""
    return [pid for pid in with_variable("CODEX_HOME", str(directory / HOME)) if " app-server " in command(pid)]


def is_fresh(bridge: Bridge) -> bool:
    """Tell whether whoever has had enough threads was replaced."""
    return all(worker.opened < THREADS for worker in bridge.gateway.pool.workers)


@contextlib.asynccontextmanager
async def recycling(directory: Path, count: int, *, warm_threads: int = 0) -> AsyncIterator[Bridge]:
    """Run a gateway whose app-servers are replaced after a few turns; only the newest ones are there afterwards."""
    async with running_bridge(directory, WORKER_COUNT=count, PROXY_WARM_THREADS_MAX=warm_threads) as running:
        pool = running.gateway.pool
        # Of this pool only: other gateways of this process would recycle their app-servers too.
        pool._is_outgrown = lambda worker: worker.opened >= THREADS  # type: ignore[method-assign]
        pool.threads_per_probe = THREADS
        await grow(pool, count)
        running.model.respond = lambda _: answer(message("Well."))
        yield running
        running.gateway.calls.close()
        await until(lambda: len(app_servers(directory)) == count, within_s=REPLACED_S)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Bridge]:
    async with recycling(tmp_path, 2) as running:
        yield running


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bridge]:
    async with recycling(tmp_path, 1) as running:
        yield running


@pytest.mark.promise("faults.recycling")
async def test_sixty_turns_in_a_row_are_served_while_app_servers_are_replaced(
    two: Bridge, record_property: Callable[[str, object], None]
) -> None:
    seen = {worker.process.pid for worker in two.gateway.pool.workers}
    largest = 0.0
    for number in range(60):
        path = (CHAT, RESPONSES)[number % 2]
        assert await ask(two.http, path, ASK[path]) == WELL
        if number % 20 == 19:
            # How many replacements come meanwhile depends on the machine; here both have had enough, and both go.
            await until(lambda: is_fresh(two))
        pids = {worker.process.pid for worker in two.gateway.pool.workers}
        seen |= pids
        largest = max(largest, *map(resident_mb, pids))
    assert len(seen) >= 2 + 3 * 2
    assert restarts(two.gateway.pool) == 0, "to be replaced is not to crash"
    record_property("largest_app_server_mb", round(largest))


@pytest.mark.promise("faults.recycling")
async def test_eight_turns_at_once_are_served_while_app_servers_are_replaced(two: Bridge) -> None:
    for _ in range(6):
        asked = [ask(two.http, path, ASK[path]) for path in (CHAT, RESPONSES) * 4]
        assert await asyncio.gather(*asked) == [WELL] * 8


@pytest.mark.promise("faults.recycling")
async def test_a_turn_that_runs_on_a_replaced_app_server_is_finished_there(one: Bridge) -> None:
    gate = asyncio.Event()
    long = answer(message("Long.", pieces=["Long", Wait(gate=gate), "."]))
    replies: list[Reply] = [long]
    one.model.respond = lambda _: replies.pop() if replies else answer(message("Well."))
    (old,) = one.gateway.pool.workers
    running = asyncio.ensure_future(ask(one.http, CHAT, ASK[CHAT]))
    await one.model.until(lambda model: model.active == 1)
    for _ in range(2 * THREADS):
        assert await ask(one.http, RESPONSES, ASK[RESPONSES]) == WELL
    await until(lambda: old not in one.gateway.pool.workers)
    assert not old.process.exited.done()
    gate.set()
    assert await running == Ending(status=200, text="Long.")


@pytest.mark.promise("faults.recycling")
async def test_a_turn_that_waits_for_its_client_on_a_replaced_app_server_is_served(one: Bridge) -> None:
    call = Call(id="call_recycled", name="look", arguments="{}")
    replies: list[Reply] = [answer(function_call("look", "{}", call_id=call.id))]
    one.model.respond = lambda _: replies.pop() if replies else answer(message("Well."))
    items: list[JsonObject] = [{"role": "user", "content": "hi"}]
    asked: JsonObject = {"model": "gpt-5.5", "tools": [LOOK]}
    assert await ask(one.http, RESPONSES, {**asked, "input": [*items]}) == Ending(status=200, calls=(call,))
    for _ in range(2 * THREADS):
        assert await ask(one.http, RESPONSES, ASK[RESPONSES]) == WELL
    items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments})
    items.append({"type": "function_call_output", "call_id": call.id, "output": "it"})
    assert await ask(one.http, RESPONSES, {**asked, "input": [*items]}) == WELL


@pytest.mark.promise("faults.recycling")
async def test_a_conversation_whose_thread_was_kept_on_a_replaced_app_server_goes_on_by_a_replay(
    tmp_path: Path,
) -> None:
    history: list[JsonObject] = [{"role": "user", "content": "first"}]
    asked: JsonObject = {"model": "gpt-5.5", "stream": True}
    async with recycling(tmp_path, 1, warm_threads=64) as bridge:
        (old,) = bridge.gateway.pool.workers
        assert await ask(bridge.http, CHAT, {**asked, "messages": [*history]}) == WELL
        for number in range(THREADS):
            other: JsonObject = {"role": "user", "content": f"other {number}"}
            assert await ask(bridge.http, CHAT, {**asked, "messages": [other]}) == WELL
        await until(old.process.exited.done)
        history += [{"role": "assistant", "content": "Well."}, {"role": "user", "content": "second"}]
        again = await ask(bridge.http, CHAT, {**asked, "messages": [*history]})
        assert (again, again.headers["x-turnbridge-thread"]) == (WELL, "replayed")
