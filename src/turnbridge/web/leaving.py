"""Clients that leave before their answer is whole."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from starlette.types import Receive


class WhileThere:
    """A block that ends when the client leaves, whatever it waits for; it ends quietly, as if it were done.

    The answer stays in the request's own task: one task listens beside it, and ends it as `asyncio.timeout` would.
    """

    def __init__(self, receive: Receive, *, answered: Callable[[], bool] = lambda: False) -> None:
        """`answered` tells whether the answer is whole: servers then report that the client has gone, too."""
        self._receive = receive
        self._answered = answered
        self._left = False

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("Requests are answered in a task.")
        self._task, self._cancelled_before = task, task.cancelling()
        self._listening = asyncio.ensure_future(self._listen())
        return self

    def leave(self) -> None:
        """Give the client up."""
        if not self._left:
            self._left = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Stop listening; a cancellation goes on unless it was for the client's leaving."""
        self._listening.cancel()
        if not self._left:
            return False
        return self._task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._answered():
            self.leave()
