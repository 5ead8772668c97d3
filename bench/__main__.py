"""`make bench`: the gateway against the same Codex driven directly, interleaved, in one run."""

import asyncio
import contextlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path

import uvloop

from bench.drivers import Direct, Driver, ThroughGateway, app_server, children, cpu_seconds

DELTAS = 20
# Each pair of rounds is over before the machine changes its mind; more rounds, not longer ones, beat the noise.
CODEX = version("openai-codex-cli-bin")
ROUNDS = 5
TURNS_PER_ROUND = {1: 30, 8: 80, 32: 128}
RESULTS = Path(__file__).parent / "RESULTS.md"


@dataclass
class Measured:
    """What one side did at one level of concurrency."""

    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    own_cpu: float = 0.0
    codex_cpu: float = 0.0

    def row(self, name: str, other: "Measured | None" = None) -> str:
        """Return a line of the table; ratios to the other side."""
        first = statistics.median(self.first) * 1000
        p99 = statistics.quantiles(self.first, n=100)[98] * 1000
        rate = statistics.median(self.rates)
        turns = len(self.first)
        own, codex = self.own_cpu / turns * 1000, self.codex_cpu / turns * 1000
        ratios = ""
        if other is not None:
            by_first = first / (statistics.median(other.first) * 1000)
            ratios = f"{by_first:.2f} / {rate / statistics.median(other.rates):.2f}"
        return f"| {name} | {first:.1f} | {p99:.1f} | {rate:.1f} | {own:.2f} | {codex:.1f} | {ratios} |"


@contextlib.asynccontextmanager
async def process(module: str, *words: str) -> AsyncIterator[tuple[str, int]]:
    """Run one of our processes, and yield what it prints first, and its id."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    if child.stdout is None or child.stdin is None:
        raise AssertionError("Both pipes were asked for.")
    try:
        yield (await child.stdout.readline()).decode().strip(), child.pid
    finally:
        child.stdin.close()
        await child.wait()


async def run_round(driver: Driver, at_once: int, turns: int, measured: Measured) -> None:
    """Run some turns, a number at once."""
    left = iter(range(turns))

    async def run() -> None:
        for _ in left:
            first, whole = await driver.turn()
            measured.first.append(first)
            measured.whole.append(whole)

    began = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(at_once)))
    measured.rates.append(turns / (time.perf_counter() - began))


async def measure() -> list[str]:
    """Return the lines of the table."""
    lines = [
        "| | first text ms | p99 ms | turns/s | own CPU ms | Codex CPU ms | first text / turns/s : direct |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        async with (
            process("bench.model", str(DELTAS)) as (provider, _),
            process("bench.gateway", provider, "1", "0") as (url, gateway),
            app_server(provider, Path(scratch)) as worker,
        ):
            through, direct = ThroughGateway(url), Direct(worker)
            for driver in (through, direct):
                await run_round(driver, 4, 20, Measured())
            for at_once, turns in TURNS_PER_ROUND.items():
                ours, theirs = Measured(), Measured()
                for _ in range(ROUNDS):
                    before = cpu_seconds([gateway]), cpu_seconds(children(gateway))
                    await run_round(through, at_once, turns, ours)
                    ours.own_cpu += cpu_seconds([gateway]) - before[0]
                    ours.codex_cpu += cpu_seconds(children(gateway)) - before[1]
                    codex = cpu_seconds([worker.process.pid])
                    await run_round(direct, at_once, turns, theirs)
                    theirs.codex_cpu += cpu_seconds([worker.process.pid]) - codex
                lines += [theirs.row(f"direct, {at_once} at once"), ours.row(f"gateway, {at_once} at once", theirs)]
    return lines


def main() -> None:
    """Measure, print, and write the results."""
    lines = uvloop.run(measure())
    head = [
        "# Results",
        "",
        f"{date.today().isoformat()}, {platform.machine()}, Python {platform.python_version()}, codex {CODEX}.",
        f"Turns of {DELTAS} deltas, one app-server on each side, in interleaved rounds.",
        "Written by `make bench`; see docs/performance.md for what it means.",
        "",
    ]
    text = "\n".join([*head, *lines, ""])
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
