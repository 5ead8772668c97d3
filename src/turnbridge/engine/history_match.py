"""Whether a request repeats the conversation that a kept thread holds.

Clients send their whole history with each request, and not every client can send everything back. So reasoning, web
searches, commentary, ids, the spaces in arguments and a blank text beside calls do not count. All else does: a wrong
match would answer in another conversation.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
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
    RawItem,
    Reasoning,
    TextPart,
    is_models,
)
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import canonical_json, normalized_json, replace, visible

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
        digest = sha256(canonical_json(self.request.spec)).digest()
        digests = {0: digest}
        pending: list[Entry] = []
        for count, entry in entries(self.request.items):
            pending.append(entry)
            if entry[0] == RUN:
                digests[count] = digest = _extended(digest, pending)
                pending = []
        return digests

    def digest(self, count: int, said: Sequence[Item] = ()) -> bytes:
        """Return the digest of the first `count` items, followed by what the model said then."""
        start = next((end for end in reversed(self.digests) if end < count), 0)
        added = entries((*self.request.items[start:count], *said))
        return _extended(self.digests[start], [entry for _, entry in added])


def entries(items: Sequence[Item]) -> Iterator[tuple[int, Entry]]:
    """Yield the parts of a conversation that every client sends back, each with the number of items up to its end.

    The model's messages and calls between two other items are one entry: clients split and join them differently.
    """
    texts: list[str] = []
    calls: list[Entry] = []
    for count, item in enumerate(items):
        if isinstance(item, FunctionCall):
            calls.append((item.call_id, item.namespace, item.name, normalized_json(item.arguments)))
        elif not _is_model_run(item):
            if texts or calls:
                yield count, (RUN, _joined(texts), *calls)
                texts, calls = [], []
            yield count + 1, _entry(item)
        elif isinstance(item, Message) and item.phase != NARRATION:
            texts.append(_text(item))
    if texts or calls:
        yield len(items), (RUN, _joined(texts), *calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What the model said in a turn up to the calls that the client has to answer."""

    items: tuple[Item, ...]
    """All of it: reasoning, messages, calls, and the gateway's own outputs."""
    shown: tuple[str, ...]
    """The ids of the calls that the client was given."""
    presets: tuple[FunctionCallOutput, ...] = ()
    """The gateway's outputs for calls that the client was not given."""
    intervened: bool = False
    """Whether the gateway added something to the turn that no client's history has."""

    def is_repeated_by(self, run: Sequence[Item]) -> bool:
        """Tell whether a client's items repeat this leg; reasoning, searches and commentary may be missing."""
        calls = [item for item in self.items if isinstance(item, FunctionCall) and item.call_id in self.shown]
        repeated = [item for item in run if isinstance(item, FunctionCall)]
        return (
            len(calls) == len(repeated)
            and all(map(_is_same_call, calls, repeated))
            and all(map(self._may_include, run))
            and _text_of(run) in (_text_of(self.items), _text_of(self.items, narrated=False))
        )

    def _may_include(self, item: Item) -> bool:
        """Tell whether an item may be part of a repetition; texts and calls are compared as a whole."""
        if isinstance(item, Reasoning):
            return any(item in _variants(own) for own in _reasoning(self.items))
        if isinstance(item, RawItem):
            return item in self.items
        return _is_model_run(item)

    def moved_reasoning(self, run: Sequence[Item], before: Set[Item]) -> bool:
        """Tell whether the client moved reasoning of this leg to an earlier place, so that it would be there twice."""
        here, own = _reasoning(run), map(_variants, _reasoning(self.items))
        return any(not variants.isdisjoint(before) and variants.isdisjoint(here) for variants in own)

    def outputs(self, given: Sequence[FunctionCallOutput]) -> list[FunctionCallOutput]:
        """Return the client's and the gateway's outputs, in the order of the calls."""
        by_call = {output.call_id: output for output in (*given, *self.presets)}
        calls = (item.call_id for item in self.items if isinstance(item, FunctionCall))
        return [by_call[call_id] for call_id in calls if call_id in by_call]


def with_legs(items: Sequence[Item], leg_of: Callable[[str], Leg | None]) -> tuple[Item, ...]:
    """Return a history in which legs replace the client's repetition of them; `leg_of` finds one by a call's id."""
    result: list[Item] = []
    reasoning: set[Item] = set()
    position = 0
    while position < len(items):
        end = next((i for i in range(position, len(items)) if not _is_model_run(items[i])), len(items))
        run = items[position:end]
        legs = (leg_of(item.call_id) for item in run if isinstance(item, FunctionCall))
        leg = next((leg for leg in legs if leg is not None), None)
        if leg is None or not leg.is_repeated_by(run) or leg.moved_reasoning(run, reasoning):
            end = max(end, position + 1)
            result += items[position:end]
        else:
            given = leading_outputs(items[end : end + len(leg.shown)], leg.shown)
            result += [*leg.items, *leg.outputs(given)]
            end += len(given)
        reasoning.update(_reasoning(run))
        position = end
    return tuple(result)


def leading_outputs(items: Iterable[Item], call_ids: Container[str] | None = None) -> list[FunctionCallOutput]:
    """Return the outputs, of these calls or of any, that come before all other items."""
    outputs: list[FunctionCallOutput] = []
    for item in items:
        if not isinstance(item, FunctionCallOutput) or (call_ids is not None and item.call_id not in call_ids):
            break
        outputs.append(item)
    return outputs


def _extended(digest: bytes, added: Sequence[Entry]) -> bytes:
    return sha256(digest + canonical_json(added)).digest()


def _is_model_run(item: Item) -> bool:
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


def _text(message: Message) -> str:
    return "".join([part.text for part in message.parts if isinstance(part, TextPart)])


def _text_of(items: Sequence[Item], *, narrated: bool = True) -> str:
    messages = (item for item in items if isinstance(item, Message) and item.role == "assistant")
    return _joined(_text(message) for message in messages if narrated or message.phase != NARRATION)


def _joined(texts: Iterable[str]) -> str:
    """Return the texts of a run as one, as clients that have one field for them send them back."""
    # Some clients write a space or a new line where a call came without a text.
    return BETWEEN_MESSAGES.join([text for text in texts if text.strip()])


def _is_same_call(ours: FunctionCall, theirs: FunctionCall) -> bool:
    if (ours.call_id, ours.name) != (theirs.call_id, theirs.name):
        return False
    # A chat client has no field for the namespace.
    if theirs.namespace not in (None, ours.namespace):
        return False
    return ours.arguments == theirs.arguments or normalized_json(ours.arguments) == normalized_json(theirs.arguments)


def _variants(reasoning: Reasoning) -> frozenset[Item]:
    """Return the forms in which clients send reasoning back: some without encrypted content, some without a summary."""
    summaries, contents = (reasoning.summary, ()), (reasoning.encrypted, None)
    return frozenset(replace(reasoning, summary=s, encrypted=e) for s in summaries for e in contents)


def _reasoning(items: Sequence[Item]) -> list[Reasoning]:
    return [item for item in items if isinstance(item, Reasoning)]
