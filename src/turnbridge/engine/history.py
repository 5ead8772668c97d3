"""The conversation of a request as digests: to find a thread before the turn, and to keep one after it.

Clients send their whole history with each request, and not every client can send everything back. So reasoning, web
searches, commentary, ids, the spaces in arguments and a blank text beside calls do not count. All else does: a wrong
match would answer in another conversation.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TypeAlias

from turnbridge.turn.items import (
    BETWEEN_MESSAGES,
    NARRATION,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    TextPart,
    canonical_json,
    is_models,
    normalized_json,
    visible,
)
from turnbridge.turn.request import TurnRequest

Entry: TypeAlias = tuple[object, ...]
# The first value of an entry that is a run of the model's items.
RUN = "model"


class History:
    """The conversation of a request as digests: to find a thread before the turn, and to keep one after it."""

    def __init__(self, request: TurnRequest) -> None:
        self.request = request

    @cached_property
    def digests(self) -> dict[int, bytes]:
        """Return the digest after each run of the model's items, by the number of items up to there.

        It covers the thread's spec and all items before; the first one, for 0 items, covers only the spec.
        """
        digests = {0: sha256(canonical_json(self.request.spec)).digest()}
        digests.update(_chain(digests[0], entries(self.request.items)))
        return digests

    def digest(self, count: int, said: Sequence[Item] = ()) -> bytes:
        """Return the digest of the first `count` items, followed by what the model said then."""
        start = next((end for end in reversed(self.digests) if end < count), 0)
        added = [*entries((*self.request.items[start:count], *said))]
        end, digest = [(0, self.digests[start]), *_chain(self.digests[start], added)][-1]
        return _extended(digest, [entry for place, entry in added if place > end])


def entries(items: Sequence[Item]) -> Iterator[tuple[int, Entry]]:
    """Yield the parts of a conversation that every client sends back, each with the number of items up to its end.

    The model's messages and calls between two other items are one entry: clients split and join them differently.
    """
    texts: list[str] = []
    calls: list[Entry] = []
    for count, item in enumerate(items):
        if isinstance(item, FunctionCall):
            calls.append((item.call_id, item.namespace, item.name, normalized_json(item.arguments)))
        elif not is_model_run(item):
            if texts or calls:
                yield count, (RUN, joined(texts), *calls)
                texts, calls = [], []
            yield count + 1, _entry(item)
        elif isinstance(item, Message) and item.phase != NARRATION:
            texts.append(item.text)
    if texts or calls:
        yield len(items), (RUN, joined(texts), *calls)


def _chain(digest: bytes, added: Iterable[tuple[int, Entry]]) -> Iterator[tuple[int, bytes]]:
    """Yield the digest after each run of the model's items, with the number of items up to there."""
    pending: list[Entry] = []
    for end, entry in added:
        pending.append(entry)
        if entry[0] == RUN:
            digest = _extended(digest, pending)
            pending = []
            yield end, digest


def _extended(digest: bytes, added: Sequence[Entry]) -> bytes:
    return sha256(digest + canonical_json(added)).digest() if added else digest


def is_model_run(item: Item) -> bool:
    """Tell whether an item is the model's, and only text if it is a message."""
    if isinstance(item, Message):
        return item.role == "assistant" and all(isinstance(part, TextPart) for part in item.parts)
    return is_models(item)


def _entry(item: Item) -> Entry:
    # Most of a history is text, which needs no conversion.
    if isinstance(item, Message):
        return (item.role, *[part.text if isinstance(part, TextPart) else visible(part) for part in item.parts])
    if isinstance(item, FunctionCallOutput):
        output = item.output if isinstance(item.output, str) else visible(item.output)
        return ("output", item.custom, item.call_id, item.namespace, item.name, output)
    return ("item", visible(item))


def joined(texts: Iterable[str]) -> str:
    """Return the texts of a run as one, as clients that have one field for them send them back."""
    # Some clients write a space or a new line where a call came without a text.
    return BETWEEN_MESSAGES.join([text for text in texts if text.strip()])
