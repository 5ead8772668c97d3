"""One answer, from admission to its end: its turns, its encoder, and the frames that they make.

The caller decides where the frames go: straight to the one client that streams it, whose disconnect cancels it;
into a `FrameLog` that many may read, for background responses; or nowhere, for an answer that is sent whole.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Literal, Protocol, TypeAlias

from turnbridge.engine.turns import TurnRun
from turnbridge.turn.events import (
    MessageStarted,
    ReasoningStarted,
    Terminal,
    TextDelta,
    TurnEvent,
    TurnFailed,
    TurnServed,
    Usage,
)
from turnbridge.turn.items import JsonObject, Part

# Bounds what waits for a slow client while several turns run.
MOST_UNSENT_BATCHES = 64

Stage: TypeAlias = Literal["queued", "admitted", "served", "output"]
"""How far a run is: in the admission queue, out of the queue, in a thread of Codex, at the model's first output."""

Reshape: TypeAlias = Callable[[Sequence[TurnEvent]], Sequence[TurnEvent]]


class Encoder(Protocol):
    """One API's way of writing an answer: frames while it comes, an object when it is whole."""

    @property
    def content_type(self) -> str:
        """Return the content type of its frames."""
        ...

    @property
    def failure(self) -> TurnFailed | None:
        """Return the failure that ended the answer, if one did."""
        ...

    @property
    def usage(self) -> Usage:
        """Return the tokens so far."""
        ...

    def admitted(self) -> bytes:
        """Return the frames that say that the wait in the queue is over."""
        ...

    def opening(self) -> bytes:
        """Return the frames that come before any output, if they have to go before there is any."""
        ...

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        """Return the frames of events of choice `index`, after the opening ones if these have not gone."""
        ...

    def closing(self) -> bytes:
        """Return the frames that come after every choice has ended."""
        ...

    def keepalive(self) -> bytes:
        """Return a frame without news."""
        ...

    def note(self, name: str, value: str) -> bytes:
        """Return a note beside the answer, as a header would be; nothing if the format has no place for it."""
        ...

    def whole(self) -> JsonObject:
        """Return the answer in one piece."""
        ...


class Run:
    """Makes one answer out of one turn, or of several that run at once."""

    def __init__(
        self,
        turns: Sequence[TurnRun],
        encoder: Encoder,
        admission: AbstractAsyncContextManager[float],
        *,
        at_once: int = 1,
        reshape: Reshape | None = None,
        model: str | None = None,
        on_stage: Callable[[Stage], None] = lambda _: None,
    ) -> None:
        """Of several turns, `at_once` run at the same time; `on_stage` is called when one of them gets that far."""
        self._turns = turns
        self._admission = admission
        self._at_once = at_once
        self._reshape = reshape
        self._on_stage = on_stage
        self._unserved = len(turns)
        self.encoder = encoder
        self.model = model
        """As Codex names it."""
        self.queued_s: float | None = None
        """How long it waited to be admitted."""
        self.served: dict[int, TurnServed] = {}
        """How each of its turns is served, as soon as that is known."""
        self.running = len(turns)
        """How many of its turns have not ended."""
        self.has_output = False
        """Whether anything has come that a client can be shown: an item that has merely begun cannot."""

    @property
    def undecided(self) -> bool:
        """Tell whether a provider that has just failed is being retried."""
        return any(turn.retrying for turn in self._turns)

    @property
    def heard(self) -> bool:
        """Tell whether the model has sent anything yet."""
        return any(turn.heard for turn in self._turns)

    def cut(self) -> None:
        """End the answer at the next boundary of an item."""
        for turn in self._turns:
            turn.cut = True

    @property
    def linked(self) -> Mapping[str, Part]:
        """Return what the parts that link to something have become; all turns have the same request."""
        return self._turns[0].linked

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Wait for admission, run the turns, and yield the frames of each batch of events, also if there are none.

        It ends when every turn has ended, or the first has failed. `encoder.closing` has the frames that are left.
        """
        self._on_stage("queued")
        async with self._admission as self.queued_s:
            self._on_stage("admitted")
            yield self.encoder.admitted()
            if len(self._turns) == 1:
                batches = self._turns[0].events()
                try:
                    async for events in batches:
                        yield self._encoded(0, events)
                finally:
                    await batches.aclose()
                return
            async with aclosing(_together(self._turns, self._at_once)) as numbered:
                async for index, events in numbered:
                    yield self._encoded(index, events)
                    if self.encoder.failure is not None:
                        return

    def _encoded(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        if self._unserved or not self.has_output:
            self._note(index, events)
        ending = events[-1]
        # Nearly every batch ends in a delta, and testing for the four terminal types takes longer.
        if not isinstance(ending, TextDelta) and isinstance(ending, Terminal):
            self.running -= 1
        return self.encoder.frames(index, events if self._reshape is None else self._reshape(events))

    def _note(self, index: int, events: Sequence[TurnEvent]) -> None:
        """Note how a turn is served, and the first output."""
        first = events[0]
        if isinstance(first, TurnServed):
            self._unserved -= index not in self.served
            self.served[index] = first
            self._on_stage("served")
        if not self.has_output and any(
            not isinstance(event, TurnServed | MessageStarted | ReasoningStarted) for event in events
        ):
            self.has_output = True
            if not isinstance(first, TurnFailed):
                self._on_stage("output")


async def _together(turns: Sequence[TurnRun], at_once: int) -> AsyncGenerator[tuple[int, Sequence[TurnEvent]], None]:
    """Yield the events of several turns as they come, each batch with the number of its turn."""
    # Bounded, so that a client that does not read holds back its own turns and fills nothing.
    arrived: asyncio.Queue[tuple[int, Sequence[TurnEvent]] | Exception | None] = asyncio.Queue(MOST_UNSENT_BATCHES)
    room = asyncio.Semaphore(at_once)

    async def run_one(index: int, turn: TurnRun) -> None:
        try:
            async with room, aclosing(turn.events()) as batches:
                async for batch in batches:
                    await arrived.put((index, batch))
            await arrived.put(None)
        # Of any type: if it were not reported here, the run would wait for this turn forever.
        except Exception as error:  # noqa: BLE001
            await arrived.put(error)

    tasks = [asyncio.ensure_future(run_one(index, turn)) for index, turn in enumerate(turns)]
    try:
        running = len(tasks)
        while running:
            told = await arrived.get()
            if isinstance(told, Exception):
                raise told
            if told is None:
                running -= 1
            else:
                yield told
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
