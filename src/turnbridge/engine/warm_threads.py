"""Threads that are kept after their turn, so that a client's next request can go on in them.

Clients without state send their whole history each time. If it tells what a thread holds, and something more, the
thread goes on with only that: nothing is replayed, and the provider's prompt cache, which Codex ties to the thread,
stays warm. Any other history is replayed. A thread is found by a hash of the conversation, and compared by a digest of
it before it is used: in all but thoughts, searches and narration, which not every client can give back. Nothing of the
conversation itself is held.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeAlias

from turnbridge.engine.digests import digest
from turnbridge.engine.ports import Thread
from turnbridge.turn.fair_shares import FairShares
from turnbridge.turn.items import (
    BETWEEN_MESSAGES,
    NARRATION,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Part,
    TextPart,
    is_models,
)
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import replace, rewritten

Entry: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmRules:
    """How many threads are kept, and for how long."""

    most: int
    ttl_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    lasting: bytes
    entries: bytes
    """The digest of what was said."""
    thread: Thread
    expiry: asyncio.TimerHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmThread:
    """A thread that holds all of a history but its end."""

    thread: Thread
    rest: tuple[Item, ...]


class Told:
    """A conversation as its client tells it, read once: before the turn to find a thread, and after it to keep one."""

    def __init__(self, request: TurnRequest) -> None:
        self.request = request

    @cached_property
    def lasting(self) -> bytes:
        """Return the digest of what has to be the same in a thread that goes on."""
        return digest((self.request.lasting(),))

    @cached_property
    def entries(self) -> list[Entry]:
        """Return what was said."""
        return [entry for entry, _ in self._counted]

    @cached_property
    def hashes(self) -> list[int]:
        """Return the hash of the conversation after each of its entries."""
        request = self.request
        # The same words under other settings are another conversation; all are compared before a thread is used.
        names = (tool.name for tool in request.tools)
        kind = (request.client, request.model, request.instructions, request.effort, *names)
        return list(itertools.accumulate(self.entries, _rolled, initial=hash(kind)))[1:]

    def rest(self, entries: int) -> tuple[Item, ...]:
        """Return the items after so many entries."""
        return self.request.items[self._counted[entries - 1][1] :]

    def after(self, said: Sequence[Item]) -> tuple[int, list[Entry]]:
        """Return the conversation with what the model said then: its hash, and its entries."""
        items = self.request.items
        if not items or is_models(items[-1]):
            # What the model says then belongs to the last entry.
            whole = Told(replace(self.request, items=(*items, *said)))
            return whole.hashes[-1], whole.entries
        new = [entry for entry, _ in _entries(said)]
        return reduce(_rolled, new, self.hashes[-1]), [*self.entries, *new]

    @cached_property
    def _counted(self) -> list[tuple[Entry, int]]:
        return list(_entries(self.request.items))


class WarmThreads:
    """The threads that could go on."""

    def __init__(self, rules: WarmRules) -> None:
        self._rules = rules
        self._kept: dict[int, _Kept] = {}
        self._shares: FairShares[int] = FairShares(most=rules.most)

    def __len__(self) -> int:
        """Return how many threads may be continued; one whose app-server has died may not."""
        return sum(kept.thread.alive for kept in self._kept.values())

    def keep(self, told: Told, said: Sequence[Item], thread: Thread) -> None:
        """Keep a thread that holds what was told and what the model said then, if it answered.

        When there are too many, the client that has most loses its oldest.
        """
        # What not every client can give back is not found in the next history, so it would be shown twice.
        if self._rules.most == 0 or not any(_entries(said)):
            thread.close()
            return
        key, entries = told.after(said)
        if key in self._kept:
            self._drop(key)
        expiry = asyncio.get_running_loop().call_later(self._rules.ttl_s, self._drop, key)
        self._kept[key] = _Kept(lasting=told.lasting, entries=digest(entries), thread=thread, expiry=expiry)
        self._shares.add(told.request.client, key)
        if self._shares.excess() is not None:
            self._make_room()

    def take(self, told: Told) -> WarmThread | None:
        """Return the thread that a request continues, for this request alone."""
        if not self._kept:
            return None
        # The longest history first; a request that adds nothing does not continue anything.
        for length in range(len(told.entries) - 1, 0, -1):
            key = told.hashes[length - 1]
            kept = self._kept.get(key)
            if kept is None or kept.lasting != told.lasting:
                continue
            if not kept.thread.alive:
                self._drop(key)
            # Last, since it takes longest: with the same hash, it is another conversation only by a rare chance.
            elif kept.entries == digest(told.entries[:length]):
                self._forget(key)
                return WarmThread(thread=kept.thread, rest=told.rest(length))
        return None

    def close(self) -> None:
        """Give up every thread."""
        for key in list(self._kept):
            self._drop(key)

    def _make_room(self) -> None:
        """Give up what is of no use any more, then what is too much."""
        for dead in [key for key, kept in self._kept.items() if not kept.thread.alive]:
            self._drop(dead)
        while (excess := self._shares.excess()) is not None:
            self._drop(excess)

    def _drop(self, key: int) -> None:
        self._forget(key).thread.close()

    def _forget(self, key: int) -> _Kept:
        kept = self._kept.pop(key)
        kept.expiry.cancel()
        self._shares.remove(key)
        return kept


def _entries(items: Sequence[Item]) -> Iterator[tuple[Entry, int]]:
    """Yield a conversation as every client tells it, each entry with the number of items that it takes up to its end.

    What the model said between two other items is one entry: its answer and its calls. Thoughts, searches and narration
    are left out, since not every client can give them back.
    """
    texts: list[str] = []
    calls: list[Entry] = []
    for count, item in enumerate(items):
        if isinstance(item, Message) and item.role == "assistant":
            if item.phase != NARRATION:
                texts.append(_text(item.parts))
        elif isinstance(item, FunctionCall):
            # Clients write arguments anew, with other spaces.
            calls.append((item.call_id, item.namespace, item.name, rewritten(item.arguments)))
        elif not is_models(item):
            if texts or calls:
                yield ("assistant", BETWEEN_MESSAGES.join(filter(None, texts)), *calls), count
                texts, calls = [], []
            yield _entry(item), count + 1
    if texts or calls:
        yield ("assistant", BETWEEN_MESSAGES.join(filter(None, texts)), *calls), len(items)


def _text(parts: tuple[Part, ...]) -> str:
    return "".join([part.text for part in parts if isinstance(part, TextPart)])


def _entry(item: Item) -> Entry:
    if isinstance(item, Message):
        return (item.role, *[part.text if isinstance(part, TextPart) else part for part in item.parts])
    if isinstance(item, FunctionCallOutput):
        return ("output", item.custom, item.call_id, item.namespace, item.name, item.output)
    return ("item", repr(item))


def _rolled(before: int, entry: Entry) -> int:
    return hash((before, entry))
