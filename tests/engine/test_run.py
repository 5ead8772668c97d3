"""One answer of one turn, or of several that run at once: what it yields, and what is known of it meanwhile."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import cast

import pytest

from turnbridge.engine.run import Run
from turnbridge.engine.turns import TurnRun
from turnbridge.turn.errors import UpstreamFailed
from turnbridge.turn.events import (
    MessageStarted,
    ReasoningStarted,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnServed,
    Usage,
)
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.anyio

BOUND_S = 20
SERVED: list[TurnEvent] = [TurnServed("fresh", "exact")]
STARTED: list[TurnEvent] = [ReasoningStarted("r"), MessageStarted("m", None)]
TEXT: list[TurnEvent] = [TextDelta("m", "Hi")]
END: list[TurnEvent] = [TurnCompleted(Usage())]
FAILED: list[TurnEvent] = [TurnFailed(UpstreamFailed("The provider broke."))]


class Turn:
    """A turn that says these batches."""

    def __init__(self, *batches: Sequence[TurnEvent], retrying: bool = False, heard: bool = False) -> None:
        self.batches = batches
        self.retrying = retrying
        self.heard = heard
        self.closed = False

    async def events(self) -> AsyncGenerator[Sequence[TurnEvent], None]:
        try:
            for batch in self.batches:
                await asyncio.sleep(0)
                yield batch
        finally:
            self.closed = True


class Numbering:
    """An encoder whose frames are the number of a choice and of its events."""

    content_type = "text/plain"
    usage = Usage()
    failure: TurnFailed | None = None

    def admitted(self) -> bytes:
        return b"admitted"

    def opening(self) -> bytes:
        return b"opening"

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        if isinstance(events[-1], TurnFailed):
            self.failure = events[-1]
        return f"{index}:{len(events)}".encode()

    def closing(self) -> bytes:
        return b"closing"

    def keepalive(self) -> bytes:
        return b"keepalive"

    def note(self, name: str, value: str) -> bytes:
        return f"{name}={value}".encode()

    def whole(self) -> JsonObject:
        return {}


@asynccontextmanager
async def admitted() -> AsyncIterator[float]:
    yield 1.5


def run_of(*turns: Turn, outputs: list[str] | None = None, at_once: int = 1) -> Run:
    noted = [] if outputs is None else outputs
    return Run(
        cast("list[TurnRun]", turns),
        Numbering(),
        admitted(),
        at_once=at_once,
        on_stage=lambda stage: noted.append(stage) if stage == "output" else None,
    )


async def frames_of(run: Run) -> list[bytes]:
    async with asyncio.timeout(BOUND_S), aclosing(run.frames()) as frames:
        return [frame async for frame in frames]


async def test_one_turn_yields_the_frames_of_each_batch_after_its_admission() -> None:
    outputs: list[str] = []
    run = run_of(Turn(SERVED, STARTED, [*TEXT, *TEXT], TEXT, END), outputs=outputs)
    known = []
    async with asyncio.timeout(BOUND_S), aclosing(run.frames()) as frames:
        async for frame in frames:
            known.append((frame, run.running, run.has_output, len(outputs)))
    assert known == [
        (b"admitted", 1, False, 0),
        (b"0:1", 1, False, 0),
        (b"0:2", 1, False, 0),
        (b"0:2", 1, True, 1),
        (b"0:1", 1, True, 1),
        (b"0:1", 0, True, 1),
    ]
    assert (run.queued_s, run.served) == (1.5, {0: SERVED[0]})


@pytest.mark.parametrize("turns", [2, 3])
async def test_several_turns_yield_the_frames_of_all_of_them(turns: int) -> None:
    run = run_of(*[Turn(SERVED, TEXT, END) for _ in range(turns)], at_once=2)
    frames = await frames_of(run)
    assert sorted(frames[1:]) == sorted(f"{index}:1".encode() for index in range(turns) for _ in range(3))
    assert (run.running, run.served) == (0, dict.fromkeys(range(turns), SERVED[0]))


async def test_a_turn_that_runs_again_is_served_as_it_was_at_last() -> None:
    again = TurnServed("replayed", "exact")
    run = run_of(Turn(SERVED, [again], END))
    await frames_of(run)
    assert run.served == {0: again}


async def test_how_a_turn_is_served_is_known_of_each_though_the_first_is_served_twice() -> None:
    run = run_of(Turn(SERVED, SERVED, TEXT, END), Turn(SERVED, TEXT, END))
    await frames_of(run)
    assert run.served == dict.fromkeys(range(2), SERVED[0])


async def test_a_run_that_is_closed_has_closed_its_turn() -> None:
    turn = Turn(SERVED, TEXT, END)
    frames = run_of(turn).frames()
    for _ in range(2):
        await anext(frames)
    await frames.aclose()
    assert turn.closed


async def test_a_failure_of_one_turn_ends_the_answer_and_closes_the_others() -> None:
    turns = Turn(FAILED), Turn(*[TEXT] * 1000, END)
    run = run_of(*turns, at_once=2)
    frames = await frames_of(run)
    assert (b"0:1" in frames, run.running) == (True, 1)
    assert len(frames) < 100
    assert [turn.closed for turn in turns] == [True, True]


async def test_an_answer_that_only_fails_has_had_no_output() -> None:
    outputs: list[str] = []
    run = run_of(Turn(FAILED), outputs=outputs)
    await frames_of(run)
    assert (run.has_output, outputs) == (True, [])


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False)])
async def test_what_is_known_of_one_turn_is_known_of_the_answer(first: bool, second: bool) -> None:
    run = run_of(Turn(retrying=first, heard=second), Turn(retrying=second, heard=first))
    assert (run.undecided, run.heard) == (first or second, first or second)
    assert run_of(Turn(retrying=first), Turn()).undecided == first
    assert run_of(Turn(), Turn(heard=second)).heard == second
