"""A turn belongs to whoever started it, whatever the order in which Codex tells of it."""

import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.codex.process.idle_worker import answering, idle_worker
from tests.support.codex_schema import old_schema
from tests.support.turn_requests import changed, turn_request
from turnbridge.codex.process.connection import Connection
from turnbridge.codex.process.thread import CodexThread, open_v2
from turnbridge.codex.protocol.capabilities import RpcCheck
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn.errors import (
    BackendLost,
    BackendUnavailable,
    GatewayError,
    InternalFault,
    InvalidRequest,
)
from turnbridge.turn.events import (
    CallsAwaited,
    FunctionCallDone,
    MessageStarted,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    Usage,
)
from turnbridge.turn.items import (
    FunctionCallOutput,
    ImagePart,
    Json,
    JsonObject,
    Message,
    TextPart,
)

pytestmark = pytest.mark.anyio

PATIENCE_S = 10
"""Far longer than a turn of a Codex that is here takes."""

ASKED = turn_request(model="m", items=(Message(role="user", parts=(TextPart(text="hi"),)),))


def words(turn: str, text: str) -> JsonObject:
    """Return the line that tells a piece of a turn's answer."""
    params: JsonObject = {"threadId": "thread", "turnId": turn, "itemId": "msg", "delta": text}
    return {"method": "item/agentMessage/delta", "params": params}


def end(turn: str) -> JsonObject:
    """Return the line that tells the end of a turn."""
    return {"method": "turn/completed", "params": {"threadId": "thread", "turn": {"id": turn, "status": "completed"}}}


ANSWER: JsonObject = {"result": {"turn": {"id": "ours", "status": "inProgress"}}}
"""What Codex answers to the start of the turn; the line has no id yet."""


class Codex:
    """A Codex that says these lines one by one when a turn is started."""

    def __init__(self, *lines: JsonObject, check: RpcCheck | None = None) -> None:
        self._lines = lines
        self._saying: asyncio.Task[None] | None = None
        self.connection = Connection(self._take, check=check)

    def _take(self, line: bytes) -> None:
        asked: JsonObject = json.loads(line)
        if asked["method"] == "turn/start":
            self._saying = asyncio.ensure_future(self._say(asked["id"]))

    async def _say(self, number: object) -> None:
        for line in self._lines:
            said = line if "method" in line else {**line, "id": number}
            self.connection.receive(json.dumps(said).encode() + b"\n")
            for _ in range(5):
                await asyncio.sleep(0)


async def events_of(codex: Codex, directory: Path) -> list[TurnEvent]:
    """Return the events of a turn that is run on this Codex."""
    worker = await idle_worker(directory, connection=codex.connection)
    try:
        thread = CodexThread(worker, "thread", ASKED, ToolNames(()))
        return [event async for batch in thread.run() for event in batch]
    finally:
        await worker.process.stop()


@pytest.mark.parametrize("place", range(4))
async def test_a_turn_is_told_whole_whenever_its_start_is_answered(place: int, tmp_path: Path) -> None:
    lines = [words("ours", "one "), words("ours", "two"), end("ours")]
    lines.insert(place, ANSWER)
    assert await events_of(Codex(*lines), tmp_path) == [
        MessageStarted("msg", None),
        TextDelta("msg", "one "),
        TextDelta("msg", "two"),
        TurnCompleted(Usage()),
    ]


async def test_what_is_told_of_other_turns_is_not_ours(tmp_path: Path) -> None:
    others = [words("another", "theirs"), end("another")]
    codex = Codex(*others, ANSWER, *others, words("ours", "ours"), end("ours"))
    assert await events_of(codex, tmp_path) == [
        MessageStarted("msg", None),
        TextDelta("msg", "ours"),
        TurnCompleted(Usage()),
    ]


async def test_a_start_that_is_answered_in_another_shape_fails_the_turn(tmp_path: Path) -> None:
    (failed,) = await events_of(Codex({"result": {"turn": 5}}, words("ours", "ours")), tmp_path)
    assert isinstance(failed, TurnFailed)
    assert isinstance(failed.error, InternalFault)
    assert "`turn/start`" in failed.error.message


def told(method: str, **params: Json) -> JsonObject:
    """Return a line about our turn."""
    return {"method": method, "params": {"threadId": "thread", "turnId": "ours", **params}}


CALLS = (
    ANSWER,
    told("rawResponseItem/completed", item={"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}),
    told("rawResponse/completed"),
)
"""A model that calls a function; Codex has not asked for its output yet."""


async def test_an_output_that_codex_does_not_take_fails_its_turn_also_as_it_ends(tmp_path: Path) -> None:
    """The schema is of a Codex to which outputs are written otherwise."""
    codex = Codex(*CALLS, check=RpcCheck(old_schema()))
    worker = await idle_worker(tmp_path, connection=codex.connection)
    try:
        thread = CodexThread(worker, "thread", ASKED, ToolNames(["f"]))
        called = [event async for batch in thread.run() for event in batch]
        assert isinstance(called[-1], CallsAwaited)
        asked = {"id": 1, **told("item/tool/call", callId="1", tool="f", arguments={})}
        codex.connection.receive(b"".join(json.dumps(line).encode() + b"\n" for line in (asked, end("ours"))))
        resumed = thread.resume([FunctionCallOutput(call_id="1", output="42")])
        (failed,) = [event async for batch in resumed for event in batch]
        assert isinstance(failed, TurnFailed)
        assert isinstance(failed.error, InternalFault)
        assert "`reply to item/tool/call`" in failed.error.message
    finally:
        await worker.process.stop()


def script_call(number: int) -> JsonObject:
    """Return the line in which Codex asks for a call that a script of the model's has made."""
    return {"id": number, **told("item/tool/call", callId=f"exec-{number}", tool="f", arguments={"n": number})}


class Scripting(Codex):
    """A Codex whose model runs a script: all of its calls are open at once, as from 0.164 on."""

    def __init__(self, *calls: JsonObject) -> None:
        super().__init__(ANSWER, told("rawResponse/completed"))
        self._calls = calls
        self.answers: dict[Json, Json] = {}

    def _take(self, line: bytes) -> None:
        said: JsonObject = json.loads(line)
        if "method" in said:
            super()._take(line)
            return
        self.answers[said["id"]] = said["result"]
        if len(self.answers) == len(self._calls):
            self.connection.receive(json.dumps(end("ours")).encode() + b"\n")

    async def _say(self, number: object) -> None:
        await super()._say(number)
        self.connection.receive(b"".join(json.dumps(call).encode() + b"\n" for call in self._calls))


def output_of(number: int) -> JsonObject:
    """Return what Codex must be answered to a call."""
    return {"contentItems": [{"type": "inputText", "text": f"output {number}"}], "success": True}


@pytest.mark.promise("tools.mode.native-at-once")
@pytest.mark.parametrize(
    ("parallel", "legs"), [(True, [[1, 2, 3]]), (False, [[1], [2], [3]])], ids=["together", "one by one"]
)
async def test_calls_that_are_open_at_once_all_reach_the_client_and_are_answered(
    parallel: bool, legs: list[list[int]], tmp_path: Path
) -> None:
    codex = Scripting(*map(script_call, (1, 2, 3)))
    worker = await idle_worker(tmp_path, connection=codex.connection)
    try:
        request = changed(ASKED, parallel_calls=parallel)
        thread = CodexThread(worker, "thread", request, ToolNames(["f"]))
        batches = thread.run()
        async with asyncio.timeout(PATIENCE_S):
            for leg in legs:
                *calls, ending = [event async for batch in batches for event in batch]
                assert calls == [FunctionCallDone(f"fc_exec-{n}", f"exec-{n}", "f", f'{{"n": {n}}}') for n in leg]
                assert ending == CallsAwaited(Usage())
                assert thread.alive
                outputs = [FunctionCallOutput(call_id=f"exec-{n}", output=f"output {n}") for n in leg]
                batches = thread.resume(outputs)
            assert [event async for batch in batches for event in batch] == [TurnCompleted(Usage())]
        assert codex.answers == {number: output_of(number) for number in (1, 2, 3)}
    finally:
        await worker.process.stop()


async def test_a_scripts_calls_wait_for_the_end_of_the_response_that_started_it(tmp_path: Path) -> None:
    """From 0.164 on, a script may call before the response is over in which the model wrote it."""
    script = told("rawResponseItem/completed", item={"type": "custom_tool_call", "call_id": "1", "name": "exec"})
    usage: JsonObject = {"inputTokens": 10, "outputTokens": 5}
    codex = Codex(ANSWER, script, script_call(1), told("rawResponse/completed", usage=usage))
    worker = await idle_worker(tmp_path, connection=codex.connection)
    try:
        thread = CodexThread(worker, "thread", ASKED, ToolNames(["f"]))
        async with asyncio.timeout(PATIENCE_S):
            *_, ending = [event async for batch in thread.run() for event in batch]
        assert isinstance(ending, CallsAwaited)
        assert ending.usage == Usage(input=10, output=5)
        assert thread.alive
    finally:
        await worker.process.stop()


class Refusing:
    """A Codex that refuses to take items, in these words."""

    def __init__(self, words: str) -> None:
        self._words = words
        self.connection = Connection(self._take)

    def _take(self, line: bytes) -> None:
        asked: JsonObject = json.loads(line)
        said: JsonObject = {"id": asked["id"], "error": {"code": -32600, "message": self._words}}
        asyncio.get_running_loop().call_soon(self.connection.receive, json.dumps(said).encode() + b"\n")


@pytest.mark.parametrize(
    ("words", "error"), [("thread not found: 0199", BackendLost), ("no such role", InvalidRequest)], ids=["gone", "bad"]
)
async def test_a_thread_that_codex_has_let_go_of_is_lost_and_not_the_clients_mistake(
    words: str, error: type[GatewayError], tmp_path: Path
) -> None:
    worker = await idle_worker(tmp_path, connection=Refusing(words).connection)
    try:
        thread = CodexThread(worker, "thread", ASKED, ToolNames(()))
        with pytest.raises(error):
            await thread.inject(ASKED.items)
    finally:
        await worker.process.stop()


async def test_an_echo_that_never_comes_is_waited_for_as_long_as_an_answer(tmp_path: Path) -> None:
    def take(line: bytes) -> None:
        answer = json.dumps({"id": json.loads(line)["id"], "result": {}}).encode() + b"\n"
        asyncio.get_running_loop().call_soon(connection.receive, answer)

    connection = Connection(take)
    connection.call_timeout_s = 0.05
    worker = await idle_worker(tmp_path, connection=connection)
    image = Message(role="user", parts=(ImagePart(url="data:image/png;base64,AAAA", param="input"),))
    try:
        thread = CodexThread(worker, "thread", ASKED, ToolNames(()))
        with pytest.raises(BackendUnavailable, match="images"):
            await asyncio.wait_for(thread.inject((image,)), 10)
    finally:
        await worker.process.stop()


@pytest.mark.promise("limits.turns")
@pytest.mark.parametrize("waits", [False, True], ids=["running", "parked"])
async def test_a_thread_that_is_given_up_gives_everything_back(waits: bool, tmp_path: Path) -> None:
    codex = Codex(*(CALLS if waits else (ANSWER, words("ours", "Hello"))))
    worker = await idle_worker(tmp_path, connection=codex.connection)
    worker.load = 1  # As whoever opens a thread has counted.
    try:
        thread = CodexThread(worker, "thread", ASKED, ToolNames(["f"]))
        async with asyncio.timeout(PATIENCE_S), aclosing(thread.run()) as batches:
            await anext(batches)
            assert (worker.held, worker.load, worker.parked) == (1, int(not waits), int(waits))
            for _ in range(2):
                thread.close()
        assert (worker.held, worker.load, worker.parked) == (0, 0, 0)
        codex.connection.receive(json.dumps(words("ours", "late")).encode() + b"\n")
        assert codex.connection.skipped["late"] == 1
    finally:
        await worker.process.stop()


async def test_a_thread_that_is_kept_holds_nothing_of_its_history(tmp_path: Path) -> None:
    large = "x" * 999
    held = sys.getrefcount(large)
    worker = await idle_worker(tmp_path, connection=Codex(ANSWER, end("ours")).connection)
    try:
        request = changed(ASKED, items=(Message(role="user", parts=(TextPart(text=large),)),), instructions=large)
        thread = CodexThread(worker, "thread", request, ToolNames(()))
        del request
        assert [event async for batch in thread.run() for event in batch] == [TurnCompleted(Usage())]
        assert sys.getrefcount(large) == held
    finally:
        await worker.process.stop()


async def test_the_first_output_is_told_of_once(tmp_path: Path) -> None:
    codex, told = Codex(ANSWER, words("ours", "one"), words("ours", "two"), end("ours")), list[str]()
    worker = await idle_worker(tmp_path, connection=codex.connection)
    try:
        thread = CodexThread(worker, "thread", ASKED, ToolNames(()))
        thread.on_output = lambda: told.append("output")
        assert len([batch async for batch in thread.run()]) > 1
        assert told == ["output"]
    finally:
        await worker.process.stop()


async def test_a_parked_turn_whose_script_codex_gave_up_is_not_alive(tmp_path: Path) -> None:
    codex = Scripting(script_call(1))
    worker = await idle_worker(tmp_path, connection=codex.connection)
    try:
        thread = CodexThread(worker, "thread", ASKED, ToolNames(["f"]))
        async with asyncio.timeout(PATIENCE_S):
            assert [event async for batch in thread.run() for event in batch]
        assert thread.alive
        codex.connection.receive(json.dumps(told("rawResponse/completed")).encode() + b"\n")
        assert not thread.alive
    finally:
        await worker.process.stop()


@pytest.mark.parametrize(("provider", "ahead"), [(None, True), ("azure", False)])
async def test_a_thread_of_another_provider_has_none_started_ahead(
    provider: str | None, ahead: bool, tmp_path: Path
) -> None:
    worker = await idle_worker(tmp_path, connection=answering({"thread": {"id": "t1"}}))
    try:
        thread = await open_v2(worker, changed(ASKED, provider=provider))
        assert (thread.on_output is not None) is ahead
    finally:
        await worker.process.stop()
