"""A clock that jumps: nothing that waits looks at the time of day."""

import asyncio
import time

import pytest

from tests.faults.leftovers import nothing_left
from tests.support.gateway import API_KEY, Bridge
from tests.support.plain_http import CHAT, RESPONSES, Answer, Ending, ask, client
from tests.support.waiting import until
from turnbridge.codex.process.pool import Pool
from turnbridge.scripted_model.replies import (
    Wait,
    answer,
    function_call,
    message,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

DAY_S = 86_400.0
LOOK: JsonObject = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.promise("faults.clock")
@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S], ids=["forward", "back"])
async def test_a_jump_of_the_clock_is_noticed_by_no_turn_and_no_worker(
    real: Bridge, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    gate = asyncio.Event()
    hi: JsonObject = {"role": "user", "content": "hi"}
    tooled: JsonObject = {"model": "gpt-5.5", "input": [hi], "tools": [LOOK]}
    chat: JsonObject = {"model": "gpt-5.5", "messages": [hi], "stream": True}
    async with nothing_left(real), client(real.url, API_KEY) as http:
        real.script(
            answer(function_call("look", "{}", call_id="call_clock")),
            answer(message("Begun, done.", pieces=["Begun", Wait(gate=gate), ", done."])),
            answer(message("Seen.")),
        )
        workers = real.gateway.pool.workers
        (call,) = (await ask(http, RESPONSES, tooled)).calls
        heard = Answer()
        begun = asyncio.ensure_future(ask(http, CHAT, chat, heard=heard))
        await until(lambda: heard.text == "Begun")
        today = time.time
        monkeypatch.setattr(time, "time", lambda: today() + jump_s)
        # Time enough for whoever looks at the clock to do harm.
        await asyncio.sleep(2 * Pool.probe_interval_s)
        said: list[JsonObject] = [
            {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.id, "output": "it"},
        ]
        assert await ask(http, RESPONSES, {**tooled, "input": [hi, *said]}) == Ending(status=200, text="Seen.")
        assert not begun.done()
        gate.set()
        assert await begun == Ending(status=200, text="Begun, done.")
        threads = [request.body["prompt_cache_key"] for request in real.model.requests]
        assert threads[0] == threads[2], "the turn that waited for its tool was resumed, not replayed"
        assert real.gateway.pool.workers == workers
