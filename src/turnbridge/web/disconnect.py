"""Clients that leave before their answer is whole."""

import asyncio
from collections.abc import Coroutine

from starlette.types import Receive


class Client:
    """Whoever waits for the answer to a request."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._answering: asyncio.Task[None] | None = None

    def leave(self) -> None:
        """Give the client up."""
        if self._answering is not None:
            self._answering.cancel()

    async def served(self, answer: Coroutine[None, None, None]) -> None:
        """Answer the client, and raise what the answer raises; if the client leaves first, the answer ends there.

        The answer has a task of its own, while this one listens: every delta resumes the whole stack of its task, and
        around a request there is a deep one.
        """
        listening = asyncio.current_task()
        if listening is None:
            raise AssertionError("Requests are served in a task.")
        cancelled_before = listening.cancelling()
        self._answering = answering = asyncio.create_task(answer)
        over = _Over(listening)
        answering.add_done_callback(over)
        try:
            await self._gone()
        except asyncio.CancelledError:
            if not over.told or listening.uncancel() > cancelled_before:
                raise
        finally:
            over.awaited = False
            if not answering.done():
                answering.cancel()
                await asyncio.wait((answering,))
        if not answering.cancelled():
            answering.result()

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class _Over:
    """Tells the task that listens to the client that there is nothing to wait for any more."""

    def __init__(self, listening: "asyncio.Task[None]") -> None:
        self._listening = listening
        self.awaited = True
        self.told = False

    def __call__(self, _: object) -> None:
        if self.awaited:
            self.told = True
            self._listening.cancel()
