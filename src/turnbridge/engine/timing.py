"""How long a turn may be silent, and how long it may take; and the end of all turns at once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from turnbridge.engine.ports import Conversation
from turnbridge.turn.errors import GatewayError, TurnTimeout
from turnbridge.turn.events import TurnEvent, TurnFailed
from turnbridge.turn.items import FunctionCallOutput, Item
from turnbridge.turn.request import TurnRequest

Batches: TypeAlias = AsyncGenerator[Sequence[TurnEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a turn may be silent, and how long it may take."""

    silence_s: float
    whole_s: float


class Watch:
    """Watches the time of every turn that runs, and can end them all."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._waits: set[asyncio.Timeout] = set()
        self._stopped: GatewayError | None = None

    def stop(self, error: GatewayError) -> None:
        """End every turn that runs, now, with this error."""
        self._stopped = error
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())

    def over(self, conversation: Conversation) -> "TimedConversation":
        """Return a conversation whose turns end as failed when their time is up, counted from now."""
        return TimedConversation(conversation, self, asyncio.get_running_loop().time() + self._patience.whole_s)

    async def timed(self, source: Batches, end: float) -> Batches:
        """Yield what comes in time."""
        async with aclosing(source) as batches:
            while True:
                silence = asyncio.get_running_loop().time() + self._patience.silence_s
                wait = asyncio.timeout_at(min(silence, end))
                self._waits.add(wait)
                try:
                    async with wait:
                        batch = await anext(batches, None)
                except TimeoutError:
                    yield [TurnFailed(self._stopped or self._too_late(silent=silence < end))]
                    return
                finally:
                    self._waits.discard(wait)
                if batch is None:
                    return
                yield batch

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
        return self._watch.timed(self.inner.run(items, request), self._end)

    def resume(self, outputs: Sequence[FunctionCallOutput]) -> Batches:
        """Resume a turn in time."""
        return self._watch.timed(self.inner.resume(outputs), self._end)

    def close(self) -> None:
        """Give the thread up."""
        self.inner.close()
