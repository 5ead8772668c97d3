"""How an answer leaves: headers with the first output or after a while, frames as they come, the end with the last."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from itertools import pairwise
from typing import cast

import pytest
from starlette.types import Message as AsgiMessage

from tests.api.responses import decoded as decode
from tests.api.responses.test_encode import MODEL
from tests.support.passing_time import PassingTime, on_a_loop_of_its_own
from tests.support.waiting import until
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.engine.run import Run
from turnbridge.engine.turns import TurnRun
from turnbridge.turn.errors import UpstreamFailed
from turnbridge.turn.events import (
    MessageDone,
    MessageStarted,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnServed,
    Usage,
)
from turnbridge.web.answer import Answer, Timing
from turnbridge.web.middleware.observability import CONTEXT_KEY, RequestContext

pytestmark = pytest.mark.anyio

DECODED = decode.decode({"model": "m", "input": "Hi", "stream": True})
NEVER_S = 60.0
HELD, PROMPT = Timing(hold_s=NEVER_S, keepalive_s=None, whole_s=NEVER_S), Timing(hold_s=0, keepalive_s=None, whole_s=9)

STARTED: list[TurnEvent] = [MessageStarted("m1", None)]
FIRST: list[TurnEvent] = [TextDelta("m1", "Hel")]
REST: list[TurnEvent] = [TextDelta("m1", "lo"), MessageDone("m1", None, "Hello")]
END: list[TurnEvent] = [TurnCompleted(Usage())]
FAILED: list[TurnEvent] = [TurnFailed(UpstreamFailed("The provider broke."))]

FIDELITY = b"x-turnbridge-fidelity"


class Turn:
    """A turn that says what it is told to, when it is told to."""

    retrying = heard = False

    def __init__(self) -> None:
        self._batches: asyncio.Queue[Sequence[TurnEvent]] = asyncio.Queue()

    def says(self, *batches: Sequence[TurnEvent]) -> None:
        for batch in batches:
            self._batches.put_nowait(batch)

    async def events(self) -> AsyncGenerator[Sequence[TurnEvent], None]:
        while True:
            batch = await self._batches.get()
            yield batch
            if isinstance(batch[-1], TurnCompleted | TurnFailed):
                return


def run_of(*turns: object, at_once: int = 1) -> Run:
    encoder = ResponseEncoder(DECODED, MODEL, response_id="resp_1", created_at=1, now=lambda: 1)
    return Run(cast("list[TurnRun]", turns), encoder, _at_once(), at_once=at_once)


class Stream:
    """A streamed answer, and what a server was given of it so far."""

    def __init__(self, timing: Timing, *, stored: bool = False, turns: int = 1) -> None:
        self.turns = [Turn() for _ in range(turns)]
        self.turn = self.turns[0]
        self.sent: list[AsgiMessage] = []
        self.may_be_kept = asyncio.Event()
        self.is_read = asyncio.Event()
        """Whether its client takes what it is sent."""
        self.is_read.set()
        self._sending = self.most_at_once = 0
        self.context = RequestContext(request_id="r", method="POST", route="/", clock=lambda: 0.0, started_at=0.0)
        run = run_of(*self.turns, at_once=turns)
        finish = self._keep if stored else None
        self._response = Answer(run, streamed=True, timing=timing, headers={}, finish=finish)

    async def serve(self) -> None:
        """Answer."""
        await self._response({CONTEXT_KEY: self.context}, self._receive, self._send)

    @property
    def bodies(self) -> list[bytes]:
        """Return the writes after the headers."""
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]

    async def settled(self) -> None:
        """Let everything happen that can."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def _keep(self) -> None:
        await self.may_be_kept.wait()

    async def _send(self, message: AsgiMessage) -> None:
        self._sending += 1
        self.most_at_once = max(self.most_at_once, self._sending)
        await self.is_read.wait()
        self._sending -= 1
        self.sent.append(message)

    async def _receive(self) -> AsgiMessage:
        await asyncio.Event().wait()
        raise AssertionError("Nobody leaves here.")


@contextlib.asynccontextmanager
async def _at_once() -> AsyncIterator[float]:
    yield 0.25


def numbers(bodies: Sequence[bytes]) -> list[int]:
    """Return the sequence numbers in the order in which they were sent."""
    pieces = b"".join(bodies).split(b'"sequence_number":')[1:]
    return [int(piece.split(b",")[0].split(b"}")[0]) for piece in pieces]


@pytest.mark.parametrize("timing", [HELD, PROMPT], ids=["held", "prompt"])
async def test_what_opens_a_stream_comes_before_its_output_whenever_it_is_sent(timing: Timing) -> None:
    stream = Stream(timing)
    serving = asyncio.ensure_future(stream.serve())
    await stream.settled()
    assert [message["type"] for message in stream.sent] == (
        [] if timing is HELD else ["http.response.start", "http.response.body"]
    )
    stream.turn.says([*STARTED, *FIRST], REST, END)
    await serving
    assert b"response.created" in stream.bodies[0]
    assert [second - first for first, second in pairwise(numbers(stream.bodies))] == [1] * (
        len(numbers(stream.bodies)) - 1
    )


async def test_held_headers_say_how_the_turn_is_served() -> None:
    stream = Stream(HELD)
    serving = asyncio.ensure_future(stream.serve())
    await stream.settled()
    stream.turn.says([TurnServed("warm", "exact")], [*STARTED, *FIRST], REST, END)
    await serving
    headers = stream.sent[0]["headers"]
    assert (b"x-turnbridge-thread", b"warm") in headers
    assert (b"x-turnbridge-fidelity", b"exact") in headers
    assert (b"x-turnbridge-queued-ms", b"250") in headers
    assert b": x-turnbridge" not in b"".join(stream.bodies)


async def test_what_headers_could_not_know_is_told_in_the_stream_before_its_output() -> None:
    stream = Stream(PROMPT)
    serving = asyncio.ensure_future(stream.serve())
    await stream.settled()
    assert not [name for name, _ in stream.sent[0]["headers"] if name in (b"x-turnbridge-thread", FIDELITY)]
    stream.turn.says([TurnServed("replayed", "exact")], [*STARTED, *FIRST], REST, END)
    await serving
    assert stream.bodies[1].startswith(b": x-turnbridge-thread: replayed\n\n: x-turnbridge-fidelity: exact\n\nevent: ")
    assert b"".join(stream.bodies).count(b": x-turnbridge-thread") == 1


async def test_of_several_turns_the_headers_say_how_each_is_served_in_their_order() -> None:
    stream = Stream(HELD, turns=2)
    first, second = stream.turns
    serving = asyncio.ensure_future(stream.serve())
    second.says([TurnServed("warm", "exact")])
    await stream.settled()
    first.says([TurnServed("fresh", "exact")], [*STARTED, *FIRST], REST, END)
    await stream.settled()
    assert (b"x-turnbridge-thread", b"fresh, warm") in stream.sent[0]["headers"]
    serving.cancel()
    await asyncio.wait((serving,))


async def test_what_has_begun_when_the_headers_are_due_is_sent_with_them_and_once() -> None:
    stream = Stream(Timing(hold_s=0.01, keepalive_s=None, whole_s=9))
    stream.turn.says(STARTED)
    serving = asyncio.ensure_future(stream.serve())
    await until(lambda: len(stream.bodies) == 1)
    stream.turn.says(FIRST, REST, END)
    await serving
    assert b"".join(stream.bodies).count(b"event: response.created") == 1
    assert numbers(stream.bodies) == list(range(len(numbers(stream.bodies))))


async def test_output_that_comes_while_the_headers_are_being_sent_comes_after_them() -> None:
    stream = Stream(PROMPT)
    stream.is_read.clear()
    serving = asyncio.ensure_future(stream.serve())
    await stream.settled()
    stream.turn.says([*STARTED, *FIRST], REST, END)
    await stream.settled()
    stream.is_read.set()
    await serving
    assert stream.sent[0]["type"] == "http.response.start"
    assert numbers(stream.bodies) == list(range(len(numbers(stream.bodies))))


@on_a_loop_of_its_own
async def test_a_client_that_does_not_read_is_sent_no_keepalives_in_between() -> None:
    time, stream = PassingTime(), Stream(Timing(hold_s=0, keepalive_s=5, whole_s=900))
    serving = asyncio.ensure_future(stream.serve())
    await time.go_on(6)
    sent = len(stream.bodies)
    assert sent == 2
    stream.is_read.clear()
    stream.turn.says([*STARTED, *FIRST])
    await stream.settled()
    await time.go_on(30)
    assert stream.most_at_once == 1
    stream.is_read.set()
    stream.turn.says(REST, END)
    await serving


@on_a_loop_of_its_own
async def test_a_client_that_reads_is_not_cut_off_however_long_it_has_waited() -> None:
    time, stream = PassingTime(), Stream(Timing(hold_s=0, keepalive_s=None, whole_s=5))
    serving = asyncio.ensure_future(stream.serve())
    await time.go_on(20)
    stream.turn.says([*STARTED, *FIRST], REST, END)
    await serving
    assert b"response.completed" in stream.bodies[-1]


async def test_what_headers_said_is_said_again_only_if_it_has_become_wrong() -> None:
    stream = Stream(PROMPT)
    stream.turn.says([TurnServed("fresh", "exact")])
    serving = asyncio.ensure_future(stream.serve())
    await stream.settled()
    assert (FIDELITY, b"exact") in stream.sent[0]["headers"]
    # The turn is run again.
    stream.turn.says([TurnServed("fresh", "extra=shell")], [*STARTED, *FIRST], REST, END)
    await serving
    assert stream.bodies[1].startswith(b": x-turnbridge-fidelity: extra=shell\n\nevent: ")


async def test_an_item_that_has_merely_begun_does_not_release_the_headers() -> None:
    stream = Stream(HELD)
    serving = asyncio.ensure_future(stream.serve())
    stream.turn.says(STARTED)
    await stream.settled()
    assert stream.sent == []
    stream.turn.says(FIRST, REST, END)
    await serving
    assert stream.sent[0]["status"] == 200


async def test_the_end_leaves_with_the_last_words_in_one_write() -> None:
    stream = Stream(HELD)
    stream.turn.says([*STARTED, *FIRST], [*REST, *END])
    await stream.serve()
    assert len(stream.bodies) == 2
    assert b"response.output_text.done" in stream.bodies[-1]
    assert b"response.completed" in stream.bodies[-1]


async def test_the_last_words_do_not_wait_until_the_answer_is_kept() -> None:
    stream = Stream(HELD, stored=True)
    stream.turn.says([*STARTED, *FIRST], [*REST, *END])
    serving = asyncio.ensure_future(stream.serve())
    await stream.settled()
    assert b"response.output_text.done" in stream.bodies[1]
    assert len(stream.bodies) == 2
    stream.may_be_kept.set()
    await serving
    assert b"response.completed" in stream.bodies[2]


async def test_a_turn_that_fails_before_it_says_anything_is_an_error_of_the_request() -> None:
    stream = Stream(HELD)
    stream.turn.says(STARTED, FAILED)
    with pytest.raises(UpstreamFailed):
        await stream.serve()
    assert stream.sent == []


async def test_a_turn_that_fails_in_the_batch_of_its_first_words_is_an_error_of_the_request() -> None:
    stream = Stream(HELD)
    stream.turn.says([*STARTED, *FIRST, *FAILED])
    with pytest.raises(UpstreamFailed):
        await stream.serve()
    assert stream.sent == []


async def test_words_that_come_with_the_failure_of_a_stream_that_has_begun_are_told_before_it() -> None:
    stream = Stream(HELD)
    stream.turn.says([*STARTED, *FIRST], [TextDelta("m1", "lo"), *FAILED])
    await stream.serve()
    told = b"".join(stream.bodies)
    assert b'"text":"Hello"' in told
    assert told.index(b'"delta":"lo"') < told.index(b"response.failed")


async def test_a_turn_that_fails_in_a_stream_that_has_begun_says_so_there() -> None:
    stream = Stream(PROMPT)
    serving = asyncio.ensure_future(stream.serve())
    await stream.settled()
    stream.turn.says(FAILED)
    await serving
    assert b"response.failed" in stream.bodies[-1]
    assert stream.context.error_code is not None, "the log line names it"


class Waiting:
    """Turns that each wait for a sign, and are counted."""

    retrying = heard = False

    def __init__(self) -> None:
        self.running = 0
        self.may_end = asyncio.Event()

    async def events(self) -> AsyncGenerator[Sequence[TurnEvent], None]:
        yield [TurnServed("fresh", "exact")]
        self.running += 1
        try:
            await self.may_end.wait()
            yield END
        finally:
            self.running -= 1


class Defect:
    """A turn that breaks by a defect."""

    retrying = heard = False

    async def events(self) -> AsyncGenerator[Sequence[TurnEvent], None]:
        yield STARTED
        raise RuntimeError("a defect")


async def read(run: Run) -> None:
    async for _ in run.frames():
        pass


async def test_of_several_choices_only_so_many_run_at_once() -> None:
    choice = Waiting()
    run = run_of(*[choice] * 5, at_once=2)
    reading = asyncio.ensure_future(read(run))
    for _ in range(20):
        await asyncio.sleep(0)
    assert choice.running == 2
    choice.may_end.set()
    await reading
    assert (sorted(run.served), run.running) == ([0, 1, 2, 3, 4], 0)


async def test_a_defect_in_one_of_several_choices_is_told_and_nothing_waits_for_it() -> None:
    with pytest.raises(RuntimeError, match="a defect"):
        await asyncio.wait_for(read(run_of(Defect(), Waiting(), at_once=2)), 10)
