"""The memory for request bodies that are still being received, shared by all clients.

A body that comes slowly may take as long as it likes, so without a bound in all a client could hold any number of
halves. What becomes of a body that is whole is no concern of this module.
"""

import asyncio
from collections import OrderedDict

from turnbridge.turn.errors import GatewayOverloaded

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
