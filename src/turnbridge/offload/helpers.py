"""A pool of helper processes: started on demand, killed when a job takes too long, replaced when they have exited."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Awaitable
from dataclasses import dataclass

from turnbridge.engine.ports import JobFailed, NoHelper
from turnbridge.offload import child

# A helper works on untrusted data, so its environment contains no secrets: only what Python needs to start.
PASSED_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Limits of each job, and of the pool."""

    seconds: float
    megabytes: int
    """Of address space, including the interpreter's."""
    processes: int
    waiting: int
    jobs_of_one: int | None = None
    """After how many jobs a helper is replaced; None for never."""
    start_s: float = 20.0
    """Timeout of a helper's start, which takes 0.1 seconds on an idle machine."""
    idle_s: float = 300.0
    """How long an idle helper is kept; it takes some 30 MB."""


class HelperPool:
    """The engine's `Helpers` for one job: a function from bytes to bytes, named as `module:function`."""

    def __init__(self, job: str, limits: JobLimits) -> None:
        self._job = job
        self._limits = limits
        self._places = asyncio.Semaphore(limits.processes)
        self._waiting = 0
        self._helpers: set[_Helper] = set()
        self._idle: list[_Helper] = []
        self._exiting: set[asyncio.Task[int]] = set()

    @property
    def pids(self) -> list[int]:
        return [helper.process.pid for helper in self._helpers]

    async def run(self, given: bytes) -> bytes:
        if self._waiting >= self._limits.waiting:
            raise NoHelper
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            helper = self._idle_helper() or await self._new_helper()
            try:
                answer = await self._timed(helper, self._limits.seconds, helper.answer(given))
            except JobFailed as error:
                if helper.jobs == 0 or isinstance(error.__cause__, TimeoutError):
                    raise
                # It may have been killed while it was idle, a moment ago.
                helper = await self._new_helper()
                answer = await self._timed(helper, self._limits.seconds, helper.answer(given))
        finally:
            self._places.release()
        helper.jobs += 1
        if helper.jobs == self._limits.jobs_of_one or helper not in self._helpers:
            self._end(helper)
        else:
            helper.expiry = asyncio.get_running_loop().call_later(self._limits.idle_s, self._end, helper)
            self._idle.append(helper)
        return answer

    async def aclose(self) -> None:
        """Kill the helpers; running jobs fail."""
        for helper in list(self._helpers):
            self._end(helper)
        if self._exiting:
            await asyncio.wait(self._exiting)

    def _idle_helper(self) -> "_Helper | None":
        """Return an idle helper that is alive, as far as is known."""
        while self._idle:
            helper = self._idle.pop()
            helper.stop_expiry()
            # Its pipe ends before its exit status is known.
            if helper.process.returncode is None and not helper.stdout.at_eof():
                return helper
            self._end(helper)
        return None

    async def _new_helper(self) -> "_Helper":
        limits = self._limits
        try:
            helper = await _start((self._job, str(limits.seconds), str(limits.megabytes)))
            self._helpers.add(helper)
            await self._timed(helper, limits.start_s, helper.read(len(child.READY)))
        except (OSError, JobFailed) as error:
            raise NoHelper from error
        return helper

    async def _timed(self, helper: "_Helper", seconds: float, step: Awaitable[bytes]) -> bytes:
        """Await a step of a helper's work; kill the helper if it fails or takes too long."""
        try:
            async with asyncio.timeout(seconds):
                return await step
        except BaseException as error:
            # Also when cancelled: the next job would read this one's result.
            self._end(helper)
            if isinstance(error, OSError | TimeoutError | asyncio.IncompleteReadError):
                raise JobFailed from error
            raise

    def _end(self, helper: "_Helper") -> None:
        helper.stop_expiry()
        with contextlib.suppress(ProcessLookupError):
            helper.process.kill()
        if helper in self._idle:
            self._idle.remove(helper)
        if helper in self._helpers:
            self._helpers.remove(helper)
            exiting = asyncio.ensure_future(helper.process.wait())
            self._exiting.add(exiting)
            exiting.add_done_callback(self._exiting.discard)


@dataclass(slots=True, kw_only=True, eq=False)
class _Helper:
    """A helper process with its pipes."""

    process: asyncio.subprocess.Process
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    jobs: int = 0
    expiry: asyncio.TimerHandle | None = None

    def stop_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()

    async def answer(self, given: bytes) -> bytes:
        self.stdin.write(len(given).to_bytes(child.LENGTH_BYTES, "big"))
        self.stdin.write(given)
        await self.stdin.drain()
        return await self.read(int.from_bytes(await self.read(child.LENGTH_BYTES), "big"))

    async def read(self, length: int) -> bytes:
        return await self.stdout.readexactly(length)


async def _start(arguments: tuple[str, ...]) -> _Helper:
    process = await asyncio.create_subprocess_exec(
        # `-P`: nothing is imported from the working directory.
        *(sys.executable, "-P", "-m", child.__name__, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ},
        # So that Ctrl-C in the terminal only reaches the gateway.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return _Helper(process=process, stdin=process.stdin, stdout=process.stdout)
