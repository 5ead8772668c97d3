"""Two gateways on one store, and a background response that one of them makes: every reader hears the same."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.api.responses.test_background import PAST, encoder_of, run_of, state_on
from tests.support.frames import parsed
from tests.support.redis_server import RedisServer
from turnbridge.api.responses import background, elsewhere
from turnbridge.api.responses.background import BackgroundRun, BackgroundRuns
from turnbridge.api.responses.elsewhere import MadeElsewhere, Shared
from turnbridge.api.responses.endings import LOST
from turnbridge.api.shared.sse import named_frames
from turnbridge.engine.frame_log import FrameLog, pack
from turnbridge.engine.records import IN_PROGRESS, ResponseRecord
from turnbridge.engine.shared_frames import Follower, Publisher
from turnbridge.engine.sharing import FramesSoFar, SharedChunk, SharedFrames, SharedStateAway
from turnbridge.replicas.redis import RedisTiming, SharedRedis
from turnbridge.replicas.redis_frames import RedisFrames
from turnbridge.replicas.stored_frames import StoredFrames
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.events import MessageStarted, TextDelta, TurnCompleted, TurnEvent, TurnServed, Usage
from turnbridge.turn.items import Part

pytestmark = pytest.mark.anyio

PATIENCE_S = 25
OWNER = "me"
ENDS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True)
class Peers:
    """One of several replicas that tell each other nothing."""

    id: str

    def tell(self, replica: str, message: tuple[str, ...]) -> None:
        """Lose a message, as it may be."""


@dataclass(frozen=True)
class Place:
    """Where two replicas share what they make."""

    store: SqlStore
    redis: SharedRedis | None

    def frames(self, replica: str) -> SharedFrames:
        return StoredFrames(self.store, replica) if self.redis is None else RedisFrames(self.redis)

    def shared(self, replica: str) -> Shared:
        return Shared(peers=Peers(replica), frames=self.frames(replica), store=self.store, alone=lambda: False)

    def runs(self, replica: str) -> BackgroundRuns:
        state = state_on(self.store)
        return BackgroundRuns(state, keepalive_s=None, count=lambda *_: None, shared=self.shared(replica))


@contextlib.asynccontextmanager
async def place_of(kind: str, folder: Path) -> AsyncIterator[Place]:
    """Return where replicas share, in the store alone or beside a Redis."""
    store = await open_store(store_url(folder))
    try:
        if kind == "store":
            yield Place(store, None)
            return
        server = RedisServer(folder)
        async with server.running():
            redis = SharedRedis(server.url, RedisTiming(timeout_s=5))
            yield Place(store, redis)
            await redis.aclose()
    finally:
        await store.aclose()


@pytest.fixture(params=["store", "redis"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Return where two replicas share what they make."""
    async with place_of(request.param, tmp_path) as made:
        yield made


class Halting:
    """A turn that stops halfway until it may go on."""

    linked: ClassVar[dict[str, Part]] = {}

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def events(self) -> AsyncGenerator[Sequence[TurnEvent], None]:
        yield [TurnServed("fresh", "exact")]
        yield [MessageStarted("m", None), TextDelta("m", "one ")]
        await self.may_end.wait()
        yield [TextDelta("m", "two")]
        yield [TurnCompleted(Usage(input=2, output=3))]


async def collected(source: AsyncIterator[bytes]) -> list[tuple[int, str]]:
    """Return the numbers and kinds of a stream's events."""
    async with asyncio.timeout(PATIENCE_S):
        whole = b"".join([piece async for piece in source])
    return [(int(str(event["sequence_number"])), str(event["type"])) for event in parsed(whole)]


async def reading(runs: BackgroundRuns, run: BackgroundRun) -> "asyncio.Task[list[tuple[int, str]]]":
    """Begin to read at another replica, and return once the text has come halfway."""
    record = await runs._state.store.response(OWNER, run.id)
    assert (runs.elsewhere, record) != (None, None)
    halfway = asyncio.Event()

    async def watched() -> AsyncIterator[bytes]:
        assert runs.elsewhere is not None
        assert record is not None
        async for piece in runs.elsewhere.read(record, after=0):
            if b"one " in piece:
                halfway.set()
            yield piece

    task = asyncio.create_task(collected(watched()))
    async with asyncio.timeout(PATIENCE_S):
        await halfway.wait()
    return task


@pytest.mark.promise("state.replicas.fenced", "state.replicas.stream")
async def test_a_maker_that_slept_through_its_lease_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "LEASE_S", 0.0)
    monkeypatch.setattr(background, "GRACE_S", 0.0)
    monkeypatch.setattr(background, "RENEWAL_S", 0.01)
    asleep, awake = place.runs("A"), place.runs("B")
    turn, encoder = Halting(), encoder_of("resp_1")
    run = await asleep.start(run_of(turn, encoder), PAST, encoder)
    here, there = asyncio.create_task(collected(run.log.read())), await reading(awake, run)
    # The first replica renews nothing, as if it were suspended; the second one ends what it made.
    watching = asyncio.create_task(awake.watch())
    theirs = await there
    watching.cancel()
    kept = await place.store.response(OWNER, "resp_1"), await place.store.response_events(OWNER, "resp_1")
    turn.may_end.set()
    told = await here
    assert kept == (await place.store.response(OWNER, "resp_1"), await place.store.response_events(OWNER, "resp_1"))
    assert kept[0] is not None
    assert (kept[0].status, kept[0].body["error"]) == ("failed", {"code": "server_error", "message": LOST})
    for events in (told, theirs):
        assert [number for number, _ in events] == list(range(len(events)))
        assert sum(kind in ENDS for _, kind in events) == 1
        assert [kind for _, kind in events[-2:]] == ["error", "response.failed"]
    assert "response.output_text.delta" in {kind for _, kind in theirs}
    await asyncio.wait_for(run.ending, PATIENCE_S)


async def test_nobody_hears_of_a_response_that_was_deleted_but_its_end(place: Place) -> None:
    making, other = place.runs("A"), place.runs("B")
    turn, encoder = Halting(), encoder_of("resp_1")
    run = await making.start(run_of(turn, encoder), PAST, encoder)
    there = await reading(other, run)
    assert await place.store.delete_response(OWNER, "resp_1")
    assert (await there)[-1][1] == "response.incomplete"
    turn.may_end.set()
    await run.ending
    assert len(other.elsewhere or ()) == 0


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["share", "fail", "answer lost"]), st.just(0)),
        st.tuples(st.sampled_from(["read", "read"]), st.integers(0, 1)),
        st.tuples(st.sampled_from(["empty", "trim"]), st.just(0)),
    ),
    max_size=25,
)
TWICE: list[Step] = [("make", 1), ("share", 0), ("make", 1), ("share", 0)]
FATES = st.sampled_from(["finished", "taken over", "cancelled", "deleted", "taken over, goes on"])


class Unreliable:
    """Shared frames of which some calls fail, before or after they were carried out."""

    interval_s = 0.0

    def __init__(self, frames: SharedFrames) -> None:
        self._frames = frames
        self.next: str | None = None

    async def add(self, response_id: str, *, after: int, chunk: SharedChunk) -> int | None:
        how, self.next = self.next, None
        if how == "fail":
            raise SharedStateAway
        result = await self._frames.add(response_id, after=after, chunk=chunk)
        if how == "answer lost":
            raise SharedStateAway
        return result

    async def after(self, response_id: str, position: int) -> FramesSoFar:
        how, self.next = self.next, None
        if how is not None:
            raise SharedStateAway
        return await self._frames.after(response_id, position)

    async def count(self, response_id: str) -> int:
        return await self._frames.count(response_id)

    async def seal(self, response_id: str) -> FramesSoFar:
        return await self._frames.seal(response_id)

    async def drop(self, response_id: str) -> None:
        await self._frames.drop(response_id)


@dataclass
class Reader:
    """Somebody who reads at another replica."""

    log: FrameLog
    follower: Follower
    told: list[int] = field(default_factory=list)


class Story:
    """A response that one replica makes and two others read; one of them may end it."""

    def __init__(self, place: Place, response_id: str) -> None:
        self._place = place
        self._id = response_id
        self._made = 0
        self._log = FrameLog()
        self._record = ResponseRecord(
            id=response_id,
            owner=OWNER,
            created_at=1,
            status=IN_PROGRESS,
            background=True,
            body={"id": response_id, "status": IN_PROGRESS},
        )
        self._frames = Unreliable(place.frames("A"))
        self._publisher = Publisher(self._log, response_id, self._frames, lambda: False)
        self._other = MadeElsewhere(place.store, place.shared("B"))
        self._readers = [self._reader() for _ in range(2)]

    def _reader(self) -> Reader:
        log = FrameLog()
        end: Callable[..., object] = self._other._rest
        follower = Follower(log, self._id, self._frames, lambda position: end(self._record, position))  # type: ignore[arg-type,return-value]
        return Reader(log, follower)

    async def tell(self, steps: Sequence[Step], fate: str) -> None:
        """Take the steps, let the response end, and check what everybody has heard."""
        store = self._place.store
        await store.add_response(self._record, continues=None, inputs=[], lease_s=-1, maker="A")
        for step in steps:
            await self._take(*step)
            self._check(ended=False)
        await self._end(fate)
        for reader in self._readers:
            await reader.follower.take()
            await self._take("share", 0)
            await reader.follower.take()
            assert await reader.follower.ended()
        self._check(ended=True)
        # What was deleted, or lost with Redis, only those have who had read it before.
        if fate != "deleted" and not {("empty", 0), ("trim", 0)}.intersection(steps):
            later = await self._other._rest(self._record, 0)
            assert [b"".join(reader.log.chunks) for reader in self._readers] == [later, later]

    async def _take(self, what: str, number: int) -> None:
        if what == "make":
            frames = range(self._made, self._made + number)
            self._log.add(named_frames([{"type": "delta", "sequence_number": each} for each in frames]))
            self._made += number
        elif what == "share" and len(self._log.chunks) > self._publisher._taken:
            with contextlib.suppress(SharedStateAway):
                await self._publisher.step()
        elif what == "read":
            await self._readers[number].follower.take()
        elif what == "empty" and self._place.redis is not None:
            await self._place.redis.run(lambda client: client.flushall())
        elif what == "trim" and self._place.redis is not None:
            await self._place.redis.run(
                lambda client: client.xtrim(f"turnbridge:frames:{self._id}", maxlen=1, approximate=False)
            )
        elif what in ("fail", "answer lost"):
            self._frames.next = what

    async def _end(self, fate: str) -> None:
        store, whole = self._place.store, list(self._log.chunks)
        if fate == "finished":
            last = named_frames([{"type": "response.completed", "sequence_number": self._made}])
            done = self._with_status("completed")
            assert await store.finish_response(done, events=await pack([*whole, last]), maker="A")
        elif fate == "cancelled":
            await self._other.cancel(self._record)
        elif fate == "deleted":
            assert await store.delete_response(OWNER, self._id)
        else:
            assert await store.take_over(self._record, "B", 30)
            if fate == "taken over, goes on":
                await self._goes_on()
            failed = self._with_status("failed")
            events = await self._other.stream_so_far(failed)
            if fate == "taken over, goes on":
                await self._goes_on()
            assert await store.finish_response(failed, events=events, maker="B")
        assert not await store.finish_response(self._with_status("completed"), maker="A")

    async def _goes_on(self) -> None:
        """Let the former maker write, and one of the readers read."""
        await self._take("make", 2)
        await self._take("share", 0)
        await self._take("read", 0)
        assert not await self._place.store.finish_response(self._with_status("completed"), maker="A")

    def _with_status(self, status: str) -> ResponseRecord:
        return ResponseRecord(
            id=self._id,
            owner=OWNER,
            created_at=1,
            status=status,
            background=True,
            body={"id": self._id, "status": status},
        )

    def _check(self, *, ended: bool) -> None:
        for reader in self._readers:
            events = parsed(b"".join(reader.log.chunks))
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            ends = [event["type"] for event in events if event["type"] in ENDS]
            assert len(ends) == ended
            assert reader.log.ended is ended
            assert not ended or events[-1]["type"] == ends[0]


@pytest.mark.promise("state.replicas.stream")
@pytest.mark.parametrize("kind", ["store", "redis"])
def test_any_order_of_steps_gives_readers_the_same_events_and_one_end(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(elsewhere, "CANCEL_WAIT_S", 0.0)
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        place = runner.run(stack.enter_async_context(place_of(kind, tmp_path_factory.mktemp("story"))))
        names = iter(f"resp_{number}" for number in range(10_000))

        @settings(max_examples=60)
        @given(steps=STEPS, fate=FATES)
        @example(steps=[*TWICE, ("trim", 0), ("read", 0)], fate="finished")
        @example(steps=[*TWICE, ("trim", 0), ("read", 0)], fate="taken over")
        @example(steps=[*TWICE, ("read", 0), ("empty", 0), *TWICE, ("read", 1)], fate="finished")
        def told(steps: list[Step], fate: str) -> None:
            runner.run(Story(place, next(names)).tell(steps, fate))

        try:
            told()
        finally:
            runner.run(stack.aclose())
