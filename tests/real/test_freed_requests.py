"""What is over is freed at once: with the garbage collector off, nothing of a finished request stays in memory.

The collector runs rarely, since it holds up every stream: what only it could free would pile up in between.
"""

import asyncio
import gc
import json
import os
import signal
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.waiting import until
from turnbridge.codex.process.thread import CodexThread
from turnbridge.scripted_model.replies import (
    Hangup,
    Pause,
    Reply,
    Wait,
    answer,
    error_reply,
    function_call,
    message,
)
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.request import TurnRequest

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
WORDS = "keep nothing of this "
LARGE = 100_000
LOOK: JsonObject = {"name": "look", "parameters": {"type": "object", "properties": {}}}
SCHEMA: JsonObject = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
JSON_WANTED: JsonObject = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}


@pytest.fixture(scope="module")
async def keeping(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that keeps threads, so that the request of a thread that is kept is looked for, too."""
    del anyio_backend  # Named so that its scope is this one's.
    # What other tests have left, in a traceback or a gateway that is shared, need not be looked through.
    gc.collect()
    gc.freeze()
    async with running_bridge(tmp_path_factory.mktemp("freed"), PROXY_WARM_THREADS_MAX=64) as running:
        yield running


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Leave everything to reference counts."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def large(marker: str = "") -> str:
    """Return a text that is looked for."""
    return WORDS * (LARGE // len(WORDS) + 1) + marker


def asked(path: str, **wishes: object) -> JsonObject:
    said: JsonObject = (
        {"messages": [{"role": "user", "content": large()}]} if path == CHAT else {"input": large(), "store": False}
    )
    return {"model": "gpt-5.5", **said, **wishes}  # type: ignore[dict-item]  # JSON, as every caller knows.


async def send(bridge: Bridge, path: str, body: JsonObject, *, leave: bool = False, key: str = "") -> bytes:
    """Send a request by hand, since client libraries keep things of their own; return the answer, or its beginning."""
    host = urlsplit(bridge.url)
    reader, writer = await asyncio.open_connection(host.hostname, host.port)
    data = json.dumps(body).encode()
    once = f"idempotency-key: {key}\r\n" if key else ""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {API_KEY}\r\nconnection: close\r\n{once}"
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    try:
        return await reader.read(1) if leave else await reader.read()
    finally:
        writer.close()


def is_large(value: object) -> bool:
    """Tell whether a value is a large text of ours, or a small object around one."""
    if isinstance(value, str):
        return len(value) >= LARGE and WORDS in value[:1000]
    if isinstance(value, bytes | bytearray):
        return len(value) >= LARGE and WORDS.encode() in value[:1000]
    return (
        not gc.is_tracked(value) and isinstance(value, msgspec.Struct) and any(map(is_large, gc.get_referents(value)))
    )


def left_over() -> list[object]:
    """Return all that holds something of a request; a thread that is kept has its few words for the model."""
    return [
        held
        for held in gc.get_objects()
        if (isinstance(held, TurnRequest) and held.items != ()) or any(map(is_large, gc.get_referents(held)))
    ]


async def all_freed(bridge: Bridge) -> None:
    """Return once nothing of any request is in memory."""
    bridge.model.requests.clear()
    try:
        # What was told last may still be on its way.
        await until(lambda: not left_over(), within_s=10)
    except TimeoutError:
        held = [f"{type(each).__name__}: {repr(each)[:200]}" for each in left_over()]
        pytest.fail(f"Something is left of a request that is over: {held}")


WELL = answer(message("Well."))
ENDLESS = "Begun"
CASES: dict[str, tuple[str, JsonObject, Reply, int]] = {
    "whole chat": (CHAT, {}, WELL, 200),
    "streamed chat": (CHAT, {"stream": True}, WELL, 200),
    "stored chat": (CHAT, {"store": True}, WELL, 200),
    "several choices": (CHAT, {"n": 2}, WELL, 200),
    "whole response": (RESPONSES, {}, WELL, 200),
    "streamed response": (RESPONSES, {"stream": True}, WELL, 200),
    "stored response": (RESPONSES, {"store": True}, WELL, 200),
    "background response": (RESPONSES, {"store": True, "background": True}, WELL, 200),
    "large instructions": (RESPONSES, {"input": "hi", "instructions": large()}, WELL, 200),
    "large tools": (RESPONSES, {"tools": [{"type": "function", **LOOK, "description": large()}]}, WELL, 200),
    "calls that nobody answers": (
        CHAT,
        {"tools": [{"type": "function", "function": LOOK}]},
        answer(function_call("look", "{}")),
        200,
    ),
    "structured": (CHAT, {"response_format": JSON_WANTED}, answer(message("{}")), 200),
    "repaired in vain": (CHAT, {"response_format": JSON_WANTED}, WELL, 422),
    "cut by a stop sequence": (CHAT, {"stop": "ll"}, WELL, 200),
    "refused": (CHAT, {"temperature": "hot"}, WELL, 400),
    "failed before its first word": (CHAT, {}, error_reply(400, "no"), 400),
    "failed before its first word, streamed": (RESPONSES, {"stream": True}, error_reply(400, "no"), 400),
    "broken off": (CHAT, {}, answer(message("Well.", pieces=["W", Hangup()])), 502),
    "broken off, streamed": (
        CHAT,
        {"stream": True},
        answer(message("Well.", pieces=["W", Pause(seconds=0.2), Hangup()])),
        200,
    ),
}


@pytest.mark.promise("limits.memory")
@pytest.mark.parametrize("case", CASES)
async def test_nothing_of_a_finished_request_is_left(keeping: Bridge, case: str) -> None:
    path, wishes, reply, status = CASES[case]
    keeping.model.respond = lambda _: reply
    told = await send(keeping, path, asked(path, **wishes))
    assert told.startswith(f"HTTP/1.1 {status} ".encode())
    await all_freed(keeping)


@pytest.mark.promise("limits.memory")
async def test_nothing_is_left_of_a_request_that_failed_for_everyone_who_asked(keeping: Bridge) -> None:
    keeping.model.respond = lambda _: error_reply(400, "no")
    told = await send(keeping, CHAT, asked(CHAT), key="once")
    assert told.startswith(b"HTTP/1.1 400 ")
    await all_freed(keeping)


@pytest.mark.promise("limits.memory")
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_nothing_is_left_of_a_request_whose_client_left(keeping: Bridge, path: str) -> None:
    endless = answer(message(ENDLESS, pieces=[ENDLESS, Wait(gate=asyncio.Event())]))
    keeping.model.respond = lambda _: endless
    await send(keeping, path, asked(path, stream=True), leave=True)
    await all_freed(keeping)


@pytest.mark.promise("limits.memory")
async def test_nothing_is_left_of_the_rounds_of_a_conversation(keeping: Bridge) -> None:
    """A turn waits for the output of a call, is resumed, and its thread is then kept for the next question."""
    tools: JsonObject = {"tools": [{"type": "function", "function": LOOK}]}
    call: JsonObject = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}

    def history(rounds: int) -> JsonObject:
        said: list[Json] = [
            {"role": "user", "content": large("in several rounds")},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Seen."},
            {"role": "assistant", "content": "Well."},
            {"role": "user", "content": "And then?"},
        ]
        return {"model": "gpt-5.5", "messages": said[: (1, 3, 5)[rounds]], **tools}

    for number, (reply, served) in enumerate(
        ((answer(function_call("look", "{}", call_id="call_1")), b"fresh"), (WELL, b"parked"), (WELL, b"warm"))
    ):
        keeping.script(reply)
        assert b"x-turnbridge-thread: " + served in await send(keeping, CHAT, history(number))
        await all_freed(keeping)


@pytest.mark.promise("limits.memory")
async def test_a_codex_that_was_killed_is_freed_with_the_request_that_it_ran(
    tmp_path: Path, started_before: Path
) -> None:
    del started_before
    async with running_bridge(tmp_path / "data") as bridge:
        worker = bridge.gateway.pool.workers[0]
        process, connection = weakref.ref(worker.process), weakref.ref(worker.connection)
        pid = worker.process.pid
        del worker
        endless = answer(message(ENDLESS, pieces=[ENDLESS, Wait(gate=asyncio.Event())]))
        bridge.model.respond = lambda _: endless
        asking = asyncio.ensure_future(send(bridge, CHAT, asked(CHAT, stream=True)))
        await until(lambda: bridge.model.active == 1)
        await until(lambda: any(isinstance(each, CodexThread) for each in gc.get_objects()))
        os.kill(pid, signal.SIGKILL)
        bridge.model.respond = lambda _: WELL
        await asking
        del asking
        await all_freed(bridge)
        await until(lambda: process() is None and connection() is None)
