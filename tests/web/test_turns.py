"""How an answer leaves: headers with the first output or after a while, frames as they come, the end with the last."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from itertools import pairwise

import pytest
from starlette.types import Message as AsgiMessage

from tests.api.responses import decoded as decode
from tests.api.responses.test_encode import MODEL
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.engine.turns import Served
from turnbridge.turn.errors import UpstreamFailed
from turnbridge.turn.events import (
    MessageDone,
    MessageStarted,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    Usage,
)
from turnbridge.turn.request import TurnRequest
from turnbridge.web.choices import run_choices
from turnbridge.web.middleware.access_log import CONTEXT_KEY, RequestContext
from turnbridge.web.turns import Timing, TurnResponse
from turnbridge.web.writers import ResponsesWriter

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

    def __init__(self) -> None:
        self._batches: asyncio.Queue[Sequence[TurnEvent]] = asyncio.Queue()
        self.served = Served()
        self.known_at_once: str | None = None
        """How faithfully it is shown, if that is known from the start."""

    def says(self, *batches: Sequence[TurnEvent]) -> None:
        for batch in batches:
            self._batches.put_nowait(batch)

    async def run(self, request: TurnRequest, served: Served) -> AsyncGenerator[Sequence[TurnEvent], None]:
        del request
        self.served = served
        self.served.fidelity = self.known_at_once
        while True:
            batch = await self._batches.get()
            yield batch
            if isinstance(batch[-1], TurnCompleted | TurnFailed):
                return


class Stream:
    """A streamed answer, and what a server was given of it so far."""

    def __init__(self, timing: Timing, *, stored: bool = False) -> None:
        self.turn = Turn()
        self.sent: list[AsgiMessage] = []
        self.may_be_kept = asyncio.Event()
        encoder = ResponseEncoder(DECODED, MODEL, response_id="resp_1", created_at=1)
        self._response = TurnResponse(
            self.turn,
            DECODED.turn,
            ResponsesWriter(encoder, lambda: 1),
            admission=_at_once(),
            timing=timing,
            headers={},
            finish=self._keep if stored else None,
        )

    async def serve(self) -> None:
        """Answer."""
        context = RequestContext(request_id="r", method="POST", route="/", clock=lambda: 0.0, started_at=0.0)
        await self._response({CONTEXT_KEY: context}, self._receive, self._send)

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
        self.sent.append(message)

    async def _receive(self) -> AsgiMessage:
        await asyncio.Event().wait()
        raise AssertionError("Nobody leaves here.")


@contextlib.asynccontextmanager
async def _at_once() -> AsyncIterator[float]:
    yield 0.0


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
    stream.turn.served.thread, stream.turn.served.fidelity = "warm", "exact"
    stream.turn.says([*STARTED, *FIRST], REST, END)
    await serving
    headers = stream.sent[0]["headers"]
    assert (b"x-turnbridge-thread", b"warm") in headers
    assert (b"x-turnbridge-fidelity", b"exact") in headers
    assert b": x-turnbridge" not in b"".join(stream.bodies)


async def test_what_headers_could_not_know_is_told_in_the_stream_before_its_output() -> None:
    stream = Stream(PROMPT)
    serving = asyncio.ensure_future(stream.serve())
    await stream.settled()
    assert not [name for name, _ in stream.sent[0]["headers"] if name in (b"x-turnbridge-thread", FIDELITY)]
    stream.turn.served.thread, stream.turn.served.fidelity = "replayed", "exact"
    stream.turn.says([*STARTED, *FIRST], REST, END)
    await serving
    assert stream.bodies[1].startswith(b": x-turnbridge-thread: replayed\n\n: x-turnbridge-fidelity: exact\n\nevent: ")


async def test_what_headers_said_is_said_again_only_if_it_has_become_wrong() -> None:
    stream = Stream(PROMPT)
    stream.turn.known_at_once = "exact"
    serving = asyncio.ensure_future(stream.serve())
    await stream.settled()
    assert (FIDELITY, b"exact") in stream.sent[0]["headers"]
    stream.turn.served.fidelity = "extra=shell"
    stream.turn.says([*STARTED, *FIRST], REST, END)
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


class Choices:
    """Runs turns that each wait for a sign, and counts them."""

    def __init__(self) -> None:
        self.running = 0
        self.may_end = asyncio.Event()

    async def run(self, request: TurnRequest, served: Served) -> AsyncGenerator[Sequence[TurnEvent], None]:
        del request, served
        self.running += 1
        try:
            await self.may_end.wait()
            yield END
        finally:
            self.running -= 1


class Defect:
    """Runs turns that break by a defect."""

    async def run(self, request: TurnRequest, served: Served) -> AsyncGenerator[Sequence[TurnEvent], None]:
        del request, served
        yield STARTED
        raise RuntimeError("a defect")


async def test_of_several_choices_only_so_many_run_at_once() -> None:
    choices = Choices()

    async def read() -> list[int]:
        told = run_choices(choices, DECODED.turn, Served(), choices=5, at_once=2)
        return [batch.index async for batch in told]

    reading = asyncio.ensure_future(read())
    for _ in range(20):
        await asyncio.sleep(0)
    assert choices.running == 2
    choices.may_end.set()
    assert sorted(await reading) == [0, 1, 2, 3, 4]


async def test_a_defect_in_one_of_several_choices_is_told_and_nothing_waits_for_it() -> None:
    async def read() -> None:
        async for _ in run_choices(Defect(), DECODED.turn, Served(), choices=2, at_once=2):
            pass

    with pytest.raises(RuntimeError, match="a defect"):
        await asyncio.wait_for(read(), 10)
