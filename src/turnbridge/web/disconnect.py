"""Answers that end when their client disconnects."""

import asyncio
from collections.abc import Coroutine

from starlette.types import Receive


class Exchange:
    """A request that is being answered, until its answer is whole or its client has gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._answering: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """End the answer as if the client had disconnected."""
        if self._answering is not None:
            self._answering.cancel()

    async def serve(self, answer: Coroutine[None, None, None]) -> None:
        """Run the answer and raise what it raises; cancel it if the client disconnects first.

        The answer has a task of its own, while this one listens: every delta resumes the whole stack of its task, and
        around a request there is a deep one.
        """
        listening = asyncio.current_task()
        if listening is None:
            raise AssertionError("Requests are served in a task.")
        cancelled_before = listening.cancelling()
        self._answering = answering = asyncio.create_task(answer)
        awaited, done = True, False

        def stop_listening(_: object) -> None:
            nonlocal done
            if awaited:
                done = True
                listening.cancel()

        answering.add_done_callback(stop_listening)
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            if not done or listening.uncancel() > cancelled_before:
                raise
        finally:
            awaited = False
            if not answering.done():
                answering.cancel()
                await asyncio.wait((answering,))
        if not answering.cancelled():
            answering.result()
