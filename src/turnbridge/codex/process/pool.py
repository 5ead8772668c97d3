"""Keeps a number of app-servers ready: starts them, replaces those that die, hang or grow too large, and says what is
wrong meanwhile.

One app-server more than serve is kept in reserve, so that a replacement never has to be waited for. Threads stay in an
app-server's memory for half an hour whatever one does, so it is not cleaned but replaced: the old one takes no new
turns, and ends when its last one has.
"""

import asyncio
import contextlib
import resource
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from turnbridge.codex.process.connection import CodexFaulted
from turnbridge.codex.process.worker import Worker
from turnbridge.turn.errors import BackendUnavailable, GatewayError, LoginRequired

log = structlog.get_logger(__name__)

# A crash is usually a one-off, so the first restart comes at once; something that keeps crashing is left in peace.
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 30.0
# Crashes count against one another for this long.
CRASH_WINDOW_S = 120.0
# How long a request waits for a Codex that is just starting before it is told to come back.
START_PATIENCE_S = 10.0
# How often a missing login is looked for again, if its file does not change.
LOGIN_RECHECK_S = 15.0
# How often the app-servers are looked at, and how long a healthy one may take to answer.
WATCH_INTERVAL_S = 10.0
PROBE_TIMEOUT_S = 10.0
# How often a replaced app-server is looked at.
RETIREMENT_LOOK_S = 1.0
# How long turns that wait for a client may keep a replaced app-server alive; they can be replayed without it.
PARKED_GRACE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """When an app-server is replaced. A thread takes 1 to 2 MB, so the defaults mean up to 1 GB."""

    threads: int = 500
    age_s: float = 6 * 3600
    resident_bytes: int = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether turns can be run now, and if not, why."""

    ready: bool
    reason: str


class Pool:
    """Owns the app-servers. `run` does the work until it is cancelled; everything else may be asked at any time."""

    def __init__(
        self,
        start: Callable[[], Awaitable[Worker]],
        *,
        login_state: Callable[[], object],
        login_help: str,
        count: int = 1,
        bounds: Bounds | None = None,
        first_backoff_s: float | None = None,
        longest_backoff_s: float | None = None,
        on_demand: bool = False,
    ) -> None:
        self._start = start
        self._login_state = login_state
        self._login_help = login_help
        self._count = count
        self._bounds = bounds or Bounds()
        self._first_backoff_s = first_backoff_s or FIRST_BACKOFF_S
        self._longest_backoff_s = longest_backoff_s or LONGEST_BACKOFF_S
        self._serving: list[Worker] = []
        self._reserve: Worker | None = None
        self._retiring: dict[asyncio.Task[None], Worker] = {}
        self._crashes: deque[float] = deque()
        self._problem = "Codex is starting."
        self._wanted = asyncio.Event()
        self._available = asyncio.Event()
        self._check = asyncio.Event()
        self.restarts = 0
        if not on_demand:
            self._wanted.set()

    @property
    def workers(self) -> list[Worker]:
        """Return the app-servers that take turns now."""
        return list(self._serving)

    async def run(self) -> None:
        """Keep the app-servers running until cancelled, then end them all; if on demand, from the first request on."""
        await self._wanted.wait()
        watch = asyncio.ensure_future(self._watch())
        try:
            while True:
                self._check.clear()
                if any(map(self._may_know_less, self._serving)):
                    self._look_for_login()
                self.replace_uprooted()
                self._replace_outgrown()
                if len(self._serving) < self._count or self._reserve is None:
                    await self._add()
                else:
                    await self._check.wait()
        finally:
            watch.cancel()
            await asyncio.shield(self._stop_all())

    async def worker(self) -> Worker:
        """Return an app-server that can run a turn; raises what the client should hear."""
        worker = await self.any_worker()
        if self._may_know_less(worker):
            self._look_for_login()
            worker = await self.any_worker()
        if worker.login_missing:
            raise LoginRequired(self._login_help)
        return worker

    async def any_worker(self) -> Worker:
        """Return the least loaded app-server, even if nobody is logged in; waits a little if none is ready."""
        if not self._serving:
            self._wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_PATIENCE_S):
                    await self._available.wait()
        if not self._serving and self._problem == self._login_help:
            raise LoginRequired(self._login_help)
        if not self._serving:
            raise BackendUnavailable(self._problem, retry_after=FIRST_BACKOFF_S)
        return min(self._serving, key=lambda worker: (worker.login_missing, worker.load))

    def readiness(self) -> Readiness:
        """Return whether turns can be run now."""
        if not self._serving:
            return Readiness(ready=False, reason=self._problem)
        if all(worker.login_missing for worker in self._serving):
            self._check.set()
            return Readiness(ready=False, reason=self._login_help)
        return Readiness(ready=True, reason="")

    async def first_readiness(self) -> Readiness:
        """Return whether turns can be run, once there is an app-server that knows."""
        await self._available.wait()
        return self.readiness()

    def note_thread(self, worker: Worker) -> None:
        """Take note that a thread is opened, so that its app-server can be replaced in time."""
        worker.opened += 1
        if worker.threads >= self._bounds.threads:
            self._check.set()

    def replace_uprooted(self) -> None:
        """Replace the app-servers whose home was removed; it is made again when the next one starts."""
        for worker in self._all():
            if worker.is_uprooted:
                home = worker.spec.home
                log.error("codex_home_removed", home=str(home), pid=worker.process.pid)
                self._problem = f"The directory {home} was removed while Codex ran in it, and is being made again."
                self._replace(worker)
                self._check.set()

    def _all(self) -> list[Worker]:
        return [*self._serving, *([self._reserve] if self._reserve else [])]

    def _may_know_less(self, worker: Worker) -> bool:
        """Tell whether somebody may have logged in since this app-server started: it reads the login only then.

        A login in the system keyring changes no file, so it is looked for again after a while.
        """
        if not worker.login_missing:
            return False
        return self._login_state() != worker.login or _now() - worker.started_at > LOGIN_RECHECK_S

    def _look_for_login(self) -> None:
        """Replace the app-servers that know of no login; until the next one is there, clients hear how to log in."""
        self._problem = self._login_help
        for worker in self._all():
            if worker.login_missing:
                self._replace(worker)
        self._check.set()

    async def _add(self) -> None:
        """Start one app-server, and put it where it is needed most."""
        await asyncio.sleep(self._backoff())
        try:
            worker = await self._start()
        except (GatewayError, OSError) as error:
            log.error("codex_start_failed", reason=str(error))
            self._crashes.append(_now())
            self._problem = f"Codex could not be started: {error}"
            return
        log.info("codex_ready", pid=worker.process.pid, models=len(worker.models))
        worker.process.exited.add_done_callback(lambda _: self._ended(worker))
        worker.connection.unanswered = lambda: self._distrust(worker)
        if worker.process.exited.done():
            self._crashes.append(_now())
            return
        if len(self._serving) < self._count:
            self._serving.append(worker)
            self._available.set()
        else:
            self._reserve = worker

    def _ended(self, worker: Worker) -> None:
        """Take note of the end of an app-server: a crash, unless it was replaced."""
        self._check.set()
        if worker not in self._all():
            return
        self._crashes.append(_now())
        if worker in self._serving:
            self.restarts += 1
            self._problem = f"Codex ended (exit status {worker.process.exit_status}) and is being started again."
            log.warning("codex_ended", last_words=worker.process.last_words())
        self._take_out(worker)

    def _take_out(self, worker: Worker) -> None:
        """Give an app-server no more turns; a reserve steps in at once."""
        if worker is self._reserve:
            self._reserve = None
            return
        self._serving.remove(worker)
        if self._reserve is not None:
            self._serving.append(self._reserve)
            self._reserve = None
        if not self._serving:
            self._available.clear()

    def _replace(self, worker: Worker) -> None:
        """Give an app-server no more turns, and end it when those that it has are over."""
        log.info("codex_replaced", pid=worker.process.pid, threads=worker.threads)
        self._take_out(worker)
        retirement = asyncio.ensure_future(self._retire(worker))
        self._retiring[retirement] = worker
        retirement.add_done_callback(self._retiring.pop)

    def _distrust(self, worker: Worker) -> None:
        """Replace an app-server that has not answered a call; other turns in it may still come to their end."""
        if worker in self._all():
            self._replace(worker)
            self._check.set()

    def _backoff(self) -> float:
        """Return how long to wait before the next start: longer with every crash of late."""
        horizon = _now() - CRASH_WINDOW_S
        while self._crashes and self._crashes[0] < horizon:
            self._crashes.popleft()
        recent = len(self._crashes)
        return min(self._first_backoff_s * 2 ** (recent - 1), self._longest_backoff_s) if recent else 0.0

    def _replace_outgrown(self) -> None:
        """Let the reserve take the place of an app-server that has reached a bound."""
        for worker in list(self._serving):
            if self._reserve is not None and self._is_outgrown(worker):
                self._replace(worker)

    async def _retire(self, worker: Worker) -> None:
        """End an app-server when its turns are over; those that only wait for a client get a while."""
        deadline = _now() + PARKED_GRACE_S
        try:
            while worker.load > 0 or (worker.parked > 0 and _now() < deadline and self._may_linger(worker)):
                await asyncio.wait((worker.process.exited,), timeout=RETIREMENT_LOOK_S)
                if worker.process.exited.done():
                    return
        finally:
            await asyncio.shield(worker.process.stop())

    def _may_linger(self, worker: Worker) -> bool:
        """Tell whether there is room for a replaced app-server: as many as serve, or they would fill the memory."""
        return worker in list(self._retiring.values())[-self._count :]

    def _is_outgrown(self, worker: Worker) -> bool:
        return (
            worker.threads >= self._bounds.threads
            or _now() - worker.started_at >= self._bounds.age_s
            or resident_bytes(worker.process.pid) >= self._bounds.resident_bytes
        )

    async def _watch(self) -> None:
        """Kill app-servers that do not answer, and look for those that have outgrown their bounds."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            await asyncio.gather(*(_probe(worker) for worker in (*self._all(), *self._retiring.values())))
            self._check.set()

    async def _stop_all(self) -> None:
        for retirement in self._retiring:
            retirement.cancel()
        # Also those that are being ended already: a cancelled wait would leave one that hangs.
        workers = [*self._all(), *self._retiring.values()]
        self._serving, self._reserve = [], None
        await asyncio.gather(*(worker.process.stop() for worker in workers), *self._retiring, return_exceptions=True)


async def _probe(worker: Worker) -> None:
    try:
        await worker.connection.call("thread/loaded/list", {}, dict[str, object], timeout_s=PROBE_TIMEOUT_S)
    except CodexFaulted as fault:
        # It has answered, so it is alive.
        log.warning("codex_probe_refused", pid=worker.process.pid, reason=fault.message)
    except BackendUnavailable:
        if not worker.process.exited.done():
            log.error("codex_hangs", pid=worker.process.pid)
            worker.process.kill()
    except GatewayError as error:
        # A strange answer is an answer: it is alive.
        log.warning("codex_probe_refused", pid=worker.process.pid, reason=error.message)


def resident_bytes(pid: int) -> int:
    """Return the memory of a process, where the system tells it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * resource.getpagesize()


def _now() -> float:
    return asyncio.get_running_loop().time()
