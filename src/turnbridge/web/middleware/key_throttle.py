"""A brake on guessing keys: a peer that has sent many wrong ones learns nothing of the next for a while."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from turnbridge.turn.errors import RateLimited
from turnbridge.web.server.peers import is_loopback, network_of

MOST_WRONG_KEYS = 20
"""A client with a mistake in its configuration sends a few before somebody notices."""

WINDOW_S = 60.0
"""How long wrong keys count, and so the longest time for which a peer is refused."""

MOST_REMEMBERED = 4096
"""Peers with wrong keys, and pairs of a peer and a right key; the oldest are forgotten."""

TOO_MANY = "Too many wrong keys came from this address. Check the key, and try again later."


@dataclass(slots=True)
class _Guesses:
    ends_at: float
    count: int = 0


class KeyBrake:
    """Counts wrong keys for each peer.

    A key that was right before from this peer is always accepted, so that nobody behind the same address is hurt. On
    this machine any right key is: a reverse proxy there stands for everybody, those who have yet to show their key too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, _Guesses] = OrderedDict()
        self._right: OrderedDict[tuple[str, str], None] = OrderedDict()

    def judge(self, address: str, client: str | None) -> None:
        """Take note of a peer's key, whose client is known if it is right; raises `RateLimited` after too many."""
        network = network_of(address)
        trusted = client is not None and (is_loopback(address) or (network, client) in self._right)
        guesses = self._wrong.get(network)
        if guesses is not None and guesses.count >= MOST_WRONG_KEYS and not trusted:
            left = guesses.ends_at - self._clock()
            if left > 0:
                # Said of a right key too: otherwise this would be an answer to the guess.
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
