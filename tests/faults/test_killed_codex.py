"""The real Codex, killed or stopped at each stage of a turn: who has seen nothing notices nothing, others hear once."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator

import pytest

from tests.faults.leftovers import nothing_left
from tests.support.gateway import API_KEY, Bridge
from tests.support.plain_http import CHAT, RESPONSES, Answer, Call, Ending, ask, client
from tests.support.waiting import until
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.worker import Worker
from turnbridge.scripted_model.replies import (
    Reply,
    Wait,
    answer,
    function_call,
    message,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

WELL = Ending(status=200, text="Well.")
DIED_LATER = Ending(status=200, text="Begun", code="backend_unavailable")
AT_ONCE_S = 5.0
"""How soon a client hears of a death; it takes a few milliseconds, and on a busy machine much longer."""

BOTH_SIGNALS = pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
BOTH_APIS = pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])

LOOK: JsonObject = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}


def body(path: str, text: str, *, stream: bool = False) -> JsonObject:
    said: JsonObject = {"input": text} if path == RESPONSES else {"messages": [{"role": "user", "content": text}]}
    return {"model": "gpt-5.5", "stream": stream, **said}


def script(bridge: Bridge, **replies: list[Reply]) -> None:
    """Let the model answer each request by the word that stands in it."""

    def respond(request: JsonObject) -> Reply:
        asked = json.dumps(request["input"])
        return next(answers.pop(0) for word, answers in replies.items() if word in asked)

    bridge.script()
    bridge.model.respond = respond


@contextlib.asynccontextmanager
async def an_undisturbed_turn(bridge: Bridge) -> AsyncIterator[list[Reply]]:
    """Assert that a turn which runs on the other app-server all the while ends well; yields its script."""
    gate = asyncio.Event()
    replies: list[Reply] = [answer(message("Well.", pieces=["Well", Wait(gate=gate), "."]))]
    script(bridge, beside=replies)
    async with client(bridge.url, API_KEY) as http:
        beside = asyncio.ensure_future(ask(http, CHAT, body(CHAT, "beside", stream=True)))
        try:
            await until(lambda: bridge.model.active == 1)
            yield replies
            assert not beside.done()
            gate.set()
            assert await beside == WELL
        finally:
            beside.cancel()


def the_other(bridge: Bridge, *besides: Worker) -> Worker:
    """Return the app-server that runs, or keeps, a turn and is not one of these."""
    (found,) = (w for w in bridge.gateway.pool.workers if (w.load or w.parked) and w not in besides)
    return found


def silent() -> Reply:
    return answer(Wait(gate=asyncio.Event()))


def begun() -> Reply:
    return answer(message("Begun and", pieces=["Begun", Wait(gate=asyncio.Event()), " and"]))


def well() -> Reply:
    return answer(message("Well."))


@pytest.mark.promise("faults.death.unseen")
@BOTH_SIGNALS
async def test_a_request_that_meets_a_codex_just_dead_is_served_by_another(real: Bridge, harm: signal.Signals) -> None:
    async with nothing_left(real), an_undisturbed_turn(real):
        beside = the_other(real)
        script(real, hurt=[well(), well()])
        (idle,) = (worker for worker in real.gateway.pool.workers if worker is not beside)
        async with client(real.url, API_KEY) as http:
            os.kill(idle.process.pid, harm)
            assert await ask(http, CHAT, body(CHAT, "hurt")) == WELL
        await until(lambda: idle not in real.gateway.pool.workers)


@pytest.mark.promise("faults.death.unseen", "faults.hung")
@BOTH_SIGNALS
@BOTH_APIS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_turn_without_output_is_run_again_unseen(
    real: Bridge, harm: signal.Signals, path: str, stream: bool
) -> None:
    async with nothing_left(real), an_undisturbed_turn(real):
        beside = the_other(real)
        script(real, hurt=[silent(), well()])
        async with client(real.url, API_KEY) as http:
            asked = asyncio.ensure_future(ask(http, path, body(path, "hurt", stream=stream)))
            await until(lambda: real.model.active == 2)
            os.kill(the_other(real, beside).process.pid, harm)
            assert await asked == WELL


@pytest.mark.promise("faults.death.told")
@BOTH_APIS
async def test_a_stream_that_has_begun_hears_of_the_death_once_and_at_once(
    real: Bridge, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The death itself is to be noticed, not that nobody answers.
    monkeypatch.setattr(Pool, "probe_timeout_s", 10 * AT_ONCE_S)
    async with nothing_left(real), an_undisturbed_turn(real):
        beside = the_other(real)
        script(real, hurt=[begun()])
        async with client(real.url, API_KEY) as http:
            heard = Answer()
            asked = asyncio.ensure_future(ask(http, path, body(path, "hurt", stream=True), heard=heard))
            await until(lambda: heard.text == "Begun")
            os.kill(the_other(real, beside).process.pid, signal.SIGKILL)
            async with asyncio.timeout(AT_ONCE_S):
                assert await asked == DIED_LATER


@pytest.mark.promise("state.conversation.failed")
@pytest.mark.parametrize("background", [False, True], ids=["streamed", "background"])
async def test_a_response_that_a_death_ends_leaves_nothing_in_its_conversation(real: Bridge, background: bool) -> None:
    async with nothing_left(real), an_undisturbed_turn(real), client(real.url, API_KEY) as http:
        beside = the_other(real)
        script(real, hurt=[begun()])
        talk = (await http.post("/v1/conversations", json={})).json()["id"]
        asking: JsonObject = {**body(RESPONSES, "hurt", stream=True), "conversation": talk, "background": background}
        heard = Answer()
        asked = asyncio.ensure_future(ask(http, RESPONSES, asking, heard=heard))
        await until(lambda: heard.text == "Begun")
        os.kill(the_other(real, beside).process.pid, signal.SIGKILL)
        assert await asked == DIED_LATER
        assert (await http.get(f"/v1/conversations/{talk}/items")).json()["data"] == []


@pytest.mark.promise("tools.replay.killed", "faults.hung")
@BOTH_SIGNALS
@BOTH_APIS
async def test_a_turn_that_waited_for_a_tool_in_a_dead_codex_is_replayed(
    real: Bridge, harm: signal.Signals, path: str
) -> None:
    called = Call(id=f"call_{path[-4:]}_{harm}", name="look", arguments="{}")
    asks = answer(function_call("look", "{}", call_id=called.id))
    tool: JsonObject = {"type": "function", "function": LOOK} if path == CHAT else {"type": "function", **LOOK}
    async with nothing_left(real), an_undisturbed_turn(real):
        beside = the_other(real)
        script(real, hurt=[asks, well(), well()])
        async with client(real.url, API_KEY) as http:
            first: JsonObject = {**body(path, "hurt"), "tools": [tool]}
            assert await ask(http, path, first) == Ending(status=200, calls=(called,))
            os.kill(the_other(real, beside).process.pid, harm)
            assert await ask(http, path, with_output(path, first, called)) == WELL
        real.gateway.calls.close()


def with_output(path: str, request: JsonObject, call: Call) -> JsonObject:
    """Return the request that brings the output of a call."""
    if path == CHAT:
        function: JsonObject = {"name": call.name, "arguments": call.arguments}
        said: JsonObject = {
            "role": "assistant",
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
        }
        output: JsonObject = {"role": "tool", "tool_call_id": call.id, "content": "it"}
        asked = request["messages"]
        assert isinstance(asked, list)
        return {**request, "messages": [*asked, said, output]}
    made: JsonObject = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    given: JsonObject = {"type": "function_call_output", "call_id": call.id, "output": "it"}
    return {**request, "input": [{"role": "user", "content": request["input"]}, made, given]}
