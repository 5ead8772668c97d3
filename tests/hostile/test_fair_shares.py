"""One client takes all that it can get, and another one beside it finds its own share free and its own things kept."""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hostile.site import HOSTILE_KEY, NEIGHBOUR_KEY, Site, repeat, running_site
from tests.support.gateway import running_bridge
from tests.support.plain_http import CHAT, RESPONSES, client
from tests.support.waiting import until
from turnbridge.engine.kept_threads import ParkedTurns
from turnbridge.scripted_model.replies import (
    Reply,
    Wait,
    answer,
    function_call,
    message,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MOST_TURNS, MOST_WAITING, MOST_WARM, MOST_PARKED = 8, 4, 3, 8
SETTINGS = {"PROXY_MAX_TURNS": MOST_TURNS, "PROXY_QUEUE_MAX": MOST_WAITING, "PROXY_WARM_THREADS_MAX": MOST_WARM}
LOOK: JsonObject = {"name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
async def small(started_before: Path) -> AsyncIterator[Site]:
    """Return a gateway with few places."""
    async with running_site(started_before, SETTINGS) as running:
        yield running


def chat(*said: JsonObject, **wishes: Json) -> JsonObject:
    return {"model": "gpt-5.5", "messages": list(said), **wishes}


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


@pytest.mark.promise("limits.queue.fair")
async def test_a_client_that_fills_the_queue_does_not_keep_another_waiting(small: Site) -> None:
    gate = asyncio.Event()

    def respond(request: JsonObject) -> Reply:
        endless = "endless" in json.dumps(request["input"])
        return answer(message("Begun", pieces=["Be", Wait(gate=gate), "gun"])) if endless else repeat(request)

    small.model.respond = respond
    flood = [
        asyncio.ensure_future(small.hostile.post(CHAT, json=chat(user(f"endless {number}"))))
        for number in range(MOST_TURNS + MOST_WAITING + 4)
    ]
    # One turn stays free, the queue is full, and the rest is refused.
    await until(lambda: small.model.active == MOST_TURNS - 1 and sum(each.done() for each in flood) == 5)
    reply = await small.neighbour.post(CHAT, json=chat(user("Hello?")))
    assert (reply.status_code, reply.json()["choices"][0]["message"]["content"]) == (200, "Hello?")
    assert reply.headers["x-turnbridge-queued-ms"] == "0"

    # While that turn is taken, too, the neighbour waits in the place of a request of the client that has most.
    taken = asyncio.ensure_future(small.neighbour.post(CHAT, json=chat(user("endless for the neighbour"))))
    await until(lambda: small.model.active == MOST_TURNS)
    waiting = asyncio.ensure_future(small.neighbour.post(CHAT, json=chat(user("And now?"))))
    await until(lambda: sum(each.done() for each in flood) == 6)
    assert not waiting.done()
    gate.set()
    assert [(await each).status_code for each in (taken, waiting)] == [200, 200]
    outcomes = [await each for each in flood]
    refused = [each.json()["error"]["code"] for each in outcomes if each.status_code == 429]
    assert refused == ["queue_full"] * 6
    assert sum(each.status_code == 200 for each in outcomes) == len(flood) - 6


@pytest.mark.promise("threads.warm.fair")
async def test_a_client_that_keeps_many_threads_does_not_cool_those_of_another(small: Site) -> None:
    await small.neighbour.post(CHAT, json=chat(user("Hello?")))
    for number in range(MOST_WARM + 2):
        await small.hostile.post(CHAT, json=chat(user(f"Hello {number}")))
    following = chat(user("Hello?"), {"role": "assistant", "content": "Hello?"}, user("And then?"))
    reply = await small.neighbour.post(CHAT, json=following)
    assert (reply.status_code, reply.headers["x-turnbridge-thread"]) == (200, "warm")


@pytest.mark.promise("tools.parked.bounded")
async def test_a_client_that_answers_none_of_its_calls_does_not_end_the_turn_of_another(
    started_before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ParkedTurns, "most_parked", MOST_PARKED)
    wishes: dict[str, Json] = {"tools": [{"type": "function", "function": LOOK}]}
    number = itertools.count()

    def respond(request: JsonObject) -> Reply:
        seen = '"function_call_output"' in json.dumps(request["input"])
        return answer(message("Seen.")) if seen else answer(function_call("look", "{}", call_id=f"call_{next(number)}"))

    async with (
        running_bridge(started_before / "data", api_key=f"{HOSTILE_KEY},{NEIGHBOUR_KEY}") as bridge,
        client(bridge.url, HOSTILE_KEY) as hostile,
        client(bridge.url, NEIGHBOUR_KEY) as neighbour,
    ):
        bridge.model.respond = respond
        called = (await neighbour.post(CHAT, json=chat(user("Look."), **wishes))).json()["choices"][0]["message"]
        asked = [hostile.post(CHAT, json=chat(user("Look."), **wishes)) for _ in range(MOST_PARKED + 4)]
        assert {reply.status_code for reply in await asyncio.gather(*asked)} == {200}
        assert len(bridge.gateway.calls) == MOST_PARKED
        output: JsonObject = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "A house."}
        told: JsonObject = {"role": "assistant", "tool_calls": called["tool_calls"]}
        reply = await neighbour.post(CHAT, json=chat(user("Look."), told, output, **wishes))
        assert (reply.status_code, reply.headers["x-turnbridge-thread"]) == (200, "parked")


@pytest.mark.promise("state.retention.fair")
async def test_a_client_that_fills_the_store_does_not_evict_what_another_has_kept(small: Site) -> None:
    kept = (await small.neighbour.post(RESPONSES, json={"model": "gpt-5.5", "input": "Keep this."})).json()["id"]
    filling: JsonObject = {"model": "gpt-5.5", "input": [user("x" * 600_000), user("And this.")]}
    theirs = [(await small.hostile.post(RESPONSES, json=filling)).json()["id"] for _ in range(4)]
    # As the gateway itself does every quarter of an hour.
    pruning = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnbridge", "store", "prune", "--max-mb", "1"),
        env={"PROXY_DATA_DIR": str(small.gateway.directory / "data"), "HOME": str(small.gateway.directory)},
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await pruning.wait() == 0
    reply = await small.neighbour.get(f"{RESPONSES}/{kept}")
    assert (reply.status_code, reply.json()["output"][0]["content"][0]["text"]) == (200, "Keep this.")
    left = [(await small.hostile.get(f"{RESPONSES}/{each}")).status_code for each in theirs]
    assert left == [404, 404, 404, 200]
