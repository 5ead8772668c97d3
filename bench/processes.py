"""The processes of a measurement, and what the system says they cost. Linux only: it reads `/proc`."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from bench.client import API_KEY, RequestFailed
from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.stand_in import stand_in

ROOT = Path(__file__).parents[1]
SCRIPTED_CODEX = Path(__file__).with_name("scripted_codex.py")
# Codex has to find a provider in its configuration, also if nobody is asked.
NOBODY = "http://127.0.0.1:9/v1"
# No app-server is replaced in the middle of a measurement.
NEVER = 1_000_000
# For as many streams as are opened at once; admission is not what is measured.
MANY_TURNS = 10_000
# Who uses less than this in that time is at rest.
SETTLE_S, IDLE_CPU_S = 0.5, 0.02
SETTLE_TIMEOUT_S = 30.0
# The clock of a process's own time, by which Linux makes a clock's number of its id (as `clock_getcpuclockid` does):
# `/proc` counts in hundredths of a second only.
CPU_CLOCK = 2
# Enough of a log to see what went wrong.
LOG_CHARACTERS = 2000
# A process that has not ended by then hangs.
END_TIMEOUT_S = 10.0


@contextlib.asynccontextmanager
async def module(name: str, *words: str) -> AsyncIterator[tuple[str, int]]:
    """Run one of our modules until the context ends; yield what it prints first, and its process id."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", name, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    if child.stdout is None or child.stdin is None:
        raise AssertionError("Both pipes were asked for.")
    try:
        yield (await child.stdout.readline()).decode().strip(), child.pid
    finally:
        child.stdin.close()
        async with asyncio.timeout(END_TIMEOUT_S):
            await child.wait()


@contextlib.asynccontextmanager
async def gateway(directory: Path, provider: str, **settings: object) -> AsyncIterator[GatewayProcess]:
    """Run the command that users run, with its defaults but for these settings, until the context ends."""
    chosen = {"PROXY_API_KEY": API_KEY, "WORKER_MAX_GROWTH_MB": NEVER, "PROXY_MAX_TURNS": MANY_TURNS, **settings}
    async with gateway_process(directory, provider, chosen) as running:
        try:
            await running.ready()
            await _settled(running)
            yield running
        except (TimeoutError, RequestFailed) as error:
            error.add_note(f"The log of the gateway ends so: {running.log()[-LOG_CHARACTERS:]}")
            raise


def gateway_alone(directory: Path, **settings: object) -> contextlib.AbstractAsyncContextManager[GatewayProcess]:
    """Run the same on one app-server that only speaks recorded shapes."""
    codex = stand_in(directory / "codex", str(SCRIPTED_CODEX))
    return gateway(directory, NOBODY, WORKER_COUNT=1, CODEX_BIN=codex, **settings)


async def _settled(running: GatewayProcess) -> None:
    """Return when nobody has anything to do: what is done ahead must not be counted as a request's work."""
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        used = 1.0
        while used > IDLE_CPU_S:
            before = cpu_seconds([running.pid, *running.app_servers()])
            await asyncio.sleep(SETTLE_S)
            used = cpu_seconds([running.pid, *running.app_servers()]) - before


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time that processes have used; one that has ended counts nothing."""
    used = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            used += time.clock_gettime(~pid << 3 | CPU_CLOCK)
    return used


def writes(pids: Iterable[int]) -> int:
    """Return how often processes have called the system to write."""
    told = (Path(f"/proc/{pid}/io").read_text(encoding="ascii") for pid in pids)
    return sum(int(line.split()[1]) for lines in told for line in lines.splitlines() if line.startswith("syscw"))
