"""A pool of helper processes: started on demand, killed when a job takes too long, replaced when they have exited."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, TypeVar, cast

from turnbridge.engine.ports import JobFailed, NoHelper
from turnbridge.offload import child

T = TypeVar("T")


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
        # Threads that block on the pipes; asyncio's pipes would need a state machine for the same.
        self._threads = ThreadPoolExecutor(limits.processes, thread_name_prefix="helper")

    @property
    def pids(self) -> list[int]:
        return [helper.pid for helper in self._helpers]

    async def run(self, given: bytes) -> bytes:
        if self._waiting >= self._limits.waiting:
            raise NoHelper
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            helper = await self._ready_helper()
            answer = await self._timed(helper, self._limits.seconds, partial(helper.answer, given))
        finally:
            self._places.release()
        helper.jobs += 1
        if helper.killed or helper.jobs == self._limits.jobs_of_one:
            self._end(helper)
        else:
            helper.expiry = asyncio.get_running_loop().call_later(self._limits.idle_s, self._end, helper)
            self._idle.append(helper)
        return answer

    async def aclose(self) -> None:
        """Kill the helpers; running jobs fail."""
        self._idle.clear()
        for helper in self._helpers:
            helper.kill()
        for helper in list(self._helpers):
            await asyncio.get_running_loop().run_in_executor(self._threads, helper.reap)
        self._threads.shutdown(wait=False)

    async def _ready_helper(self) -> "_Helper":
        """Return an idle helper that is alive, or start one."""
        while self._idle:
            helper = self._idle.pop()
            helper.stop_expiry()
            if helper.is_alive():
                return helper
            self._end(helper)
        limits = self._limits
        try:
            helper = _Helper((self._job, str(limits.seconds), str(limits.megabytes)))
            self._helpers.add(helper)
            await self._timed(helper, limits.start_s, helper.wait_until_ready)
        except (OSError, JobFailed) as error:
            raise NoHelper from error
        return helper

    async def _timed(self, helper: "_Helper", seconds: float, step: Callable[[], T]) -> T:
        """Run a blocking step of a helper in a thread; at the deadline the helper is killed, which ends the step."""
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(seconds, helper.kill)
        try:
            return await loop.run_in_executor(self._threads, step)
        except BaseException:
            # Also when cancelled: the next job would read this one's result.
            self._end(helper)
            raise
        finally:
            deadline.cancel()

    def _end(self, helper: "_Helper") -> None:
        helper.kill()
        if helper in self._idle:
            self._idle.remove(helper)
        self._helpers.discard(helper)
        self._threads.submit(helper.reap)


class _Helper:
    """A helper process. The methods that block are called in threads."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self._popen = subprocess.Popen(
            # `-P`: nothing is imported from the working directory.
            (sys.executable, "-P", "-m", child.__name__, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ},
            # So that Ctrl-C in the terminal only reaches the gateway.
            start_new_session=True,
        )
        self.killed = False
        self.jobs = 0
        self.expiry: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid

    def is_alive(self) -> bool:
        return not self.killed and self._popen.poll() is None

    def stop_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()

    def kill(self) -> None:
        self.killed = True
        self.stop_expiry()
        self._popen.kill()

    def reap(self) -> None:
        """Wait for the exit of a killed process, and close its pipes."""
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            # Flushing what it has not read fails.
            with contextlib.suppress(OSError):
                cast("BinaryIO", pipe).close()

    def wait_until_ready(self) -> None:
        self._read(len(child.READY))

    def answer(self, given: bytes) -> bytes:
        stdin = cast("BinaryIO", self._popen.stdin)
        try:
            stdin.write(len(given).to_bytes(child.LENGTH_BYTES, "big"))
            stdin.write(given)
            stdin.flush()
        except OSError as error:
            raise JobFailed from error
        return self._read(int.from_bytes(self._read(child.LENGTH_BYTES), "big"))

    def _read(self, length: int) -> bytes:
        data = cast("BinaryIO", self._popen.stdout).read(length)
        if len(data) < length:
            raise JobFailed
        return data
