"""Turns on app-server: on the real one, and on one that repeats the real one's words with a fault among them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from tests.codex.process.idle_worker import idle_worker
from tests.codex.process.real_codex import (
    ASKED,
    RECORDING,
    SCRIPT,
    record,
    running_codex,
)
from tests.support.waiting import until
from turnbridge.codex.process.backend import AccountBackend
from turnbridge.codex.process.connection import Connection
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.worker import Worker
from turnbridge.engine.ports import Model
from turnbridge.scripted_model.replies import Wait, answer, message
from turnbridge.turn.errors import BackendUnavailable, InternalFault, InvalidRequest
from turnbridge.turn.events import (
    MessageDone,
    MessageStarted,
    ReasoningDone,
    ReasoningStarted,
    SummaryDelta,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    Usage,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = pytest.mark.anyio

PATIENCE_S = 20
"""After this a test has failed."""

FIRST_TURN: list[TurnEvent] = [
    ReasoningStarted("rs_1_0"),
    SummaryDelta("rs_1_0", 0, "Think."),
    SummaryDelta("rs_1_0", 1, "Again."),
    ReasoningDone("rs_1_0", ("Think.", "Again."), (), "secret"),
    MessageStarted("msg_1_1", "commentary"),
    TextDelta("msg_1_1", "I look."),
    MessageDone("msg_1_1", "commentary", "I look."),
    MessageStarted("msg_1_2", "final_answer"),
    TextDelta("msg_1_2", "Grüß"),
    TextDelta("msg_1_2", " Gott"),
    MessageDone("msg_1_2", "final_answer", "Grüß Gott"),
    TurnCompleted(Usage(input=10, cached=2, output=5, reasoning=1)),
]


# --- The real one ---


@pytest.mark.real
async def test_the_recording_has_the_shapes_of_the_real_codex(tmp_path: Path) -> None:
    """If this fails, the binary's protocol has changed: record again, and see what the other tests say."""
    recorded = [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]
    assert shapes(await record(tmp_path)) == shapes(recorded)


def shapes(lines: list[JsonObject]) -> set[str]:
    """Return what lines look like when only names and types are looked at."""
    return {f"{line.get('method')} {shape(line)}" for line in lines}


def shape(value: Json) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{name}: {shape(inner)}" for name, inner in sorted(value.items())) + "}"
        case list():
            return "[" + ", ".join(sorted({shape(inner) for inner in value})) + "]"
        case _:
            return type(value).__name__


@pytest.mark.real
async def test_a_turn_on_the_real_codex_has_every_event_in_order(tmp_path: Path) -> None:
    async with running_codex(tmp_path, *SCRIPT) as codex:
        thread = await codex.backend.open(ASKED)
        assert [event async for batch in thread.run() for event in batch] == FIRST_TURN
        thread.close()


@pytest.mark.real
async def test_closing_a_conversation_drops_the_connection_to_the_provider(tmp_path: Path) -> None:
    held = answer(message("ab", pieces=["a", Wait(gate=asyncio.Event()), "b"]))
    async with asyncio.timeout(PATIENCE_S), running_codex(tmp_path, held) as codex:
        thread = await codex.backend.open(ASKED)
        async with aclosing(thread.run()) as batches:
            assert [*await anext(batches)][-1] == TextDelta("msg_1_0", "a")
            assert (codex.model.active, codex.model.dropped) == (1, 0)
            thread.close()
            await codex.model.until(lambda model: model.active == 0)
        assert codex.model.dropped == 1


@pytest.mark.real
async def test_a_turn_that_is_left_before_codex_has_confirmed_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    cast = Connection.cast

    def overheard(connection: Connection, method: str, params: JsonObject) -> None:
        cast(connection, method, params)
        if method == "turn/interrupt":
            interrupted.set_result(connection)

    monkeypatch.setattr(Connection, "cast", overheard)
    held = answer(message("ab", pieces=["a", Wait(gate=asyncio.Event()), "b"]))
    async with asyncio.timeout(PATIENCE_S), running_codex(tmp_path, held) as codex:
        thread = await codex.backend.open(ASKED)
        first = asyncio.ensure_future(anext(thread.run()))
        await asyncio.sleep(0)  # `turn/start` is written, and nothing has been read since.
        first.cancel()
        thread.close()
        connection = await interrupted
        await no_active_turn(connection)
        await codex.model.until(lambda model: model.active == 0)


async def no_active_turn(connection: Connection) -> None:
    """Wait until no turn runs in an app-server, as it says itself."""
    while await active_turns(connection):  # noqa: ASYNC110 - only Codex knows.
        await asyncio.sleep(0.01)


async def active_turns(connection: Connection) -> int:
    told = await connection.call("server/diagnostics", {}, dict[str, list[dict[str, object]] | dict[str, object]])
    gauges = [gauge for gauge in told["gauges"] if isinstance(gauge, dict)]
    (active,) = (gauge["value"] for gauge in gauges if gauge["name"] == "core.turns.active")
    assert isinstance(active, int)
    return active


# --- One that repeats its words ---


class Replay:
    """An app-server that answers as the real one did in its first recorded turn, as far as it is let."""

    def __init__(self) -> None:
        lines = [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]
        last = next(n for n, line in enumerate(lines) if line.get("method") == "turn/completed")
        started, injected, begun = (line for line in lines[:last] if "result" in line)
        self.answers: dict[str, JsonObject] = {
            "thread/start": started,
            "thread/inject_items": injected,
            "turn/start": begun,
            "server/diagnostics": {"result": {}},
        }
        told = (line for line in lines[: last + 1] if "method" in line)
        self.turn: list[JsonObject] = [line for line in told if line["params"].get("turnId") != "auto-compact-0"]
        self.written: list[JsonObject] = []
        self.connection = Connection(self._write)

    def says(self, *lines: JsonObject) -> None:
        self.connection.receive(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def _write(self, data: bytes) -> None:
        request: JsonObject = json.loads(data)
        self.written.append(request)
        if recorded := self.answers.get(str(request["method"])):
            asyncio.get_running_loop().call_soon(self.says, {**recorded, "id": request["id"]})

    def id_of(self, method: str) -> Json:
        """Return the id of the last call of a method."""
        return [line["id"] for line in self.written if line["method"] == method][-1]

    @property
    def interrupts(self) -> list[Json]:
        return [line["params"] for line in self.written if line["method"] == "turn/interrupt"]

    @property
    def turn_ids(self) -> Json:
        """Return what an interruption of the recorded turn has to name."""
        ended = self.turn[-1]["params"]
        assert isinstance(ended, dict)
        assert isinstance(ended["turn"], dict)
        return {"threadId": ended["threadId"], "turnId": ended["turn"]["id"]}


@asynccontextmanager
async def pool_of(codex: Replay, directory: Path, *models: Model, direct_tools: bool = True) -> AsyncIterator[Pool]:
    worker = await idle_worker(directory, connection=codex.connection, direct_tools=direct_tools)
    worker.models = models

    async def start() -> Worker:
        return worker

    pool = Pool(start, login_state=lambda: None, login_help="")
    running = asyncio.create_task(pool.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield pool
    finally:
        running.cancel()
        await asyncio.wait([running])


@asynccontextmanager
async def replayed_by(codex: Replay, directory: Path) -> AsyncIterator[AccountBackend]:
    async with pool_of(codex, directory) as pool:
        yield AccountBackend(pool)


async def rounds_to_start() -> None:
    """Let a turn be started: it is asked for, answered, and known by its answer."""
    for _ in range(3):
        await asyncio.sleep(0)


async def events_of(codex: Replay, directory: Path, *lines: JsonObject) -> list[TurnEvent]:
    """Return what a turn reports during which Codex says these lines; it is then given up."""
    async with replayed_by(codex, directory) as backend:
        thread = await backend.open(ASKED)
        turn = thread.run()
        first = asyncio.ensure_future(anext(turn))
        await rounds_to_start()
        codex.says(*lines)
        events = [*await first]
        async for batch in turn:
            events += batch
        thread.close()
    return events


async def test_a_finished_turn_is_not_interrupted(tmp_path: Path) -> None:
    codex = Replay()
    assert await events_of(codex, tmp_path, *codex.turn) == FIRST_TURN
    assert codex.interrupts == []


async def test_a_notification_of_another_shape_fails_the_turn_and_interrupts_it(tmp_path: Path) -> None:
    codex = Replay()
    broken: JsonObject = {"method": "item/agentMessage/delta", "params": {"threadId": "any", "delta": None}}
    *said, failed = await events_of(codex, tmp_path, *codex.turn[:-3], broken)
    assert said == FIRST_TURN[: len(said)]
    assert isinstance(failed, TurnFailed)
    assert isinstance(failed.error, InternalFault)
    assert codex.interrupts == [codex.turn_ids]


async def test_a_turn_that_codex_refuses_fails_with_its_words(tmp_path: Path) -> None:
    codex = Replay()
    codex.answers["turn/start"] = {"error": {"code": -32600, "message": "thread not found"}}
    (failed,) = await events_of(codex, tmp_path)
    assert isinstance(failed, TurnFailed)
    assert failed.error.message == "thread not found"
    assert codex.interrupts == []


async def test_a_turn_whose_codex_dies_fails_after_what_was_said(tmp_path: Path) -> None:
    codex = Replay()
    died = BackendUnavailable("Codex ended")
    async with replayed_by(codex, tmp_path) as backend:
        thread = await backend.open(ASKED)
        turn = thread.run()
        first = asyncio.ensure_future(anext(turn))
        await rounds_to_start()
        codex.says(*codex.turn[:4])
        codex.connection.end(died)
        assert [*await first, *await anext(turn)] == [*FIRST_TURN[:4], TurnFailed(died)]
        thread.close()
    assert codex.interrupts == []


async def test_a_turn_that_is_left_is_interrupted_as_soon_as_its_name_is_known(tmp_path: Path) -> None:
    codex = Replay()
    answered = codex.answers.pop("turn/start")
    async with replayed_by(codex, tmp_path) as backend:
        thread = await backend.open(ASKED)
        first = asyncio.ensure_future(anext(thread.run()))
        await asyncio.sleep(0)
        first.cancel()
        thread.close()
        assert codex.interrupts == []
        codex.says({**answered, "id": codex.id_of("turn/start")})
        await asyncio.sleep(0)
        assert codex.interrupts == [codex.turn_ids]


async def test_a_thread_that_is_given_up_is_released_once(tmp_path: Path) -> None:
    codex = Replay()
    async with replayed_by(codex, tmp_path) as backend:
        thread = await backend.open(ASKED)
        assert "thread/unsubscribe" not in [line["method"] for line in codex.written]
        thread.close()
        thread.close()
        await until(lambda: codex.written[-1]["method"] == "thread/unsubscribe")
        released = [line["params"] for line in codex.written if line["method"] == "thread/unsubscribe"]
    ids = codex.turn_ids
    assert isinstance(ids, dict)
    assert released == [{"threadId": ids["threadId"]}]


# --- Two tool modes ---


async def test_requests_that_are_refused_side_by_side_are_each_tried_in_the_models_own_tool_mode(
    tmp_path: Path,
) -> None:
    scripting = Model(
        id=ASKED.spec.model,
        display_name="",
        description="",
        efforts=(),
        default_effort=None,
        context_window=None,
        max_context_window=None,
        modalities=("text",),
        service_tiers=(),
        hidden=False,
        is_default=True,
        scripts_tools=True,
    )
    direct, native = Replay(), Replay()
    refusal = InvalidRequest("Not with these tools.")
    both_opened = asyncio.Barrier(2)

    async def tries(backend: AccountBackend) -> list[bool]:
        """Return what becomes of a request that is refused in both modes."""
        first = await backend.open(ASKED)
        first.close()
        await both_opened.wait()
        again = [await backend.serves_otherwise(ASKED, first, refusal)]
        await both_opened.wait()
        second = await backend.open(ASKED)
        second.close()
        return [*again, await backend.serves_otherwise(ASKED, second, refusal)]

    async with (
        pool_of(direct, tmp_path, scripting) as pool,
        pool_of(native, tmp_path, direct_tools=False) as native_pool,
    ):
        backend = AccountBackend(pool, native=native_pool)
        outcomes = await asyncio.gather(*[tries(backend) for _ in range(2)])
    assert outcomes == [[True, False]] * 2
    assert [threads(codex) for codex in (direct, native)] == [2, 2]


def threads(codex: Replay) -> int:
    """Return how many threads were started for requests."""
    return sum(line["method"] == "thread/inject_items" for line in codex.written)
