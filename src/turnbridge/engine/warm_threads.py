"""Idle threads that are kept after their turn, so that the client's next request continues in them.

A thread whose conversation is the beginning of a request's history needs only the rest of it: nothing is replayed, and
the provider's prompt cache, which Codex ties to the thread, stays warm. Threads are found by digest; none of their text
is held.
"""

from collections.abc import Sequence
from typing import NamedTuple

from turnbridge.engine.history_match import History, entries
from turnbridge.engine.kept_threads import KeptThreads
from turnbridge.engine.ports import Thread
from turnbridge.turn.fair_shares import FairShares
from turnbridge.turn.items import Item


class WarmThread(NamedTuple):
    """A thread that holds all of a history but these items."""

    thread: Thread
    rest: tuple[Item, ...]


class WarmThreads:
    """Idle threads by the digest of their conversation; `most` of them, each for `ttl_s`."""

    def __init__(self, *, most: int, ttl_s: float) -> None:
        self.most = most
        self._threads: KeptThreads[bytes, None] = KeptThreads(FairShares(most=most), ttl_s=ttl_s)

    def __len__(self) -> int:
        """Return how many threads are alive."""
        return len(self._threads)

    def keep(self, history: History, said: Sequence[Item], thread: Thread) -> None:
        """Keep a thread that holds this history and what the model said then, if the model answered."""
        # Reasoning alone is not found in the next history, and would be shown to the model twice.
        if self.most == 0 or not any(entries(said)):
            thread.close()
            return
        request = history.request
        self._threads.keep(request.spec.client, history.digest(len(request.items), said), thread, None)

    def take(self, history: History) -> WarmThread | None:
        """Return the thread that holds most of this history, for this request alone."""
        if not self._threads:
            return None
        items = history.request.items
        for count, digest in reversed(history.digests.items()):
            # A request that adds nothing continues nothing.
            if count < len(items) and (kept := self._threads.take(digest)) is not None:
                if kept.thread.alive:
                    return WarmThread(kept.thread, items[count:])
                kept.thread.close()
        return None

    def close(self) -> None:
        """Close all threads."""
        self._threads.close()
