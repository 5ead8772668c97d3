"""A client that leaves, at each event of a stream: its turn is interrupted, and nothing of it stays."""

import asyncio

import pytest

from tests.faults.leftovers import nothing_left
from tests.support.gateway import API_KEY, Bridge
from tests.support.plain_http import CHAT, RESPONSES, client, frames
from tests.support.waiting import until
from turnbridge.scripted_model.replies import (
    Reply,
    Wait,
    answer,
    function_call,
    message,
    reasoning,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ASK: dict[str, JsonObject] = {
    CHAT: {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": "gpt-5.5", "input": "hi"},
}
LOOK: JsonObject = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
TOOLS: dict[str, JsonObject] = {CHAT: {"type": "function", "function": LOOK}, RESPONSES: {"type": "function", **LOOK}}


def request(path: str) -> JsonObject:
    thinking: JsonObject = {"reasoning": {"summary": "auto"}} if path == RESPONSES else {}
    return {**ASK[path], "tools": [TOOLS[path]], "stream": True, **thinking}


def reply(gate: asyncio.Event) -> Reply:
    """Return an answer with everything in it, that goes on to its end only when the gate is open."""
    text = message("Begun, done.", pieces=["Begun", ",", Wait(gate=gate), " done."])
    return answer(reasoning(["I think."]), text, function_call("look", "{}"))


# How many events a stream has before the gate, and in all.
LENGTHS = {CHAT: (4, 9), RESPONSES: (12, 21)}
PLACES = [(path, count) for path, (_, whole) in LENGTHS.items() for count in range(whole + 1)]


@pytest.mark.parametrize("path", LENGTHS)
async def test_the_table_below_holds_every_event(real: Bridge, path: str) -> None:
    gate = asyncio.Event()
    real.script(reply(gate))
    async with client(real.url, API_KEY) as http, http.stream("POST", path, json=request(path)) as response:
        events = frames(response)
        before = [await anext(events) for _ in range(LENGTHS[path][0])]
        gate.set()
        after = [event async for event in events]
    real.gateway.calls.close()
    assert (len(before), len(before) + len(after)) == LENGTHS[path]
    assert "done" not in "".join(before).replace(".done", "")


@pytest.mark.promise("faults.leaving")
@pytest.mark.parametrize(("path", "count"), PLACES)
async def test_a_client_that_leaves_after_so_many_events_leaves_nothing_behind(
    real: Bridge, path: str, count: int
) -> None:
    gate = asyncio.Event()
    real.script(reply(gate))
    dropped = real.model.dropped
    async with nothing_left(real):
        async with client(real.url, API_KEY) as http:
            async with http.stream("POST", path, json=request(path)) as response:
                events = frames(response)
                for number in range(count):
                    if number == LENGTHS[path][0]:
                        gate.set()
                    await anext(events)
            await until(lambda: real.model.active == 0)
        real.gateway.calls.close()
    assert gate.is_set() or real.model.dropped == dropped + 1
