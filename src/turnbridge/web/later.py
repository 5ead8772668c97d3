"""Work that is due only if an answer takes long."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Self

# How often work that is due, but postponed, is looked at again.
POSTPONED_LOOK_S = 0.25


class Later:
    """A block beside which some work begins after a while, and is given up when the block is over.

    Nearly every answer is whole before anything of this kind is due: a timer costs it 1 µs, a task that sleeps 5.
    """

    def __init__(
        self,
        delay_s: float | None,
        work: Callable[[], Coroutine[None, None, None]],
        *,
        postponed: Callable[[], bool] = lambda: False,
    ) -> None:
        """No delay means that the work is never due; while `postponed` says so, it does not begin."""
        self._delay_s = delay_s
        self._work = work
        self._postponed = postponed
        self._timer: asyncio.TimerHandle | None = None
        self._working: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        """Set the timer."""
        if self._delay_s is not None:
            self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the work up, whether it has begun or not."""
        self._stop_timer()
        if self._working is not None:
            self._working.cancel()

    async def settled(self) -> None:
        """Let the work begin no more; if it has begun, wait for its end."""
        self._stop_timer()
        if self._working is not None:
            await self._working

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        if self._postponed():
            self._timer = asyncio.get_running_loop().call_later(POSTPONED_LOOK_S, self._begin)
            return
        self._working = asyncio.ensure_future(self._work())
