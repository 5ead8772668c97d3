"""Threads that are kept after their turn, so that a client's next request can go on in them.

Clients without state send their whole history each time. If it is exactly what a thread holds, and something more, the
thread goes on with only that: nothing is replayed, and the provider's prompt cache, which Codex ties to the thread,
stays warm. Any other history is replayed. A thread is found by a hash of the conversation, and compared before it is
used.
"""

import asyncio
import itertools
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from turnbridge.engine.ports import Conversation
from turnbridge.turn.items import (
    BETWEEN_MESSAGES,
    NARRATION,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    RawItem,
    Reasoning,
    TextPart,
)
from turnbridge.turn.request import TurnRequest

Entry: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmRules:
    """How many threads are kept, for how long, and how much text of theirs."""

    most: int
    ttl_s: float
    most_characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    settings: TurnRequest
    entries: tuple[Entry, ...]
    size: int
    conversation: Conversation
    expiry: asyncio.TimerHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmThread:
    """A thread that holds all of a history but its end."""

    conversation: Conversation
    rest: tuple[Item, ...]


class WarmThreads:
    """The threads that could go on."""

    def __init__(self, rules: WarmRules) -> None:
        self._rules = rules
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, request: TurnRequest, said: Sequence[Item], conversation: Conversation) -> None:
        """Keep a thread that holds the request's items and what the model said; the oldest make room."""
        entries = tuple(entry for entry, _ in _entries((*request.items, *said)))
        key = _hashes(request, entries)[-1]
        if key in self._kept:
            self._drop(key)
        expiry = asyncio.get_running_loop().call_later(self._rules.ttl_s, self._drop, key)
        size = sum(len(part) for entry in entries for part in entry if isinstance(part, str))
        self._kept[key] = _Kept(
            settings=request.lasting(), entries=entries, size=size, conversation=conversation, expiry=expiry
        )
        self._characters += size
        while len(self._kept) > self._rules.most or self._characters > self._rules.most_characters:
            self._drop(next(iter(self._kept)))

    def take(self, request: TurnRequest) -> WarmThread | None:
        """Return the thread that this request continues, for this request alone."""
        if not self._kept:
            return None
        told = list(_entries(request.items))
        entries = tuple(entry for entry, _ in told)
        # The longest history first; a request that adds nothing does not continue anything.
        for length, key in reversed(list(enumerate(_hashes(request, entries[:-1]), start=1))):
            kept = self._kept.get(key)
            if kept is None or kept.settings != request.lasting() or kept.entries != entries[:length]:
                continue
            self._forget(key)
            if kept.conversation.alive:
                return WarmThread(conversation=kept.conversation, rest=request.items[told[length - 1][1] :])
            kept.conversation.close()
        return None

    def close(self) -> None:
        """Give up every thread."""
        for key in list(self._kept):
            self._drop(key)

    def _drop(self, key: int) -> None:
        self._forget(key).conversation.close()

    def _forget(self, key: int) -> _Kept:
        kept = self._kept.pop(key)
        kept.expiry.cancel()
        self._characters -= kept.size
        return kept


def _entries(items: Iterable[Item]) -> Iterator[tuple[Entry, int]]:
    """Yield a conversation as every client tells it, each entry with the number of items that it takes up to its end.

    What the model said between two other items is one entry: its answer and its calls. Thoughts, searches and narration
    are left out, since not every client can give them back.
    """
    texts: list[str] = []
    calls: list[Entry] = []
    count = 0
    for item in items:
        if isinstance(item, Message) and item.role == "assistant":
            if item.phase != NARRATION:
                texts.append("".join(part.text for part in item.parts if isinstance(part, TextPart)))
        elif isinstance(item, FunctionCall):
            calls.append((item.call_id, item.name, _canonical(item.arguments)))
        elif not isinstance(item, Reasoning) and not _is_search(item):
            if texts or calls:
                yield ("assistant", BETWEEN_MESSAGES.join(filter(None, texts)), *calls), count
                texts, calls = [], []
            yield _entry(item), count + 1
        count += 1
    if texts or calls:
        yield ("assistant", BETWEEN_MESSAGES.join(filter(None, texts)), *calls), count


def _is_search(item: Item) -> bool:
    return isinstance(item, RawItem) and item.item.get("type") == "web_search_call"


def _entry(item: Item) -> Entry:
    if isinstance(item, Message):
        return (item.role, *(part.text if isinstance(part, TextPart) else part for part in item.parts))
    if isinstance(item, FunctionCallOutput):
        return ("output", item.custom, item.call_id, item.output)
    return ("item", repr(item))


def _rolled(before: int, entry: Entry) -> int:
    return hash((before, entry))


def _hashes(request: TurnRequest, entries: Iterable[Entry]) -> list[int]:
    """Return the hash of the conversation after each of its entries."""
    # The same words under other settings are another conversation; all settings are compared before a thread is used.
    kind = (request.client, request.model, request.instructions, request.effort, *(tool.name for tool in request.tools))
    return list(itertools.accumulate(entries, _rolled, initial=hash(kind)))[1:]


def _canonical(arguments: str) -> str:
    """Return arguments in one way of writing: clients write them anew."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments
