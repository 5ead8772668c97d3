"""Eviction from a store that several clients share, bounded in number and size.

The oldest entry of the client that holds most is evicted first, so that no client fills the store at the cost of
another. With one client that is the oldest entry of all.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class FairShares(Generic[K]):
    """The entries of each client, the oldest first, and their sizes."""

    def __init__(self, *, most: int, most_bytes: int | None = None) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._owners: dict[K, str] = {}
        self._held: dict[str, dict[K, int]] = {}
        self._bytes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, client: str, key: K, size: int = 0) -> None:
        """Add an entry as the newest of its client."""
        self.remove(key)
        self._owners[key] = client
        self._held.setdefault(client, {})[key] = size
        self._bytes[client] += size

    def remove(self, key: K) -> None:
        """Remove an entry, if it is there."""
        client = self._owners.pop(key, None)
        if client is None:
            return
        self._bytes[client] -= self._held[client].pop(key)
        if not self._held[client]:
            del self._held[client], self._bytes[client]

    def held(self, client: str) -> int:
        """Return how many entries a client has."""
        return len(self._held.get(client, ()))

    def excess(self) -> K | None:
        """Return the next entry to evict, as long as there is too much."""
        if self._most_bytes is not None and self._bytes.total() > self._most_bytes:
            return self._oldest(max(self._held, key=self._bytes.__getitem__))
        return self._oldest(self.richest()) if len(self._owners) > self._most else None

    def richest(self) -> str:
        """Return the client that has most entries; there must be one."""
        return max(self._held, key=self.held)

    def entries(self, client: str) -> Iterable[K]:
        """Return the entries of a client, the oldest first."""
        return self._held.get(client, {}).keys()

    def _oldest(self, client: str) -> K:
        return next(iter(self._held[client]))
