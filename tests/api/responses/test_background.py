"""The stream of a response that is made in the background, as its readers get it."""

import asyncio
import contextlib
import json
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from tests.api.responses.decoded import decode
from tests.support.frames import parsed
from tests.web.asgi_driver import Exchange
from turnbridge.api.generation import State
from turnbridge.api.responses import background
from turnbridge.api.responses.background import BackgroundRun, BackgroundRuns
from turnbridge.api.responses.decode import decode_items, encode_items
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.api.responses.endings import LOST, last_frames, lost
from turnbridge.api.responses.state import Past
from turnbridge.api.shared import sse
from turnbridge.api.shared.sse import named_frames
from turnbridge.engine.frame_log import FrameLog
from turnbridge.engine.kept_threads import ParkedTurns
from turnbridge.engine.ports import Model
from turnbridge.engine.records import (
    RUNNING,
    ResponseRecord,
    Store,
)
from turnbridge.engine.run import Run
from turnbridge.engine.turns import TurnRun
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.errors import BackendUnavailable
from turnbridge.turn.events import TurnCompleted, TurnEvent, TurnServed, Usage
from turnbridge.turn.items import JsonObject, Part
from turnbridge.web.answer import Followed
from turnbridge.web.middleware.observability import CONTEXT_KEY, RequestContext

pytestmark = pytest.mark.anyio

MODEL = Model(
    id="gpt-5.5",
    display_name="GPT-5.5",
    description="",
    efforts=("low", "medium"),
    default_effort="medium",
    context_window=272_000,
    max_context_window=272_000,
    modalities=("text", "image"),
    service_tiers=(),
    hidden=False,
    is_default=True,
)
PAST = Past(owner="me", keep=True, background=True)
RECORD = ResponseRecord(
    id="resp_1", owner="me", created_at=1, status="queued", background=True, body={"id": "resp_1", "status": "queued"}
)


def state_on(store: Store | None) -> State:
    return State(store, ParkedTurns(ttl_s=1), decode=decode_items, encode=encode_items)


def event(number: int) -> JsonObject:
    # Blank lines inside of a text must not be taken for the end of a frame.
    return {"type": "response.output_text.delta", "sequence_number": number, "delta": "a\n\nb"}


def frames(*numbers: int) -> bytes:
    return b"".join(named_frames([event(number)]) for number in numbers)


@pytest.fixture
def encoder() -> ResponseEncoder:
    """Return the encoder of a response of which nothing has been told."""
    return encoder_of("resp_1")


@pytest.fixture
def log() -> FrameLog:
    """Return a stream of which nothing has been written."""
    return FrameLog()


def encoder_of(response_id: str) -> ResponseEncoder:
    request = decode({"model": "gpt-5.5", "input": "Hi", "background": True})
    return ResponseEncoder(request, MODEL, response_id=response_id, created_at=1, now=lambda: 1, stored=True)


def run_of(turn: object, encoder: ResponseEncoder) -> Run:
    return Run([cast("TurnRun", turn)], encoder, contextlib.nullcontext(0.0))


async def collected(source: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(25):
        return b"".join([piece async for piece in source])


async def test_a_stream_that_was_lost_still_has_its_end() -> None:
    body: JsonObject = {"id": "resp_1", "status": "cancelled"}
    record = ResponseRecord(id="resp_1", owner="me", created_at=1, status="cancelled", background=True, body=body)
    last: JsonObject = {"type": "response.incomplete", "sequence_number": 8, "response": body}
    assert last_frames(record, 8) == named_frames([last])


async def test_a_lost_stream_of_a_response_that_failed_says_why() -> None:
    failed = lost(RECORD)
    error: JsonObject = {"code": "server_error", "message": LOST, "param": None}
    ending: list[JsonObject] = [
        {"type": "error", "sequence_number": 8, **error, "error": {"type": "server_error", **error}},
        {"type": "response.failed", "sequence_number": 9, "response": failed.body},
    ]
    frames = last_frames(failed, 8)
    assert [json.loads(frame.split(b"data: ")[1]) for frame in frames.split(b"\n\n")[:-1]] == ending


async def test_a_response_that_was_lost_has_failed_and_says_why() -> None:
    failed = lost(RECORD)
    assert (RECORD.status in RUNNING, failed.status in RUNNING, failed.status) == (True, False, "failed")
    assert failed.body == {"id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": LOST}}


async def never() -> AsyncGenerator[Sequence[TurnEvent], None]:
    """Yield nothing, and never end."""
    await asyncio.Event().wait()
    yield []


class Idle:
    """Runs turns in which nothing happens."""

    linked: ClassVar[dict[str, Part]] = {}

    def events(self) -> AsyncGenerator[Sequence[TurnEvent], None]:
        return never()


@pytest.mark.parametrize("begun", [False, True], ids=["before its first step", "later"])
@pytest.mark.parametrize(("how", "status"), [("cancel", "cancelled"), ("aclose", "failed")])
async def test_a_run_that_is_ended_at_any_moment_is_kept_so(
    tmp_path: Path, encoder: ResponseEncoder, begun: bool, how: str, status: str
) -> None:
    store = await open_store(store_url(tmp_path))
    state = state_on(store)
    runs = BackgroundRuns(state, keepalive_s=None, count=lambda *_: None)
    started = await runs.start(run_of(Idle(), encoder), PAST, encoder)
    if begun:
        await asyncio.sleep(0)
    await (runs.cancel(started) if how == "cancel" else runs.aclose())
    kept = await store.response("me", "resp_1")
    assert (started.log.ended, runs.find("me", "resp_1"), kept and kept.status) == (True, None, status)
    await store.aclose()


class Answering:
    """Runs turns that are answered at once or fail; without a fidelity, before they begin."""

    linked: ClassVar[dict[str, Part]] = {}

    def __init__(self, error: Exception | None = None, *, fidelity: str | None = "exact") -> None:
        self._error = error
        self._fidelity = fidelity

    async def events(self) -> AsyncGenerator[Sequence[TurnEvent], None]:
        if self._fidelity is not None:
            yield [TurnServed("fresh", self._fidelity)]
        if self._error is not None:
            raise self._error
        yield [TurnCompleted(Usage(input=2, output=3))]


class Counted:
    """Runs in the background, on a store that takes its time, with all that they tell."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keeping, self.may_keep = asyncio.Event(), asyncio.Event()
        self.kept: list[str] = []
        self.turns: list[tuple[Usage, str, str | None, object]] = []
        finish = store.finish_response

        async def finish_response(record: ResponseRecord, **ending: Any) -> bool:
            self.keeping.set()
            await self.may_keep.wait()
            self.kept.append(record.status)
            return await finish(record, **ending)

        monkeypatch.setattr(store, "finish_response", finish_response)
        state = state_on(store)
        self.runs = BackgroundRuns(state, keepalive_s=None, count=lambda *turn: self.turns.append(turn))

    async def begin(self, runner: object, encoder: ResponseEncoder) -> BackgroundRun:
        started = await self.runs.start(run_of(runner, encoder), PAST, encoder)
        async with asyncio.timeout(25):
            await self.keeping.wait()
        return started


def endings(run: BackgroundRun) -> list[str]:
    """Return the events of a stream after which nothing may come."""
    told = [str(event["type"]).removeprefix("response.") for event in parsed(b"".join(run.log.chunks))]
    return [name for name in told if name in ("completed", "incomplete", "failed", "error")]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("how", ["cancel", "aclose"])
async def test_a_run_that_is_ended_while_its_end_is_being_kept_has_one_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: ResponseEncoder, how: str, times: int
) -> None:
    store = await open_store(store_url(tmp_path))
    counted = Counted(store, monkeypatch)
    with capture_logs() as logged:
        started = await counted.begin(Answering(), encoder)
        stopping = [
            asyncio.ensure_future(counted.runs.cancel(started) if how == "cancel" else counted.runs.aclose())
            for _ in range(times)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        counted.may_keep.set()
        told = await asyncio.gather(*stopping)
    assert [response["status"] for response in told if response] == ["completed"] * (times if how == "cancel" else 0)
    assert (endings(started), counted.kept) == (["completed"], ["completed"])
    assert counted.turns == [(Usage(input=2, output=3), "fresh", None, None)]
    assert [(line["event"], line["status"], line["served_by"]) for line in logged] == [
        ("background_response", "completed", "fresh")
    ]
    await store.aclose()


async def test_nobody_hears_of_an_end_that_is_not_kept_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: ResponseEncoder
) -> None:
    store = await open_store(store_url(tmp_path))
    counted = Counted(store, monkeypatch)
    started = await counted.begin(Answering(), encoder)
    asking = asyncio.ensure_future(counted.runs.find_unkept("me", "resp_1"))
    reading = asyncio.ensure_future(collected(started.log.read()))
    for _ in range(5):
        await asyncio.sleep(0)
    early = endings(started), asking.done(), reading.done()
    counted.may_keep.set()
    told, found = await reading, await asking
    assert early == ([], False, False)
    kept, events = await store.response("me", "resp_1"), await store.response_events("me", "resp_1")
    assert (endings(started), found, kept and kept.status) == (["completed"], None, "completed")
    assert (told, zlib.decompress(events or b"")) == (b"".join(started.log.chunks),) * 2
    await store.aclose()


@pytest.mark.parametrize(
    ("error", "fidelity", "events", "served"),
    [
        (BackendUnavailable("down"), None, ["background_response"], None),
        (BackendUnavailable("down"), "exact", ["background_response"], "fresh"),
        (ZeroDivisionError(), "exact", ["unexpected_fault", "background_response"], "fresh"),
    ],
    ids=["before a turn began", "in a turn", "by a defect"],
)
async def test_a_run_that_fails_is_counted_only_if_its_turn_began(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoder: ResponseEncoder,
    error: Exception,
    fidelity: str | None,
    events: list[str],
    served: str | None,
) -> None:
    store = await open_store(store_url(tmp_path))
    counted = Counted(store, monkeypatch)
    counted.may_keep.set()
    with capture_logs() as logged:
        started = await counted.begin(Answering(error, fidelity=fidelity), encoder)
        await counted.runs.aclose()
    assert (endings(started), counted.kept) == (["error", "failed"], ["failed"])
    assert [by for _, by, *_ in counted.turns] == ([] if served is None else [served])
    assert ([line["event"] for line in logged], logged[-1]["served_by"]) == (events, served)
    await store.aclose()


async def test_a_clock_that_is_set_back_makes_no_run_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: ResponseEncoder
) -> None:
    store = await open_store(store_url(tmp_path))
    counted = Counted(store, monkeypatch)
    with capture_logs() as logged:
        started = await counted.begin(Answering(), encoder)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        counted.may_keep.set()
        await asyncio.wait((started.ending,))
    assert [line["total_s"] >= 0 for line in logged] == [True]
    await store.aclose()


async def test_a_store_that_is_down_is_told_of_once_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(store_url(tmp_path))
    runs = BackgroundRuns(state_on(store), keepalive_s=None, count=lambda *_: None)
    outcomes = iter(["down", "down", "", "down", "locked", "locked"])
    all_seen = asyncio.Event()

    async def lost_responses() -> list[ResponseRecord]:
        outcome = next(outcomes, None)
        if outcome is None:
            all_seen.set()
        if outcome:
            raise BackendUnavailable(outcome)
        return []

    monkeypatch.setattr(store, "lost_responses", lost_responses)
    monkeypatch.setattr(background, "RENEWAL_S", 0)
    with capture_logs() as logged:
        watching = asyncio.ensure_future(runs.watch())
        await all_seen.wait()
        watching.cancel()
        await asyncio.wait((watching,))
    assert [line["reason"] for line in logged] == ["down", "down", "locked"]
    await store.aclose()


async def ended_elsewhere(directory: Path, how: str) -> ResponseRecord:
    """End the response as another gateway does."""
    store = await open_store(store_url(directory))
    running = await store.response("me", "resp_1")
    assert running is not None
    if how == "cancelled":
        ended = replace(running, status="cancelled", body={**running.body, "status": "cancelled"})
        assert await store.finish_response(ended)
    else:
        ended = lost(running)
        assert await store.extend_leases([running.id], -1)
        assert await store.take_over(running, "other", 30)
        assert await store.finish_response(ended, maker="other")
    await store.aclose()
    return ended


@pytest.mark.promise("state.background.one-end")
@pytest.mark.parametrize(("how", "told"), [("cancelled", ["incomplete"]), ("lost", ["error", "failed"])])
async def test_a_run_that_somebody_else_has_ended_is_told_as_they_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: ResponseEncoder, how: str, told: list[str]
) -> None:
    store = await open_store(store_url(tmp_path))
    counted = Counted(store, monkeypatch)
    started = await counted.begin(Answering(), encoder)
    reading = asyncio.ensure_future(collected(started.log.read()))
    ended = await ended_elsewhere(tmp_path, how)
    counted.may_keep.set()
    await reading
    assert endings(started) == told
    assert (await counted.runs.cancel(started), await store.response("me", "resp_1")) == (ended.body, ended)
    numbers = [event["sequence_number"] for event in parsed(b"".join(started.log.chunks))]
    assert numbers == list(range(len(numbers)))
    await store.aclose()


class Outage:
    """A store that keeps the end of no response until it is over."""

    def __init__(self, store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.over = False
        finish = store.finish_response

        async def finish_response(record: ResponseRecord, **ending: Any) -> bool:
            if not self.over:
                raise BackendUnavailable("down", code="store_unavailable")
            return await finish(record, **ending)

        monkeypatch.setattr(store, "finish_response", finish_response)
        monkeypatch.setattr(background, "KEEP_RETRY_S", 0.01)
        self.runs = BackgroundRuns(state_on(store), keepalive_s=None, count=lambda *_: None)

    async def begin(self, encoder: ResponseEncoder) -> BackgroundRun:
        started = await self.runs.start(run_of(Answering(), encoder), PAST, encoder)
        async with asyncio.timeout(25):
            await started.tried.wait()
        return started


@pytest.mark.promise("state.background.one-end")
@pytest.mark.parametrize(
    ("elsewhere", "told", "status"),
    [(False, ["completed"], "completed"), (True, ["error", "failed"], "failed")],
    ids=["nobody else ends it", "another gateway ends it"],
)
async def test_an_end_is_told_once_it_is_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoder: ResponseEncoder,
    elsewhere: bool,
    told: list[str],
    status: str,
) -> None:
    store = await open_store(store_url(tmp_path))
    outage = Outage(store, monkeypatch)
    with capture_logs() as logged:
        started = await outage.begin(encoder)
        for asking in (outage.runs.find_unkept("me", "resp_1"), outage.runs.cancel(started)):
            with pytest.raises(BackendUnavailable) as caught:
                await asking
            assert caught.value.error_code == "store_unavailable"
        assert endings(started) == []
        if elsewhere:
            await ended_elsewhere(tmp_path, "lost")
        outage.over = True
        await asyncio.wait((started.ending,))
    kept = await store.response("me", "resp_1")
    assert (endings(started), started.response["status"], kept and kept.status) == (told, status, status)
    assert await outage.runs.find_unkept("me", "resp_1") is None
    assert [line["event"] for line in logged] == ["response_waits_for_store", "background_response"]
    await store.aclose()


async def test_no_more_responses_are_begun_while_too_much_waits_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: ResponseEncoder
) -> None:
    monkeypatch.setattr(background, "MOST_WAITING_BYTES", 100)
    store = await open_store(store_url(tmp_path))
    outage = Outage(store, monkeypatch)
    started = await outage.begin(encoder)
    other = encoder_of("resp_2")
    with pytest.raises(BackendUnavailable, match="wait for the store"):
        await outage.runs.start(run_of(Answering(), other), PAST, other)
    outage.over = True
    await asyncio.wait((started.ending,))
    second = await outage.runs.start(run_of(Answering(), other), PAST, other)
    await asyncio.wait((second.ending,))
    assert endings(second) == ["completed"]
    await store.aclose()


async def test_a_gateway_that_ends_before_its_store_is_back_says_what_it_could_not_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: ResponseEncoder
) -> None:
    store = await open_store(store_url(tmp_path))
    outage = Outage(store, monkeypatch)
    with capture_logs() as logged:
        await outage.begin(encoder)
        async with asyncio.timeout(25):
            await outage.runs.aclose()
    assert [line["event"] for line in logged if line["log_level"] == "error"] == ["response_not_kept"]
    await store.aclose()


async def test_a_response_of_another_gateway_is_lost_only_after_a_while_without_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(store_url(tmp_path))
    runs = BackgroundRuns(state_on(store), keepalive_s=None, count=lambda *_: None)
    await store.add_response(RECORD, continues=None, inputs=[], lease_s=-1)
    looks = 0
    up_and_down, stays_up = asyncio.Event(), asyncio.Event()
    lost_responses = store.lost_responses

    async def looked() -> Sequence[ResponseRecord]:
        nonlocal looks
        looks += 1
        if looks == 20:
            up_and_down.set()
            await stays_up.wait()
        elif looks % 2 and looks < 20:
            raise BackendUnavailable("down")
        return await lost_responses()

    monkeypatch.setattr(store, "lost_responses", looked)
    monkeypatch.setattr(background, "RENEWAL_S", 0.01)
    monkeypatch.setattr(background, "GRACE_S", 0.015)
    watching = asyncio.ensure_future(runs.watch())
    async with asyncio.timeout(25):
        await up_and_down.wait()
        before = await store.response("me", "resp_1")
        stays_up.set()
        while (after := await store.response("me", "resp_1")) == RECORD:
            pass
    watching.cancel()
    await asyncio.wait((watching,))
    assert (before, after) == (RECORD, lost(RECORD))
    await store.aclose()


def streamed(
    source: AsyncGenerator[bytes, None],
    *,
    keepalive_s: float | None = None,
    headers: Mapping[str, str] | None = None,
    query: bytes = b"",
) -> Exchange:
    """Return a request that is answered with frames."""
    named = {"x-turnbridge-model": "gpt-5.5", "content-type": sse.CONTENT_TYPE}
    answer = Followed(source, headers=named, keepalive=sse.comment("keepalive"), keepalive_s=keepalive_s)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        context = RequestContext(request_id="r", method="GET", route="/", clock=lambda: 0.0, started_at=0.0)
        await answer({**scope, CONTEXT_KEY: context}, receive, send)

    return Exchange(app, "GET", "/", headers=headers, query=query)


async def test_frames_are_sent_as_they_come(log: FrameLog) -> None:
    log.add(frames(0))
    async with streamed(log.read()) as exchange:
        status, headers = await exchange.begin()
        assert (status, dict(headers)["x-turnbridge-model"]) == (200, "gpt-5.5")
        assert await exchange.chunk() == frames(0)
        log.add(frames(1))
        assert await exchange.chunk() == frames(1)
        log.end()
        assert [await exchange.chunk(), await exchange.chunk()] == [b"", None]


async def test_a_silent_stream_says_that_it_is_alive(log: FrameLog) -> None:
    async with streamed(log.read(), keepalive_s=0.01) as exchange:
        await exchange.begin()
        assert await exchange.chunk() == b": keepalive\n\n"
        log.add(frames(0))
        while (told := await exchange.chunk()) == b": keepalive\n\n":
            pass
        assert told == frames(0)
        exchange.leave()


@pytest.mark.parametrize(
    ("headers", "query"), [({"x-no-keepalive": "1"}, b""), ({}, b"no_keepalive=1")], ids=["header", "query"]
)
async def test_a_reader_that_wants_no_signs_of_life_gets_none(
    log: FrameLog, headers: dict[str, str], query: bytes
) -> None:
    async with (
        streamed(log.read(), keepalive_s=0.01) as usual,
        streamed(log.read(), keepalive_s=0.01, headers=headers, query=query) as silent,
    ):
        await silent.begin()
        await usual.begin()
        for _ in range(3):
            assert await usual.chunk() == b": keepalive\n\n"
        log.add(frames(0))
        assert await silent.chunk() == frames(0)
        usual.leave()
        silent.leave()


async def test_a_reader_that_leaves_changes_nothing_for_the_others(log: FrameLog) -> None:
    async with streamed(log.read()) as exchange:
        await exchange.begin()
        exchange.leave()
    log.add(frames(0))
    log.end()
    assert await collected(log.read()) == frames(0)


async def test_a_reader_that_fails_is_heard() -> None:
    async def broken() -> AsyncGenerator[bytes, None]:
        yield b"begun"
        raise ValueError("broken")

    async def read() -> None:
        async with streamed(broken()) as exchange:
            await exchange.begin()
            assert await exchange.chunk() == b"begun"

    with pytest.raises(ValueError, match="broken"):
        await read()
