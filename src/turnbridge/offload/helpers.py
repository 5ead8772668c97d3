"""Helper processes: started when there is a job, killed when it takes too long, replaced when they have ended."""

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

# The package is imported within 0.1 seconds on an idle machine.
START_S = 20.0

# How long a helper waits for its next job before its memory, some 30 MB, is given back.
IDLE_S = 300.0

# A helper works on what strangers send, so it is given none of the gateway's secrets: only what Python needs to start.
PASSED_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """What each job may take, and how many there may be."""

    seconds: float
    megabytes: int
    """Of address space, the interpreter's own included."""
    processes: int
    waiting: int
    jobs_of_one: int | None = None
    """After how many jobs a helper is replaced; never, if not given."""


class HelperPool:
    """The engine's `Helpers`, for one kind of job: a function from bytes to bytes, named as `module:function`."""

    def __init__(self, job: str, limits: JobLimits) -> None:
        self._job = job
        self._limits = limits
        self._places = asyncio.Semaphore(limits.processes)
        self._waiting = 0
        self._helpers: set[_Helper] = set()
        self._idle: list[_Helper] = []
        # They only wait for the pipes. Pipes of the loop's would need a state machine for the same.
        self._threads = ThreadPoolExecutor(limits.processes, thread_name_prefix="helper")

    @property
    def pids(self) -> list[int]:
        """Return the ids of the processes that are there now."""
        return [helper.pid for helper in self._helpers]

    async def run(self, given: bytes) -> bytes:
        """Return what the job makes of these bytes."""
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
            helper.expiry = asyncio.get_running_loop().call_later(IDLE_S, self._retire, helper)
            self._idle.append(helper)
        return answer

    async def aclose(self) -> None:
        """Kill the helpers; jobs that still run fail."""
        self._idle.clear()
        for helper in self._helpers:
            if helper.expiry is not None:
                helper.expiry.cancel()
            helper.kill()
        for helper in list(self._helpers):
            await asyncio.get_running_loop().run_in_executor(self._threads, helper.reap)
        self._threads.shutdown(wait=False)

    async def _ready_helper(self) -> "_Helper":
        """Return a helper that waits for a job; one that has ended meanwhile is replaced."""
        while self._idle:
            helper = self._idle.pop()
            if helper.expiry is not None:
                helper.expiry.cancel()
            if helper.is_alive():
                return helper
            self._end(helper)
        limits = self._limits
        try:
            helper = _Helper((self._job, str(limits.seconds), str(limits.megabytes)))
            self._helpers.add(helper)
            await self._timed(helper, START_S, helper.wait_until_ready)
        except (OSError, JobFailed) as error:
            raise NoHelper from error
        return helper

    async def _timed(self, helper: "_Helper", seconds: float, step: Callable[[], T]) -> T:
        """Return what a step gives within the time; else the helper is killed, which ends the step."""
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(seconds, helper.kill)
        try:
            return await loop.run_in_executor(self._threads, step)
        except BaseException:
            # Also if nobody waits for the answer any more: the next one would get it.
            self._end(helper)
            raise
        finally:
            deadline.cancel()

    def _retire(self, helper: "_Helper") -> None:
        self._idle.remove(helper)
        self._end(helper)

    def _end(self, helper: "_Helper") -> None:
        helper.kill()
        self._helpers.discard(helper)
        self._threads.submit(helper.reap)


class _Helper:
    """A helper process. What waits for it is for threads."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self._popen = subprocess.Popen(
            # `-P`: what lies in the working directory is not imported.
            (sys.executable, "-P", "-m", child.__name__, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ},
            # A Ctrl-C in the terminal is for the gateway.
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

    def kill(self) -> None:
        """End the process, whatever it does; one that is gone already is left in peace."""
        self.killed = True
        self._popen.kill()

    def reap(self) -> None:
        """Wait for the end of a process that was killed."""
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            # What it did not read any more cannot be written.
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
