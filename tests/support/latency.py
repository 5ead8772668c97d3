"""How long `/healthz` takes: the latency that every client of a gateway has, whatever it asks for."""

import asyncio
import json
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.support import healthz


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long `/healthz` took."""

    asked: int
    p99_s: float
    longest_s: float


class LatencyWatch:
    """Measures `/healthz` from a process of its own, from its start until it is read."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str) -> "LatencyWatch":
        """Begin to measure."""
        address = urlsplit(url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, healthz.__file__, str(address.hostname), str(address.port)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        if await process.stdout.readline() != healthz.GREETING:
            raise AssertionError("The measurement of /healthz did not start.")
        return cls(process)

    async def read(self) -> Latency:
        """Stop, and return what was measured."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        printed, _ = await self._process.communicate()
        return Latency(**json.loads(printed))

    async def stop(self) -> None:
        """End the measurement, read or not."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
