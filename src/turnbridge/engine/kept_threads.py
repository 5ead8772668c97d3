"""Threads that are kept between two requests, with the limits on their number, size and age."""

import asyncio
from typing import Generic, NamedTuple, TypeVar

from turnbridge.engine.ports import Thread
from turnbridge.turn.fair_shares import FairShares, K

V = TypeVar("V")


class Kept(NamedTuple, Generic[V]):
    """A thread, and what has to be known to use it."""

    thread: Thread
    value: V
    expiry: asyncio.TimerHandle


class KeptThreads(Generic[K, V]):
    """Threads by key, each until it is taken, expires or is evicted.

    When there are too many, dead threads are evicted first, then the oldest of the client that has most.
    """

    def __init__(self, shares: FairShares[K], *, ttl_s: float) -> None:
        self._shares = shares
        self._ttl_s = ttl_s
        self._kept: dict[K, Kept[V]] = {}

    def __len__(self) -> int:
        """Return how many threads are alive."""
        return sum(kept.thread.alive for kept in self._kept.values())

    def __bool__(self) -> bool:
        """Tell whether there is any thread, alive or not: cheaper than the length."""
        return bool(self._kept)

    def get(self, key: K) -> Kept[V] | None:
        """Return a thread, and keep it."""
        return self._kept.get(key)

    def keep(self, client: str, key: K, thread: Thread, value: V, size: int = 0) -> None:
        """Keep a thread, instead of the one that has the same key."""
        self.drop(key)
        expiry = asyncio.get_running_loop().call_later(self._ttl_s, self.drop, key)
        self._kept[key] = Kept(thread, value, expiry)
        self._shares.add(client, key, size)
        if self._shares.excess() is not None:
            for dead in [each for each, kept in self._kept.items() if not kept.thread.alive]:
                self.drop(dead)
        while (excess := self._shares.excess()) is not None:
            self.drop(excess)

    def take(self, key: K) -> Kept[V] | None:
        """Return a thread for one request, and keep it no more."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            kept.expiry.cancel()
            self._shares.remove(key)
        return kept

    def drop(self, key: K) -> None:
        """Close a thread, if it is kept."""
        if (kept := self.take(key)) is not None:
            kept.thread.close()

    def close(self) -> None:
        """Close all threads."""
        for key in list(self._kept):
            self.drop(key)
