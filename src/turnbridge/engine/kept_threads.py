"""Threads that are kept between two requests of a client: parked turns, and warm threads.

A parked turn waits for the outputs of its calls, and the request that brings them resumes it. A warm thread is idle: a
request whose history begins with the thread's conversation continues in it, so that nothing is replayed and the
provider's prompt cache, which Codex ties to the thread, stays warm. Of the histories there are only digests here.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from turnbridge.engine.history import History, entries, is_model_run, joined
from turnbridge.engine.ports import Thread
from turnbridge.turn.fair_shares import FairShares, K
from turnbridge.turn.items import (
    NARRATION,
    FunctionCall,
    FunctionCallOutput,
    Item,
    JsonObject,
    Message,
    RawItem,
    Reasoning,
    TextPart,
    normalized_json,
    replace,
    size,
)
from turnbridge.turn.request import Tool, TurnRequest, tool_key

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
    served: frozenset[str] = frozenset()
    """The ids of the calls that MCP servers have answered: clients repeat both, the call and its output."""

    def is_repeated_by(self, run: Sequence[Item], tools: Sequence[Tool]) -> bool:
        """Tell whether a client's items repeat this leg; reasoning, searches and commentary may be missing."""
        told = self.served.union(self.shown)
        calls = [item for item in self.items if isinstance(item, FunctionCall) and item.call_id in told]
        repeated = [item for item in run if isinstance(item, FunctionCall)]
        return (
            len(calls) == len(repeated)
            and all(_is_same_call(*pair, tools) for pair in zip(calls, repeated, strict=True))
            and all(map(self._may_include, run))
            and _text_of(run) in (_text_of(self.items), _text_of(self.items, narrated=False))
        )

    def _may_include(self, item: Item) -> bool:
        """Tell whether an item may be part of a repetition; texts and calls are compared as a whole."""
        if isinstance(item, Reasoning):
            return any(item in _variants(own) for own in _reasoning(self.items))
        if isinstance(item, RawItem | FunctionCallOutput):
            return item in self.items
        return is_model_run(item)

    def moved_reasoning(self, run: Sequence[Item], before: Set[Item]) -> bool:
        """Tell whether the client moved reasoning of this leg to an earlier place, so that it would be there twice."""
        here, own = _reasoning(run), map(_variants, _reasoning(self.items))
        return any(not variants.isdisjoint(before) and variants.isdisjoint(here) for variants in own)

    def outputs(self, given: Sequence[FunctionCallOutput]) -> list[FunctionCallOutput]:
        """Return the client's and the gateway's outputs, in the order of the calls."""
        by_call = {output.call_id: output for output in (*given, *self.presets)}
        calls = (item.call_id for item in self.items if isinstance(item, FunctionCall))
        return [by_call[call_id] for call_id in calls if call_id in by_call]


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

    most_parked = MOST_PARKED
    most_parked_characters = MOST_PARKED_CHARACTERS
    most_remembered = MOST_REMEMBERED
    most_remembered_characters = MOST_REMEMBERED_CHARACTERS

    def __init__(self, *, ttl_s: float) -> None:
        shares: FairShares[CallKey] = FairShares(most=self.most_parked, most_bytes=self.most_parked_characters)
        super().__init__(shares, ttl_s=ttl_s)
        self.share: Callable[[str, Leg], None] | None = None
        """Called with each leg that was made here: other replicas may be asked to go on with it."""
        self._legs: dict[CallKey, Leg] = {}
        self._remembered: FairShares[CallKey] = FairShares(
            most=self.most_remembered, most_bytes=self.most_remembered_characters
        )

    def park(self, history: History, thread: Thread, leg: Leg) -> None:
        """Keep a turn open until its outputs come, it expires, or it is evicted."""
        client, items = history.request.spec.client, len(history.request.items)
        parked = Parked(items, history.digest(items), leg)
        self.keep(client, (client, leg.shown[0]), thread, parked, size(leg.items))
        self.said(client, leg)

    def said(self, client: str, leg: Leg) -> None:
        """Remember what the model has just said, and let other replicas know it."""
        self.remember(client, leg)
        if self.share is not None:
            self.share(client, leg)

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
        given = _leading_outputs(reversed(items))
        # Not every provider's call ids are unique: another turn may wait for one of them too.
        for key in [key for output in given if (key := (client, output.call_id)) in self._kept]:
            thread, (count, digest, leg), _ = self._kept[key]
            fits = (
                thread.alive
                and {output.call_id for output in given} == set(leg.shown)
                and leg.is_repeated_by(items[count : len(items) - len(given)], history.request.spec.tools)
                and history.digest(count) == digest
            )
            if fits and all(map(_is_carried_unchanged, given)):
                self.take(key)
                return Claim(thread, leg.outputs(given), leg.intervened)
            if fits:
                self.drop(key)
        return None

    def knows(self, client: str, call_id: str) -> bool:
        """Tell whether the leg of this call is remembered."""
        return (client, call_id) in self._legs

    def leg(self, client: str, call_id: str) -> Leg | None:
        """Return the leg that began with this call, if it is remembered."""
        return self._legs.get((client, call_id))

    def restored(self, request: TurnRequest) -> tuple[Item, ...]:
        """Return the request's history with what the model said in place of the client's repetition."""
        client, items = request.spec.client, request.items
        if not any(isinstance(item, FunctionCall) and self.knows(client, item.call_id) for item in items):
            return items
        result: list[Item] = []
        reasoning: set[Item] = set()
        position = 0
        while position < len(items):
            end = next((i for i in range(position, len(items)) if not is_model_run(items[i])), len(items))
            run = items[position:end]
            legs = (self._legs.get((client, item.call_id)) for item in run if isinstance(item, FunctionCall))
            leg = next((leg for leg in legs if leg is not None), None)
            if leg is None or not leg.is_repeated_by(run, request.spec.tools) or leg.moved_reasoning(run, reasoning):
                end = max(end, position + 1)
                result += items[position:end]
            else:
                given = _leading_outputs(items[end : end + len(leg.shown)], leg.shown)
                result += [*leg.items, *leg.outputs(given)]
                end += len(given)
            reasoning.update(_reasoning(run))
            position = end
        return tuple(result)


def _leading_outputs(items: Iterable[Item], call_ids: Container[str] | None = None) -> list[FunctionCallOutput]:
    """Return the outputs, of these calls or of any, that come before all other items."""
    outputs: list[FunctionCallOutput] = []
    for item in items:
        if not isinstance(item, FunctionCallOutput) or (call_ids is not None and item.call_id not in call_ids):
            break
        outputs.append(item)
    return outputs


def _text_of(items: Sequence[Item], *, narrated: bool = True) -> str:
    messages = (item for item in items if isinstance(item, Message) and item.role == "assistant")
    return joined(message.text for message in messages if narrated or message.phase != NARRATION)


def _is_same_call(ours: FunctionCall, theirs: FunctionCall, tools: Sequence[Tool]) -> bool:
    if (ours.call_id, ours.name) != (theirs.call_id, theirs.name):
        return False
    # A chat client has no field for the namespace.
    if theirs.namespace not in (None, ours.namespace):
        return False
    if ours.arguments == theirs.arguments:
        return True
    defaults = _defaults(ours, tools)
    return normalized_json(ours.arguments, defaults) == normalized_json(theirs.arguments, defaults)


def _defaults(call: FunctionCall, tools: Sequence[Tool]) -> JsonObject:
    """Return the arguments that a tool declares a default for: Claude Code adds `replace_all` to each edit."""
    tool = next((tool for tool in tools if tool.key == tool_key(call.name, call.namespace)), None)
    declared = None if tool is None else tool.parameters.get("properties")
    if not isinstance(declared, dict):
        return {}
    return {name: each["default"] for name, each in declared.items() if isinstance(each, dict) and "default" in each}


def _variants(reasoning: Reasoning) -> frozenset[Item]:
    """Return the forms in which clients send reasoning back: some without encrypted content, some without a summary."""
    summaries, contents = (reasoning.summary, ()), (reasoning.encrypted, None)
    return frozenset(replace(reasoning, summary=s, encrypted=e) for s in summaries for e in contents)


def _reasoning(items: Sequence[Item]) -> list[Reasoning]:
    return [item for item in items if isinstance(item, Reasoning)]


def _is_carried_unchanged(output: FunctionCallOutput) -> bool:
    """Tell whether Codex passes an output on as it is.

    It changes an image's detail, hides a broken image, and has no field for the name of the function.
    """
    if output.name is not None or output.namespace is not None:
        return False
    return isinstance(output.output, str) or all(isinstance(part, TextPart) for part in output.output)
