"""Calls that wait for a client between two of its requests: the turn stays open in Codex, and is resumed by the request
that brings the outputs, if that continues exactly what was left. Any other request is replayed, with the model's own
words put back into its history as far as they are still held.
"""

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass
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
    RawItem,
    Reasoning,
    TextPart,
    is_models,
)
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import replace, rewritten, size

# A parked turn holds a thread in Codex's memory, a megabyte, and here what the model said up to its calls; of what
# came before that there is only a digest.
MOST_PARKED = 256
MOST_PARKED_CHARACTERS = 64 * 2**20
# A leg's own words are a few kilobytes; clients come back to old calls for as long as the conversation lasts.
MOST_REMEMBERED = 4096
# Some write whole files in their calls. As much is held for warm threads, unless told otherwise.
MOST_REMEMBERED_CHARACTERS = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What was said in a turn up to the calls that the client has to answer."""

    items: tuple[Item, ...]
    """All of it: thoughts, messages, calls, and what the gateway itself answered."""
    shown: tuple[str, ...]
    """The ids of the calls that the client was given."""
    presets: tuple[FunctionCallOutput, ...] = ()
    """The gateway's own outputs for calls that the client was not given."""
    intervened: bool = False
    """Whether the gateway itself said something in the turn that no client's history will tell."""

    def is_told_by(self, said: Sequence[Item]) -> bool:
        """Tell whether a client's account of this leg is true; thoughts and narration may be missing from it."""
        calls = [item for item in self.items if isinstance(item, FunctionCall) and item.call_id in self.shown]
        told = [item for item in said if isinstance(item, FunctionCall)]
        if len(calls) != len(told) or not all(map(_same_call, calls, told)):
            return False
        if not all(self._could_tell(item) for item in said):
            return False
        return _texts(said) in (_texts(self.items), _texts(self.items, narrated=False))

    def _could_tell(self, item: Item) -> bool:
        """Tell whether an item may stand in a true account; texts and calls are compared as a whole."""
        if isinstance(item, Reasoning):
            return any(item in _accounts(thought) for thought in self.items if isinstance(thought, Reasoning))
        if isinstance(item, RawItem):
            return item in self.items
        return _is_comparable(item)

    def answers_in(self, following: Sequence[Item]) -> list[FunctionCallOutput]:
        """Return the outputs at the beginning of what follows that belong to the calls the client was given."""
        given: list[FunctionCallOutput] = []
        for item in following:
            if not isinstance(item, FunctionCallOutput) or item.call_id not in self.shown:
                break
            given.append(item)
        return given

    def outputs(self, given: Sequence[FunctionCallOutput]) -> list[FunctionCallOutput]:
        """Return the outputs of all open calls, in the order of the calls."""
        by_call = {output.call_id: output for output in (*given, *self.presets)}
        calls = (item.call_id for item in self.items if isinstance(item, FunctionCall))
        return [by_call[call_id] for call_id in calls if call_id in by_call]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parked:
    items: int
    """How many items came before what the model said."""
    digest: bytes
    """Of these items, and of what has to be the same in the request that resumes the turn."""
    thread: Thread
    leg: Leg
    expiry: asyncio.TimerHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A turn that can go on, and the outputs that it waits for."""

    thread: Thread
    outputs: list[FunctionCallOutput]
    intervened: bool
    """As in `Leg`."""


# A client, and the first call that it was given. Call ids are the provider's: two clients may be given the same.
_Key: TypeAlias = tuple[str, str]


class ParkedTurns:
    """The turns that wait for outputs, and the memory of those that did."""

    def __init__(self, *, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._parked: dict[_Key, _Parked] = {}
        self._places: FairShares[_Key] = FairShares(most=MOST_PARKED, most_bytes=MOST_PARKED_CHARACTERS)
        self._legs: dict[_Key, Leg] = {}
        self._remembered: FairShares[_Key] = FairShares(most=MOST_REMEMBERED, most_bytes=MOST_REMEMBERED_CHARACTERS)

    def __len__(self) -> int:
        """Return how many turns wait; one whose app-server has died does not."""
        return sum(parked.thread.alive for parked in self._parked.values())

    def park(self, request: TurnRequest, thread: Thread, leg: Leg) -> None:
        """Keep a turn open until its outputs come, its time is up, or there are too many.

        In that case the client that has most of them loses its oldest.
        """
        key = request.client, leg.shown[0]
        if key in self._parked:
            self._drop(key)
        expiry = asyncio.get_running_loop().call_later(self._ttl_s, self._drop, key)
        self._parked[key] = _Parked(
            items=len(request.items),
            digest=_digest(request, request.items),
            thread=thread,
            leg=leg,
            expiry=expiry,
        )
        self._places.add(request.client, key, size(leg.items))
        if self._places.excess() is not None:
            self._make_room()
        self.remember(request.client, leg)

    def remember(self, client: str, leg: Leg) -> None:
        """Keep what the model said, for a history of this client's that comes without it.

        When it is too much, the client that has most of it loses the oldest.
        """
        key = client, leg.shown[0]
        self._legs[key] = leg
        self._remembered.add(client, key, size(leg.items))
        while (excess := self._remembered.excess()) is not None:
            self._remembered.remove(excess)
            del self._legs[excess]

    def claim(self, request: TurnRequest) -> Claim | None:
        """Return the turn that this request continues, if one waits for just this."""
        before, given = _split(request.items)
        keys = ((request.client, output.call_id) for output in given)
        key = next((key for key in keys if key in self._parked), None)
        if key is None:
            return None
        parked = self._parked[key]
        fits = (
            parked.thread.alive
            and {output.call_id for output in given} == set(parked.leg.shown)
            and parked.leg.is_told_by(before[parked.items :])
            and parked.digest == _digest(request, before[: parked.items])
        )
        if not fits:
            return None
        if not all(map(_answerable, given)):
            self._drop(key)
            return None
        self._forget(key)
        leg = parked.leg
        return Claim(thread=parked.thread, outputs=leg.outputs(given), intervened=leg.intervened)

    def knows(self, client: str, call_id: str) -> bool:
        """Tell whether what the model said with this call is remembered."""
        return (client, call_id) in self._legs

    def restored(self, request: TurnRequest) -> tuple[Item, ...]:
        """Return a history with the model's own words in the place of the client's account of them."""
        items = request.items
        if not any(isinstance(item, FunctionCall) and self.knows(request.client, item.call_id) for item in items):
            return items
        result: list[Item] = []
        thoughts: set[Reasoning] = set()
        position = 0
        while position < len(items):
            end = next((i for i in range(position, len(items)) if not _is_comparable(items[i])), len(items))
            said = items[position:end]
            leg = self._leg_told_by(request.client, said)
            if leg is None or _moved(leg, said, thoughts):
                end = max(end, position + 1)
                result += items[position:end]
            else:
                given = leg.answers_in(items[end : end + len(leg.shown)])
                result += [*leg.items, *leg.outputs(given)]
                end += len(given)
            thoughts.update(item for item in said if isinstance(item, Reasoning))
            position = end
        return tuple(result)

    def close(self) -> None:
        """Give up every turn that waits."""
        for key in list(self._parked):
            self._drop(key)

    def _leg_told_by(self, client: str, said: Sequence[Item]) -> Leg | None:
        calls = ((client, item.call_id) for item in said if isinstance(item, FunctionCall))
        leg = next((self._legs[call] for call in calls if call in self._legs), None)
        return leg if leg is not None and leg.is_told_by(said) else None

    def _make_room(self) -> None:
        """Give up what is of no use any more, then what is too much."""
        for dead in [key for key, parked in self._parked.items() if not parked.thread.alive]:
            self._drop(dead)
        while (excess := self._places.excess()) is not None:
            self._drop(excess)

    def _drop(self, key: _Key) -> None:
        self._forget(key).thread.close()

    def _forget(self, key: _Key) -> _Parked:
        parked = self._parked.pop(key)
        parked.expiry.cancel()
        self._places.remove(key)
        return parked


def _digest(request: TurnRequest, items: Sequence[Item]) -> bytes:
    """Return what a request has in common only with those that resume its turn, as far as these items go."""
    return digest((request.lasting(), *items))


def _accounts(thought: Reasoning) -> frozenset[Reasoning]:
    """Return how clients tell a thought: some do not ask for its encrypted content, some drop its summary."""
    summaries, secrets = (thought.summary, ()), (thought.encrypted, None)
    return frozenset(replace(thought, summary=s, encrypted=e) for s in summaries for e in secrets)


def _moved(leg: Leg, said: Sequence[Item], before: Set[Reasoning]) -> bool:
    """Tell whether the client put a thought of this leg elsewhere, so that it would be said twice."""
    told = {item for item in said if isinstance(item, Reasoning)}
    thoughts = (_accounts(item) for item in leg.items if isinstance(item, Reasoning))
    return any(not accounts.isdisjoint(before) and accounts.isdisjoint(told) for accounts in thoughts)


def _split(items: tuple[Item, ...]) -> tuple[tuple[Item, ...], list[FunctionCallOutput]]:
    """Return a history, and the outputs at its end."""
    outputs: list[FunctionCallOutput] = []
    for item in reversed(items):
        if not isinstance(item, FunctionCallOutput):
            break
        outputs.insert(0, item)
    return items[: len(items) - len(outputs)], outputs


def _answerable(output: FunctionCallOutput) -> bool:
    """Tell whether Codex can be given an output as it is.

    It would bend an image's detail, hide a broken image, and has no place for the name of the function.
    """
    if output.name is not None or output.namespace is not None:
        return False
    return isinstance(output.output, str) or all(isinstance(part, TextPart) for part in output.output)


def _is_comparable(item: Item) -> bool:
    """Tell whether the model itself said this, in words that can be compared with its own."""
    if isinstance(item, Message) and not all(isinstance(part, TextPart) for part in item.parts):
        return False
    return is_models(item)


def _same_call(ours: FunctionCall, theirs: FunctionCall) -> bool:
    if (ours.call_id, ours.name) != (theirs.call_id, theirs.name):
        return False
    # A chat client has no way to give a namespace back.
    if theirs.namespace not in (None, ours.namespace):
        return False
    # Clients write arguments anew, with other spaces.
    return ours.arguments == theirs.arguments or rewritten(ours.arguments) == rewritten(theirs.arguments)


def _texts(items: Sequence[Item], *, narrated: bool = True) -> str:
    spoken = (
        "".join(part.text for part in item.parts if isinstance(part, TextPart))
        for item in items
        if isinstance(item, Message) and item.role == "assistant" and (narrated or item.phase != NARRATION)
    )
    # Some clients write a space or a new line where a call came without a text.
    return BETWEEN_MESSAGES.join(text for text in spoken if text.strip())
