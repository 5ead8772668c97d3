"""What stands in for parts of uvicorn's protocol: smaller ones, since each open connection has one of each.

asyncio's Event takes 0.7 KB, because of its deque of waiters.
"""

import asyncio

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Pipeline(list[tuple[RequestResponseCycle, ASGI3Application]]):
    """Requests that wait for the one before them, the latest first; an empty deque would take 0.6 KB."""

    def appendleft(self, request: tuple[RequestResponseCycle, ASGI3Application]) -> None:
        """Add the latest request."""
        self.insert(0, request)


class Flow(FlowControl):
    """Makes its event when a client reads too slowly: other connections do not need it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = self.write_paused = False

    def pause_writing(self) -> None:
        """Let writers wait from now on."""
        if not self.write_paused:
            self.write_paused, self._is_writable_event = True, asyncio.Event()


class OneReaderEvent:
    """The event of a request's body and disconnect, for which one task at most waits at a time."""

    __slots__ = ("_loop", "_set", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the task that waits."""
        self._set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        """Let the next task wait again."""
        self._set = False

    async def wait(self) -> None:
        """Return once it is set."""
        if not self._set:
            self._waiter = self._loop.create_future()
            await self._waiter


class _AnyLength(int):
    """A content-length that matches every body."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> "_AnyLength":
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def disable_chunks(cycle: RequestResponseCycle) -> None:
    """Keep uvicorn from chunked encoding: HTTP/1.0 lacks it, so the close ends a response; and a 101 has no body."""
    cycle.chunked_encoding = False
    cycle.expected_content_length = _AnyLength()
    cycle.waiting_for_100_continue = False
