"""Moving windows: how many requests a client has made in the last so many seconds. In memory; the time is passed in."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from turnbridge.turn.rates import Rate

# Windows of clients that stopped asking are removed when there are this many.
MOST_WINDOWS = 4096


class Used(NamedTuple):
    """What a request found in a window."""

    left: int
    """How many more requests it had room for, with this one."""
    frees_in_s: float
    """Until the oldest one leaves it; the length of the window if this is the first."""


class Taken(NamedTuple):
    """Whether a request is allowed by all of its client's rates, and what it found in the window of each."""

    allowed: bool
    windows: Sequence[Used]


class Windows(Protocol):
    """Counts requests."""

    async def take(self, client: str, rates: Sequence[Rate]) -> Taken:
        """Count a request if all rates allow it; a refused request counts for none of them."""
        ...


class Entry(NamedTuple):
    """A request in a window."""

    at: float
    number: int


class MovingWindows:
    """The requests that this process has allowed."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, Rate], deque[Entry]] = {}
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        """Return a number for a request."""
        return next(self._numbers)

    def take(
        self, client: str, rates: Sequence[Rate], now: float, part: Callable[[int], int] = int, number: int = 0
    ) -> Taken:
        """Count a request at `now`, if `part` of the amount of every rate allows it."""
        found = [self._window(client, rate, now) for rate in rates]
        used = [
            Used(part(rate.amount) - len(window), rate.seconds - (now - window[0].at) if window else rate.seconds)
            for rate, window in zip(rates, found, strict=True)
        ]
        allowed = all(each.left > 0 for each in used)
        if allowed:
            for window in found:
                window.append(Entry(now, number))
        return Taken(allowed, used)

    def note(self, client: str, rates: Sequence[Rate], now: float, number: int) -> None:
        """Count a request that another replica has allowed."""
        for rate in rates:
            self._window(client, rate, now).append(Entry(now, number))

    def entries(self, now: float) -> Iterator[tuple[str, Rate, Sequence[Entry]]]:
        """Return all that counts at `now`."""
        for client, rate in list(self._windows):
            if window := self._window(client, rate, now):
                yield client, rate, tuple(window)

    def _window(self, client: str, rate: Rate, now: float) -> deque[Entry]:
        window = self._windows.get((client, rate))
        if window is None:
            self._make_room(now)
            window = self._windows[client, rate] = deque()
        while window and window[0].at <= now - rate.seconds:
            window.popleft()
        return window

    def _make_room(self, now: float) -> None:
        if len(self._windows) >= MOST_WINDOWS:
            live = {
                key: window for key, window in self._windows.items() if window and window[-1].at > now - key[1].seconds
            }
            self._windows = live
