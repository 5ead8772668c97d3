"""Throttling of key guessing: after many wrong keys, a peer gets 429 instead of an answer to its next guess."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from turnbridge.turn.errors import RateLimited
from turnbridge.web.server.peers import is_loopback, network_of

# A misconfigured client sends a few before somebody notices.
MOST_WRONG_KEYS = 20
# How long wrong keys count, and so the longest time for which a peer is throttled.
WINDOW_S = 60.0
# Peers with wrong keys, and pairs of a peer and a valid key; the oldest are evicted.
MOST_REMEMBERED = 4096
TOO_MANY = "Too many wrong keys came from this address. Check the key, and try again later."


@dataclass(slots=True)
class _Guesses:
    ends_at: float
    count: int = 0


class KeyBrake:
    """Counts wrong keys per peer.

    A valid key that this peer has used before is always accepted, so that clients behind the same address are not
    affected. From loopback every valid key is, since a reverse proxy there serves all clients, new ones included.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, _Guesses] = OrderedDict()
        self._right: OrderedDict[tuple[str, str], None] = OrderedDict()

    def judge(self, address: str, client: str | None) -> None:
        """Count a peer's key, which is wrong if `client` is None; raises `RateLimited` after too many wrong ones."""
        network = network_of(address)
        trusted = client is not None and (is_loopback(address) or (network, client) in self._right)
        guesses = self._wrong.get(network)
        if guesses is not None and guesses.count >= MOST_WRONG_KEYS and not trusted:
            left = guesses.ends_at - self._clock()
            if left > 0:
                # Also for a valid key: otherwise this would answer the guess.
                raise RateLimited(TOO_MANY, code="too_many_wrong_keys", retry_after=left)
        if client is None:
            self._note_wrong(network)
        elif not is_loopback(address):
            self._note_right(network, client)

    def _note_right(self, network: str, client: str) -> None:
        self._right[network, client] = None
        self._right.move_to_end((network, client))
        if len(self._right) > MOST_REMEMBERED:
            self._right.popitem(last=False)

    def _note_wrong(self, network: str) -> None:
        now = self._clock()
        guesses = self._wrong.get(network)
        if guesses is None or guesses.ends_at <= now:
            self._wrong.pop(network, None)
            guesses = self._wrong[network] = _Guesses(ends_at=now + WINDOW_S)
        guesses.count += 1
        if len(self._wrong) > MOST_REMEMBERED:
            self._wrong.popitem(last=False)
