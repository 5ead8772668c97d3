"""Threads that are kept between two requests of a client: parked turns, and warm threads.

A parked turn waits for the outputs of its calls, and the request that brings them resumes it. A warm thread is idle: a
request whose history begins with the thread's conversation continues in it, so that nothing is replayed and the
provider's prompt cache, which Codex ties to the thread, stays warm. Of the histories there are only digests here.
"""

import asyncio
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from turnbridge.engine.history_match import History, Leg, entries, leading_outputs, with_legs
from turnbridge.engine.ports import Thread
from turnbridge.turn.fair_shares import FairShares, K
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Item, TextPart
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import size

V = TypeVar("V")

# A parked turn holds a thread in Codex's memory, a megabyte, and here its leg.
MOST_PARKED = 256
MOST_PARKED_CHARACTERS = 64 * 2**20
# A leg is a few kilobytes; clients repeat old calls for as long as the conversation lasts.
MOST_REMEMBERED = 4096
# Some models write whole files in their calls.
MOST_REMEMBERED_CHARACTERS = 64 * 2**20

# A client, and the first call that it was given. Call ids are the provider's: two clients may have the same.
CallKey: TypeAlias = tuple[str, str]


class Kept(NamedTuple, Generic[V]):
    """A thread, what has to be known to use it, and the timer that closes it."""

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

    def take(self, key: K) -> Thread | None:
        """Return a thread for one request, and keep it no more."""
        if (kept := self._kept.pop(key, None)) is None:
            return None
        kept.expiry.cancel()
        self._shares.remove(key)
        return kept.thread

    def drop(self, key: K) -> None:
        """Close a thread, if it is kept."""
        if (thread := self.take(key)) is not None:
            thread.close()

    def close(self) -> None:
        """Close all threads."""
        for key in list(self._kept):
            self.drop(key)


class WarmThreads(KeptThreads[bytes, None]):
    """Idle threads by the digest of their conversation: `most` of them, each for `ttl_s`."""

    def __init__(self, *, most: int, ttl_s: float) -> None:
        super().__init__(FairShares(most=most), ttl_s=ttl_s)
        self.most = most

    def keep_after(self, history: History, said: Sequence[Item], thread: Thread) -> None:
        """Keep a thread that holds this history and what the model said then; close it if the model did not answer."""
        # Reasoning alone is not found in the next history, and would be shown to the model twice.
        if self.most == 0 or not any(entries(said)):
            thread.close()
            return
        request = history.request
        self.keep(request.spec.client, history.digest(len(request.items), said), thread, None)

    def take_for(self, history: History) -> tuple[Thread, tuple[Item, ...]] | None:
        """Return the thread that holds most of this history, for this request alone, and the items that it lacks."""
        if not self._kept:
            return None
        items = history.request.items
        for count, digest in reversed(history.digests.items()):
            # A request that adds nothing continues nothing.
            if count < len(items) and (thread := self.take(digest)) is not None:
                if thread.alive:
                    return thread, items[count:]
                thread.close()
        return None


class Parked(NamedTuple):
    """What is known of a parked turn: how many items its history has, their digest, and what the model said then."""

    items: int
    digest: bytes
    leg: Leg


class Claim(NamedTuple):
    """A turn that can be resumed, the outputs that it waits for, and whether the gateway intervened in it."""

    thread: Thread
    outputs: list[FunctionCallOutput]
    intervened: bool


class ParkedTurns(KeptThreads[CallKey, Parked]):
    """The turns that wait for outputs, and the legs of earlier ones."""

    def __init__(self, *, ttl_s: float) -> None:
        super().__init__(FairShares(most=MOST_PARKED, most_bytes=MOST_PARKED_CHARACTERS), ttl_s=ttl_s)
        self._legs: dict[CallKey, Leg] = {}
        self._remembered: FairShares[CallKey] = FairShares(most=MOST_REMEMBERED, most_bytes=MOST_REMEMBERED_CHARACTERS)

    def park(self, history: History, thread: Thread, leg: Leg) -> None:
        """Keep a turn open until its outputs come, it expires, or it is evicted."""
        client, items = history.request.spec.client, len(history.request.items)
        parked = Parked(items, history.digest(items), leg)
        self.keep(client, (client, leg.shown[0]), thread, parked, size(leg.items))
        self.remember(client, leg)

    def remember(self, client: str, leg: Leg) -> None:
        """Keep what the model said, for a history of this client that comes without it."""
        key = client, leg.shown[0]
        self._legs[key] = leg
        self._remembered.add(client, key, size(leg.items))
        while (excess := self._remembered.excess()) is not None:
            self._remembered.remove(excess)
            del self._legs[excess]

    def claim(self, history: History) -> Claim | None:
        """Return the turn that this request resumes: it repeats the conversation, and adds the outputs and no more."""
        items, client = history.request.items, history.request.spec.client
        given = leading_outputs(reversed(items))
        key = next((key for output in given if (key := (client, output.call_id)) in self._kept), None)
        if key is None:
            return None
        thread, (count, digest, leg), _ = self._kept[key]
        fits = (
            thread.alive
            and {output.call_id for output in given} == set(leg.shown)
            and leg.is_repeated_by(items[count : len(items) - len(given)])
            and history.digest(count) == digest
        )
        if not fits:
            return None
        if not all(map(_is_carried_unchanged, given)):
            self.drop(key)
            return None
        self.take(key)
        return Claim(thread, leg.outputs(given), leg.intervened)

    def knows(self, client: str, call_id: str) -> bool:
        """Tell whether the leg of this call is remembered."""
        return (client, call_id) in self._legs

    def restored(self, request: TurnRequest) -> tuple[Item, ...]:
        """Return the request's history with what the model said in place of the client's repetition."""
        client = request.spec.client
        if not any(isinstance(item, FunctionCall) and self.knows(client, item.call_id) for item in request.items):
            return request.items
        return with_legs(request.items, lambda call_id: self._legs.get((client, call_id)))


def _is_carried_unchanged(output: FunctionCallOutput) -> bool:
    """Tell whether Codex passes an output on as it is.

    It changes an image's detail, hides a broken image, and has no field for the name of the function.
    """
    if output.name is not None or output.namespace is not None:
        return False
    return isinstance(output.output, str) or all(isinstance(part, TextPart) for part in output.output)
