"""Looks at a gateway and its app-servers from outside, again and again: memory, descriptors, processes."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from soak.load import Outcome
from tests.support.gateway_process import GatewayProcess
from tests.support.processes import descendants, descriptors, resident_mb

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was seen at one moment."""

    second: float
    requests: int
    gateway_mb: float
    descriptors: int
    app_servers: int
    largest_mb: float
    app_servers_mb: float


class Watcher:
    """Takes samples until it is cancelled."""

    def __init__(self, gateway: GatewayProcess, outcomes: Sequence[Outcome]) -> None:
        self._gateway = gateway
        self._outcomes = outcomes
        self._began = time.monotonic()
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Take a sample every second."""
        while True:
            self.samples.append(self.look())
            await asyncio.sleep(INTERVAL_S)

    def look(self) -> Sample:
        """Return what there is to be seen now."""
        memory = [resident_mb(pid) for pid in descendants(self._gateway.pid)]
        return Sample(
            second=round(time.monotonic() - self._began, 1),
            requests=len(self._outcomes),
            gateway_mb=round(resident_mb(self._gateway.pid)),
            descriptors=descriptors(self._gateway.pid),
            app_servers=len(self._gateway.app_servers()),
            largest_mb=round(max(memory, default=0)),
            app_servers_mb=round(sum(memory)),
        )
