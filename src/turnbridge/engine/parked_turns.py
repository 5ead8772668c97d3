"""Turns that wait for the outputs of their calls between two requests of a client.

A parked turn is open in Codex. The request that brings the outputs resumes it if it repeats the same conversation and
adds nothing else. Any other request is replayed, with what the model said before its calls in place of the client's
repetition, for as long as that is remembered.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from turnbridge.engine.history_match import History, Leg, leading_outputs, with_legs
from turnbridge.engine.kept_threads import KeptThreads
from turnbridge.engine.ports import Thread
from turnbridge.turn.fair_shares import FairShares
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Item, TextPart
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import size

# A parked turn holds a thread in Codex's memory, a megabyte, and here its leg. Of the history there is only a digest.
MOST_PARKED = 256
MOST_PARKED_CHARACTERS = 64 * 2**20
# A leg is a few kilobytes; clients repeat old calls for as long as the conversation lasts.
MOST_REMEMBERED = 4096
# Some models write whole files in their calls.
MOST_REMEMBERED_CHARACTERS = 64 * 2**20

# A client, and the first call that it was given. Call ids are the provider's: two clients may have the same.
_Key: TypeAlias = tuple[str, str]


class _Parked(NamedTuple):
    items: int
    """How many items the history has before the leg."""
    digest: bytes
    """The digest of these items."""
    leg: Leg


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A turn that can be resumed, and the outputs that it waits for."""

    thread: Thread
    outputs: list[FunctionCallOutput]
    intervened: bool
    """As in `Leg`."""


class ParkedTurns:
    """The turns that wait for outputs, and the legs of earlier ones."""

    def __init__(self, *, ttl_s: float) -> None:
        places: FairShares[_Key] = FairShares(most=MOST_PARKED, most_bytes=MOST_PARKED_CHARACTERS)
        self._turns: KeptThreads[_Key, _Parked] = KeptThreads(places, ttl_s=ttl_s)
        self._legs: dict[_Key, Leg] = {}
        self._remembered: FairShares[_Key] = FairShares(most=MOST_REMEMBERED, most_bytes=MOST_REMEMBERED_CHARACTERS)

    def __len__(self) -> int:
        """Return how many turns wait in an app-server that is alive."""
        return len(self._turns)

    def park(self, history: History, thread: Thread, leg: Leg) -> None:
        """Keep a turn open until its outputs come, it expires, or it is evicted."""
        client, items = history.request.spec.client, len(history.request.items)
        parked = _Parked(items, history.digest(items), leg)
        self._turns.keep(client, (client, leg.shown[0]), thread, parked, size(leg.items))
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
        """Return the turn that this request resumes, if there is one."""
        items, client = history.request.items, history.request.spec.client
        given = leading_outputs(reversed(items))
        keys = ((client, output.call_id) for output in given)
        found = next(((key, kept) for key in keys if (kept := self._turns.get(key)) is not None), None)
        if found is None:
            return None
        key, (thread, (count, digest, leg), _) = found
        fits = (
            thread.alive
            and {output.call_id for output in given} == set(leg.shown)
            and leg.is_repeated_by(items[count : len(items) - len(given)])
            and history.digest(count) == digest
        )
        if not fits:
            return None
        if not all(map(_is_carried_unchanged, given)):
            self._turns.drop(key)
            return None
        self._turns.take(key)
        return Claim(thread=thread, outputs=leg.outputs(given), intervened=leg.intervened)

    def knows(self, client: str, call_id: str) -> bool:
        """Tell whether the leg of this call is remembered."""
        return (client, call_id) in self._legs

    def restored(self, request: TurnRequest) -> tuple[Item, ...]:
        """Return the request's history with what the model said in place of the client's repetition."""
        client = request.spec.client
        if not any(isinstance(item, FunctionCall) and self.knows(client, item.call_id) for item in request.items):
            return request.items
        return with_legs(request.items, lambda call_id: self._legs.get((client, call_id)))

    def close(self) -> None:
        """Close all turns that wait."""
        self._turns.close()


def _is_carried_unchanged(output: FunctionCallOutput) -> bool:
    """Tell whether Codex passes an output on as it is.

    It changes an image's detail, hides a broken image, and has no field for the name of the function.
    """
    if output.name is not None or output.namespace is not None:
        return False
    return isinstance(output.output, str) or all(isinstance(part, TextPart) for part in output.output)
