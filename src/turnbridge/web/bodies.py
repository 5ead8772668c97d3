"""Request bodies: the memory that they share while they are received, and parsing large ones off the event loop."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from turnbridge.api.shared.body_budget import check_body
from turnbridge.api.shared.validation import parse_body
from turnbridge.turn.errors import GatewayOverloaded
from turnbridge.turn.items import JsonObject

MOST_BYTES = 256 * 1024 * 1024
"""Sixteen of the largest bodies that are allowed by default, or thousands of ordinary ones, within the same moment."""

SLOW_S = 60.0
"""A body that has taken this long is the first to be rejected when memory is short."""


class Upload:
    """One body on its way."""

    def __init__(self, client: str, began_at: float, patience: asyncio.Timeout) -> None:
        self.client = client
        self.began_at = began_at
        self.size = 0
        self.rejected = False
        self._patience = patience

    def reject(self) -> None:
        """Stop waiting for the rest: whoever waits gets a `TimeoutError` at once."""
        self.rejected = True
        self._patience.reschedule(0)


class Uploads:
    """Counts the bytes of bodies. When they are too many, the client that holds most of them loses its oldest body."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._size = 0
        self._of_client: dict[str, OrderedDict[Upload, None]] = {}

    def begin(self, client: str, patience: asyncio.Timeout) -> Upload:
        """Count a body whose reader waits with `patience`."""
        upload = Upload(client, asyncio.get_running_loop().time(), patience)
        self._of_client.setdefault(client, OrderedDict())[upload] = None
        return upload

    def add(self, upload: Upload, size: int) -> None:
        """Count bytes that have come; raises `GatewayOverloaded` if there is no room for them.

        A body larger than all the memory for them is let in if it is the only one: its own limit is the operator's.
        """
        upload.size += size
        self._size += size
        while self._size > self._most and self._size > upload.size:
            largest = max(self._of_client.values(), key=_size_of)
            oldest = next(iter(largest))
            age_s = asyncio.get_running_loop().time() - oldest.began_at
            if oldest is upload or (oldest.client == upload.client and age_s < SLOW_S):
                raise overloaded()
            oldest.reject()
            self.end(oldest)

    def end(self, upload: Upload) -> None:
        """Count a body no more; ending it twice is a no-op."""
        bodies = self._of_client.get(upload.client)
        if bodies is None or upload not in bodies:
            return
        del bodies[upload]
        self._size -= upload.size
        if not bodies:
            del self._of_client[upload.client]


def overloaded() -> GatewayOverloaded:
    """Return what the client of a rejected body is told."""
    return GatewayOverloaded("Too many request bodies are being received. Try again in a moment.", retry_after=1)


def _size_of(bodies: OrderedDict[Upload, None]) -> int:
    return sum(body.size for body in bodies)


T = TypeVar("T")

LARGE_BODY_BYTES = 128 * 1024
"""What is smaller is read within ten milliseconds, whatever it holds; to use a thread takes a tenth of one."""

# One for all: each step of another one would keep the interpreter's lock from the event loop for longer.
_thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")


async def beside(work: Callable[[], T], *, large: bool) -> T:
    """Return what the work gives; if it is on something large, beside the event loop."""
    if not large:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)


async def parsed(body: bytes) -> JsonObject:
    """Return the request's JSON object."""
    return await beside(lambda: _parsed(body), large=is_large(body))


def is_large(body: bytes) -> bool:
    """Tell whether what goes through a whole body takes long."""
    return len(body) > LARGE_BODY_BYTES


def _parsed(body: bytes) -> JsonObject:
    if is_large(body):
        check_body(body)
    return parse_body(body)
