"""Rate limits per key, such as `60/minute`, with moving windows.

The counts are kept in this process, or by what counts for all replicas.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from turnbridge.engine.windows import MovingWindows, Taken, Windows
from turnbridge.turn.rates import Rate, parse_rates

RATE_HEADERS = ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of one limit of a client."""

    limit: Rate
    remaining: int
    frees_in_s: float
    """Until the next request is allowed."""
    refused: bool = False

    def headers(self) -> list[tuple[bytes, bytes]]:
        values = (str(self.limit.amount), str(self.remaining), duration(self.frees_in_s))
        return [(name.encode(), value.encode()) for name, value in zip(RATE_HEADERS, values, strict=True)]


class OwnWindows:
    """Counts the requests of one gateway that shares nothing."""

    def __init__(self) -> None:
        self._windows = MovingWindows()

    async def take(self, client: str, rates: Sequence[Rate]) -> Taken:
        """Count a request if all rates allow it."""
        return self._windows.take(client, rates, time.time())


class RequestRates:
    """The limit of clients that have none of their own, and the counts of all clients."""

    def __init__(self, usual: str | None, windows: Windows | None = None) -> None:
        """`windows` count for all replicas; without them, this gateway counts for itself."""
        self.usual = parse_rates(usual) if usual else ()
        """The limits of clients that have none of their own."""
        self._windows = OwnWindows() if windows is None else windows

    async def take(self, client: str, limits: Sequence[Rate] | None = None) -> Standing:
        """Count a request, unless a limit is exceeded, and return the state of the tightest limit.

        `limits` are the usual ones unless given, and not empty.
        """
        limits = self.usual if limits is None else limits
        taken = await self._windows.take(client, limits)
        standings = [
            Standing(
                limit=limit,
                remaining=max(used.left - taken.allowed, 0),
                frees_in_s=min(max(used.frees_in_s, 0), limit.seconds),
                refused=not taken.allowed,
            )
            for limit, used in zip(limits, taken.windows, strict=True)
        ]
        if taken.allowed:
            return min(standings, key=lambda standing: (standing.remaining, -standing.frees_in_s))
        return max(standings, key=lambda standing: (-standing.remaining, standing.frees_in_s))


def duration(seconds: float) -> str:
    """Return a duration in OpenAI's format: `20ms`, `1.5s`, `6m0s`, `1h0m0s`."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{larger}{rest / 1000:g}s"
