"""Harms the app-servers of a gateway at random, and tells which endings of requests that explains."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from soak.load import Outcome
from tests.support.gateway_process import GatewayProcess
from tests.support.processes import command

# How long after a fault requests may still hear of it: a stopped app-server has to be noticed first.
AFTERMATH_S = {"kill": 10.0, "stop": 20.0, "garbage": 0.0}
# Codes that a death explains. Garbage explains none: it must be passed over.
TOLD_AFTER_A_DEATH = ("backend_unavailable",)
# A client that does not read is told so, if it ever reads.
SELF_INFLICTED = ("slow_reader",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that was done to an app-server."""

    kind: str
    at: float


class Faults:
    """Does harm from time to time, and remembers it."""

    def __init__(self, gateway: GatewayProcess, chance: random.Random, *, interval_s: float) -> None:
        self._gateway = gateway
        self._chance = chance
        self._interval_s = interval_s
        self.done: list[Fault] = []

    async def run(self, until: float) -> None:
        """Do harm until the time is up."""
        for kind in self._kinds():
            await asyncio.sleep(self._interval_s * self._chance.uniform(0.5, 1.5))
            if time.monotonic() >= until:
                return
            self._harm(kind)

    def explain(self, outcome: Outcome) -> bool:
        """Tell whether an ending is a good one, or one that a fault explains."""
        if outcome.defect is not None:
            return False
        if outcome.told is None or outcome.told in SELF_INFLICTED:
            return True
        return outcome.told in TOLD_AFTER_A_DEATH and any(
            fault.at <= outcome.ended and outcome.began <= fault.at + AFTERMATH_S[fault.kind]
            for fault in self.done
            if AFTERMATH_S[fault.kind]
        )

    def counts(self) -> Counter[str]:
        """Return how often what was done."""
        return Counter(fault.kind for fault in self.done)

    def _kinds(self) -> Iterator[str]:
        """Yield each kind once, then any; a stop comes first, because it takes longest to be noticed."""
        yield from ("stop", "kill", "garbage")
        while True:
            yield self._chance.choice(tuple(AFTERMATH_S))

    def _harm(self, kind: str) -> None:
        there = self._gateway.app_servers()
        # Only the program in between understands the signal for garbage.
        targets = [pid for pid in there if "noisy_codex" in command(pid)] if kind == "garbage" else there
        if not targets:
            return
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "garbage": signal.SIGUSR1}[kind]
        try:
            os.kill(self._chance.choice(targets), number)
        except ProcessLookupError:
            return
        self.done.append(Fault(kind=kind, at=time.monotonic()))
