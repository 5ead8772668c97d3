"""Runs the same requests on several sides, a few on each in turn, so that whatever the machine does happens to all."""

import asyncio
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bench.client import Timed
from bench.processes import cpu_seconds, writes

# After so long no further round begins: the whole bench should take minutes, whatever the machine.
ENOUGH_S = 100.0
# Long enough for an app-server to start on a busy machine.
START_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to get answers, and the processes that do the work."""

    name: str
    ask: Callable[[], Awaitable[Timed]]
    own: Sequence[int] = ()
    """The server itself."""
    behind: Callable[[], Sequence[int]] = tuple
    """The app-servers behind it."""


@dataclass(slots=True)
class Measured:
    """What one side did: seconds."""

    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    deltas: int = 0
    wall: float = 0.0
    own_cpu: float = 0.0
    behind_cpu: float = 0.0
    writes: int = 0

    @property
    def median_ms(self) -> float:
        """Return the usual time to the first text."""
        return statistics.median(self.first) * 1000

    @property
    def p99_ms(self) -> float:
        """Return the time to the first text that one in a hundred exceeds."""
        return statistics.quantiles(self.first, n=100, method="inclusive")[98] * 1000

    @property
    def whole_ms(self) -> float:
        """Return the usual time to the end."""
        return statistics.median(self.whole) * 1000

    @property
    def rate(self) -> float:
        """Return requests a second, over all rounds."""
        return len(self.first) / self.wall

    @property
    def own_ms(self) -> float:
        """Return the processor time of the server itself for each request."""
        return self.own_cpu / len(self.first) * 1000

    @property
    def behind_ms(self) -> float:
        """Return the processor time of the app-servers for each request."""
        return self.behind_cpu / len(self.first) * 1000

    @property
    def delta_us(self) -> float:
        """Return the processor time of the server itself for each delta, requests included."""
        return self.own_cpu / self.deltas * 1e6

    @property
    def per_core(self) -> float:
        """Return deltas for each second of the server's processor time."""
        return self.deltas / self.own_cpu if self.own_cpu else math.inf


async def interleaved(
    sides: Sequence[Side], *, at_once: int, requests: int, rounds: int, before: Sequence[Measured] | None = None
) -> list[Measured]:
    """Run `requests` on every side in each round; on a machine that is too slow for them, there are fewer rounds.

    What was measured `before` is added to.
    """
    measured = list(before) if before is not None else [Measured() for _ in sides]
    end = time.monotonic() + ENOUGH_S
    for number in range(rounds):
        if number and time.monotonic() > end:
            break
        # In each round another one begins, so that no side always comes after the same one.
        begin = number % len(sides)
        pairs = list(zip(sides, measured, strict=True))
        for side, one in pairs[begin:] + pairs[:begin]:
            behind = sorted(side.behind())
            own_cpu, behind_cpu, written = cpu_seconds(side.own), cpu_seconds(behind), writes(side.own)
            await _round(side, at_once, requests, one)
            one.writes += writes(side.own) - written
            one.own_cpu += cpu_seconds(side.own) - own_cpu
            one.behind_cpu += cpu_seconds(behind) - behind_cpu
            if sorted(side.behind()) != behind:
                raise AssertionError(f"{side.name}: an app-server was replaced in the middle of a measurement.")
    return measured


async def warm_up(sides: Sequence[Side], requests: int = 32) -> None:
    """Let every side load what stays loaded, and start the app-servers that it has under load."""
    for side in sides:
        await _round(side, 8, requests, Measured())
    # An app-server that was asked for last is still starting.
    await asyncio.sleep(START_S)


async def _round(side: Side, at_once: int, requests: int, measured: Measured) -> None:
    left = iter(range(requests))

    async def ask_on() -> None:
        for _ in left:
            timed = await side.ask()
            measured.first.append(timed.first)
            measured.whole.append(timed.whole)
            measured.deltas += timed.deltas

    began = time.perf_counter()
    await asyncio.gather(*(ask_on() for _ in range(at_once)))
    measured.wall += time.perf_counter() - began
