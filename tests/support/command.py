"""`turnbridge` as a user runs it: a process of its own, with a home of its own."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

PATIENCE_S = 90
"""After this a test has failed."""


def environment(directory: Path, **variables: str) -> dict[str, str]:
    usual = {"PATH": os.environ["PATH"], "HOME": str(directory), "PROXY_DATA_DIR": str(directory / "data")}
    # Nobody listens on this port, whatever else runs on this machine.
    return {**usual, "WORKER_COUNT": "1", "PORT": "9", **variables}


@dataclass(slots=True)
class Finished:
    status: int
    out: str
    err: str


async def run(directory: Path, *words: str, stdin: str = "", **variables: str) -> Finished:
    """Run `turnbridge` to its end."""
    process = await start(directory, *words, **variables)
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate(stdin.encode())
    finally:
        # Codex of a command that has ended is gone; a gateway in the same directory keeps its own.
        if process.returncode is None:
            await end_by_force(process, directory)
    return Finished(process.returncode or 0, out.decode(), err.decode())


async def start(directory: Path, *words: str, **variables: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnbridge", *words),
        env=environment(directory, **variables),
        cwd=directory,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def end_by_force(process: asyncio.subprocess.Process, directory: Path) -> None:
    """Leave nothing of a gateway behind, whatever a test has found out about it."""
    if process.returncode is None:
        process.kill()
        await process.communicate()
    for pid in codex_pids(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def codex_pids(directory: Path) -> list[int]:
    """Return the processes that have our data directory on their command line, which are all Codex."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:  # It has just ended.
            continue
        if os.fsencode(directory / "data") in command:
            found.append(int(path.parent.name))
    return found


@dataclass(slots=True)
class Serving:
    """A running `turnbridge serve`, and what it has printed."""

    process: asyncio.subprocess.Process
    directory: Path
    printed: str = ""
    url: str = ""

    async def read_until(self, mark: str) -> None:
        """Read what is printed, up to the line with a mark."""
        assert self.process.stdout is not None
        while mark not in self.printed:
            line = await self.process.stdout.readline()
            if not line:
                _, err = await self.process.communicate()
                pytest.fail(f"It ended early: {self.printed}{err.decode()}")
            self.printed += line.decode()

    def shown(self, pattern: str) -> str:
        """Return what the pattern finds in the printed text."""
        found = re.search(pattern, self.printed, re.MULTILINE | re.DOTALL)
        assert found, self.printed
        return found[1]

    async def readiness(self, key: str | None = None) -> httpx2.Response:
        """Ask whether it can run turns; only with the key it tells why not."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(trust_env=False) as client:
            return await client.get(f"{self.url}/readyz", headers=headers)

    async def ready(self) -> None:
        while (await self.readiness()).status_code != 200:  # noqa: ASYNC110 - as probes do
            await asyncio.sleep(0.02)

    async def end(self, number: signal.Signals) -> Finished:
        """Send a signal, and return what is left of the process."""
        self.process.send_signal(number)
        out, err = await self.process.communicate()
        return Finished(self.process.returncode or 0, out.decode(), err.decode())

    def codex_pids(self) -> list[int]:
        if not Path("/proc/self/cmdline").exists():
            pytest.skip("only Linux shows the command lines of processes")
        return codex_pids(self.directory)

    async def until_codex_is_gone(self) -> None:
        while self.codex_pids():  # noqa: ASYNC110 - nobody tells when a process ends that is not ours
            await asyncio.sleep(0.02)


@asynccontextmanager
async def serving(directory: Path, *words: str, **variables: str) -> AsyncIterator[Serving]:
    """Run the gateway on a free port; afterwards it has ended, if need be by force."""
    process = await start(directory, "serve", "--port", "0", *words, **variables)
    try:
        async with asyncio.timeout(PATIENCE_S):
            gateway = Serving(process, directory)
            await gateway.read_until("API key")
            gateway.url = gateway.shown(r"Base URL +(\S+)/v1$")
            yield gateway
    finally:
        await end_by_force(process, directory)
