"""How long a turn may be silent, and how long it may take; and the end of all turns at once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from turnbridge.engine.ports import Conversation
from turnbridge.turn.errors import GatewayError, TurnTimeout
from turnbridge.turn.events import TurnEvent
from turnbridge.turn.items import FunctionCallOutput, Item
from turnbridge.turn.request import TurnRequest

Batches: TypeAlias = AsyncGenerator[Sequence[TurnEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a turn may be silent, and how long it may take."""

    silence_s: float
    whole_s: float


@dataclass(eq=False, slots=True)
class _Turn:
    conversation: Conversation
    end: float
    loop: asyncio.AbstractEventLoop
    """Held here, because to ask for it takes a system call."""
    waiting_since: float | None = None
    """Since when the model is waited for; None while its client is."""
    timer: asyncio.TimerHandle | None = None


class Watch:
    """Watches the time of every turn that runs, and can end them all.

    Each turn has one timer, which looks only when it fires whether something was heard meanwhile: to set and cancel one
    for every batch took a fifth of what a delta costs.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._turns: set[_Turn] = set()
        self._stopped: GatewayError | None = None

    def stop(self, error: GatewayError) -> None:
        """End every turn that runs, now, with this error."""
        self._stopped = error
        for turn in self._turns:
            turn.conversation.fail(error)

    def over(self, conversation: Conversation) -> "TimedConversation":
        """Return a conversation whose turns end as failed when their time is up, counted from now."""
        now = asyncio.get_running_loop().time()
        return TimedConversation(conversation, self, now + self._patience.whole_s)

    async def timed(self, conversation: Conversation, source: Batches, end: float) -> Batches:
        """Yield what comes in time."""
        turn = _Turn(conversation, end, asyncio.get_running_loop())
        self._turns.add(turn)
        try:
            async with aclosing(source) as batches:
                self._wait(turn)
                async for batch in batches:
                    turn.waiting_since = None
                    yield batch
                    self._wait(turn)
        finally:
            self._turns.discard(turn)
            if turn.timer is not None:
                turn.timer.cancel()

    def _wait(self, turn: _Turn) -> None:
        """Begin to wait for the model."""
        now = turn.waiting_since = turn.loop.time()
        if self._stopped is not None:
            turn.conversation.fail(self._stopped)
        elif turn.timer is None or now >= turn.end:
            self._look(turn)

    def _look(self, turn: _Turn) -> None:
        """End a turn whose time is up; else come back when it could be."""
        now = turn.loop.time()
        silence = (now if turn.waiting_since is None else turn.waiting_since) + self._patience.silence_s
        if turn.waiting_since is not None and now >= min(silence, turn.end):
            turn.conversation.fail(self._too_late(silent=silence < turn.end))
            return
        # A client that is waited for has no time to keep; the turn's end is looked at when the wait is over.
        due = silence if turn.waiting_since is None else min(silence, turn.end)
        turn.timer = turn.loop.call_at(due, self._look, turn)

    def _too_late(self, *, silent: bool) -> TurnTimeout:
        if silent:
            seconds = self._patience.silence_s
            return TurnTimeout(f"The model was silent for {seconds:g} seconds; the turn was interrupted.")
        return TurnTimeout(f"The turn took longer than {self._patience.whole_s:g} seconds and was interrupted.")


class TimedConversation:
    """A conversation that is watched."""

    def __init__(self, conversation: Conversation, watch: Watch, end: float) -> None:
        self.inner = conversation
        self._watch = watch
        self._end = end

    @property
    def alive(self) -> bool:
        """Tell whether the thread can still go on."""
        return self.inner.alive

    def run(self, items: Sequence[Item] = (), request: TurnRequest | None = None) -> Batches:
        """Run a turn in time."""
        return self._watch.timed(self.inner, self.inner.run(items, request), self._end)

    def resume(self, outputs: Sequence[FunctionCallOutput]) -> Batches:
        """Resume a turn in time."""
        return self._watch.timed(self.inner, self.inner.resume(outputs), self._end)

    def fail(self, error: GatewayError) -> None:
        """End the turn that runs."""
        self.inner.fail(error)

    def close(self) -> None:
        """Give the thread up."""
        self.inner.close()
