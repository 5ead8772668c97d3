"""The pool of app-servers and its supervisor: starts them with backoff, probes their liveness, and recycles them.

The pool grows with need: one app-server at rest, another one when all are busy, fewer again when they are idle. Codex
keeps threads in memory for a while after their last use, so an app-server that has grown is recycled: once its
replacement is ready it takes no new turns, and stops after its last turn.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, get_args

import structlog

from turnbridge.codex.process.budget import Budget
from turnbridge.codex.process.connection import CodexFaulted
from turnbridge.codex.process.process import Reason
from turnbridge.codex.process.worker import Worker
from turnbridge.codex.protocol.plan import Plan
from turnbridge.turn.errors import BackendUnavailable, GatewayError, LoginRequired

log = structlog.get_logger(__name__)

STARTING = "Codex is starting."


class Readiness(NamedTuple):
    """Whether turns can run, and the reason if they cannot."""

    ready: bool
    reason: str


class Pool:
    """Owns the app-servers. `run` supervises them until it is cancelled."""

    # A crash is usually a one-off, so the first restart comes soon; the delay doubles with every recent crash.
    first_backoff_s = 0.2
    longest_backoff_s = 30.0
    crash_window_s = 120.0
    # How long a request waits for an app-server that is starting.
    start_timeout_s = 10.0
    # A login in the system keyring changes no file, so a missing login is checked again this often.
    login_recheck_s = 15.0
    # Liveness probes: how often, and how long a healthy app-server may take to answer.
    probe_interval_s = 10.0
    probe_timeout_s = 10.0
    # How often a recycled app-server is polled for its last turn.
    drain_poll_s = 0.1
    # How long parked turns may keep a recycled app-server alive; they can be replayed without it.
    parked_grace_s = 60.0
    # Recycling bounds: the memory that an app-server may gain besides its threads that are still held, and its age. A
    # replacement takes as much processor time as four turns.
    max_growth_bytes = 96 * 1024 * 1024
    bytes_per_thread = 2 * 1024 * 1024
    max_age_s = 6 * 3600.0
    # How many threads are opened between two measurements of memory.
    threads_per_probe = 16
    # A turn goes to the first app-server that runs fewer turns than this. If none does, the pool grows.
    turns_at_ease = 2
    # How long an app-server that need not be there may be idle; as long as a pause in a conversation.
    idle_s = 300.0

    def __init__(
        self,
        start: Callable[[], Awaitable[Worker]],
        *,
        login_state: Callable[[], object],
        login_help: str,
        budget: Budget | None = None,
        on_demand: bool = False,
    ) -> None:
        """An on-demand pool has no app-server before its first request, nor after some time without one."""
        self._start = start
        self._login_state = login_state
        self._login_help = login_help
        self._budget = budget or Budget(1)
        self._least = 0 if on_demand else 1
        self.target = self._least
        """How many app-servers are to serve now."""
        self._serving: list[Worker] = []
        self._probes: set[asyncio.Task[None]] = set()
        self._draining: dict[asyncio.Task[None], Worker] = {}
        self._crashes: deque[float] = deque()
        self._problem = STARTING
        self._asked_at = 0.0
        self._available = asyncio.Event()
        """Set while at least one serves."""
        self._complete = asyncio.Event()
        """Set while as many serve as are to."""
        self._check = asyncio.Event()
        self.plan = Plan()
        """What its app-servers tell of the plan."""
        self.ended: Counter[str] = Counter(dict.fromkeys(get_args(Reason), 0))
        """How many app-servers have been replaced or stopped, by reason."""

    @property
    def logged_in(self) -> bool:
        """Tell whether an app-server that serves has a login."""
        return not all(worker.login_missing for worker in self._serving)

    @property
    def workers(self) -> list[Worker]:
        """Return the app-servers that take turns."""
        return list(self._serving)

    async def run(self) -> None:
        """Supervise the app-servers until cancelled, then stop them."""
        self._budget.join(self)
        watchdog = asyncio.ensure_future(self._probe_all())
        try:
            while True:
                self._check.clear()
                if any(map(self._login_may_have_changed, self._serving)):
                    self._recheck_login()
                self.recycle_homeless()
                self._stop_idle()
                outgrown = [worker for worker in self._serving if self._is_due(worker)]
                if len(self._serving) - len(outgrown) < self.target:
                    await self._add()
                elif outgrown:
                    self._recycle(outgrown[0], self._due_reason(outgrown[0]))
                else:
                    await self._check.wait()
        finally:
            self._budget.leave(self)
            watchdog.cancel()
            await asyncio.shield(self._stop_all())

    async def worker(self, *, suspect: bool = False, provider: str | None = None) -> Worker:
        """Return an app-server that can run a turn with a provider; raises the client's error if there is none.

        A `suspect` turn has lost its app-server, and may be the cause: it waits for the successor, where nothing else
        runs yet, for as long as others wait for a start.
        """
        if suspect:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.start_timeout_s):
                    await self._complete.wait()
            if self._serving:
                return min(self._serving, key=lambda worker: (worker.login_missing, worker.load))
        worker = await self.any_worker()
        if self._login_may_have_changed(worker):
            self._recheck_login()
            worker = await self.any_worker()
        if worker.lacks_login(provider):
            raise LoginRequired(self._login_help)
        if worker.load >= self.turns_at_ease and len(self._serving) == self.target and self._budget.has_room:
            self.target += 1
            self._check.set()
        return worker

    async def any_worker(self) -> Worker:
        """Return the first app-server at ease, or the least loaded one; waits for one that is starting."""
        if not self._serving:
            self._asked_at = _now()
            if self.target == 0:
                self._budget.make_room()
                self._problem, self.target = STARTING, 1
                self._check.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.start_timeout_s):
                    await self._available.wait()
        if not self._serving and self._problem == self._login_help:
            raise LoginRequired(self._login_help)
        if not self._serving:
            raise BackendUnavailable(self._problem, retry_after=self.first_backoff_s)
        return min(self._serving, key=self._preference) if len(self._serving) > 1 else self._serving[0]

    def give_one_up(self) -> bool:
        """Stop the app-server with the least to do, for another pool; the last one only if it may be, and is, idle."""
        worker = min(self._serving, key=lambda each: each.load + each.parked, default=None)
        if worker is None or self.target <= self._least or (self.target == 1 and worker.load + worker.parked > 0):
            return False
        self.target -= 1
        self._recycle(worker, "room")
        return True

    def _preference(self, worker: Worker) -> tuple[bool, bool, int]:
        return worker.login_missing, self._is_outgrown(worker), max(worker.load, self.turns_at_ease - 1)

    def readiness(self) -> Readiness:
        """Return whether turns can run."""
        if not self._serving:
            return Readiness(ready=False, reason=self._problem)
        if not self.logged_in:
            self._check.set()
            return Readiness(ready=False, reason=self._login_help)
        return Readiness(ready=True, reason="")

    async def first_readiness(self) -> Readiness:
        """Return the readiness once the first app-server has started."""
        await self._available.wait()
        return self.readiness()

    def note_thread(self, worker: Worker) -> None:
        """Count a thread that is opened; now and then, see how much memory its app-server has."""
        worker.opened += 1
        if worker.opened % self.threads_per_probe == 0:
            probe = asyncio.ensure_future(self._probe(worker))
            self._probes.add(probe)
            probe.add_done_callback(self._probes.discard)

    def reload(self) -> None:
        """Replace all app-servers by some that read their configuration anew; running turns finish where they are."""
        for worker in self._serving:
            worker.stale = True
        self._check.set()

    def recycle_homeless(self) -> None:
        """Recycle the app-servers whose home was removed; the next start creates it again."""
        for worker in self.workers:
            if worker.is_homeless:
                home = worker.spec.home
                log.error("codex_home_removed", home=str(home), pid=worker.process.pid)
                self._problem = f"The directory {home} was removed while Codex ran in it, and is being made again."
                self._recycle(worker, "home_removed")

    def _login_may_have_changed(self, worker: Worker) -> bool:
        """Tell whether an app-server without a login should be restarted: Codex reads the login only at its start."""
        if not worker.login_missing:
            return False
        waited = _now() - worker.started_at > self.login_recheck_s
        return self._login_state() != worker.login or (waited and not worker.login_in_file)

    def _is_outdated(self, worker: Worker) -> bool:
        """Tell whether an app-server has another login than the file: after a logout, or another login.

        The delay bounds the restarts where Codex itself changes the file, as it does when it refreshes the tokens.
        """
        if worker.login_missing or _now() - worker.started_at <= self.login_recheck_s:
            return False
        return self._login_state() != worker.login

    def _recheck_login(self) -> None:
        """Recycle the app-servers without a login; meanwhile clients are told how to log in."""
        self._problem = self._login_help
        for worker in self.workers:
            if worker.login_missing:
                self._recycle(worker, "login")

    def _stop_idle(self) -> None:
        """Stop the app-servers that had nothing to do for long enough; all but the first, unless it is on demand."""
        for worker in reversed(self._serving[self._least :]):
            if worker.load == worker.parked == 0 and _now() - worker.idle_since >= self.idle_s:
                self.target = len(self._serving) - 1
                self._recycle(worker, "idle")
        if not self._serving and self._least == 0 and _now() - self._asked_at >= self.idle_s:
            self.target = 0  # It cannot be started, and nobody has asked for a while.

    async def _add(self) -> None:
        """Start one app-server."""
        await asyncio.sleep(self._backoff())
        try:
            worker = await self._start()
        except (GatewayError, OSError) as error:
            log.error("codex_start_failed", reason=str(error))
            self._crashes.append(_now())
            self._problem = f"Codex could not be started: {error}"
            return
        await self._probe(worker)
        worker.first_resident_bytes = worker.resident_bytes
        log.info("codex_ready", pid=worker.process.pid, models=len(worker.models))
        worker.process.exited.add_done_callback(lambda _: self._exited(worker))
        worker.connection.plan = self.plan
        worker.connection.on_timeout = lambda: self._recycle(worker, "unanswered")
        if worker.process.exited.done():
            self._crashes.append(_now())
        else:
            self._serving.append(worker)
            self._available.set()
            if len(self._serving) >= self.target:
                self._complete.set()

    def _exited(self, worker: Worker) -> None:
        """Handle the exit of an app-server: a crash, unless it was being recycled."""
        self._check.set()
        if worker not in self._serving:
            return
        self._crashes.append(_now())
        self.ended["hung" if worker.hangs else "crashed"] += 1
        self._problem = f"Codex ended (exit status {worker.process.exit_status}) and is being started again."
        log.warning("codex_ended", last_words=worker.process.last_words())
        self._remove(worker)

    def _remove(self, worker: Worker) -> None:
        """Give an app-server no more turns."""
        self._serving.remove(worker)
        if not self._serving:
            self._available.clear()
        if len(self._serving) < self.target:
            self._complete.clear()

    def _recycle(self, worker: Worker, reason: Reason) -> None:
        """Give an app-server no more turns, and stop it when its turns have ended."""
        if worker not in self._serving:
            return
        megabytes = worker.resident_bytes // 2**20
        log.info("codex_recycled", reason=reason, pid=worker.process.pid, threads=worker.opened, mb=megabytes)
        self.ended[reason] += 1
        if reason == "login":
            # Another account has another plan, and the old app-servers may still tell of theirs.
            self.plan = Plan()
        self._remove(worker)
        drain = asyncio.ensure_future(self._drain(worker))
        self._draining[drain] = worker
        drain.add_done_callback(self._drained)
        self._check.set()

    def _drained(self, drain: "asyncio.Task[None]") -> None:
        del self._draining[drain]
        self._check.set()

    def _backoff(self) -> float:
        """Return the delay before the next start."""
        while self._crashes and self._crashes[0] < _now() - self.crash_window_s:
            self._crashes.popleft()
        recent = len(self._crashes)
        return min(self.first_backoff_s * 2 ** (recent - 2), self.longest_backoff_s) if recent > 1 else 0.0

    async def _drain(self, worker: Worker) -> None:
        """Stop an app-server when its turns have ended; parked turns keep it for a limited time."""
        deadline = _now() + self.parked_grace_s
        try:
            while worker.load > 0 or (worker.parked > 0 and _now() < deadline and self._may_linger(worker)):
                await asyncio.wait((worker.process.exited,), timeout=self.drain_poll_s)
                if worker.process.exited.done():
                    return
        finally:
            await asyncio.shield(worker.process.stop())

    def _may_linger(self, worker: Worker) -> bool:
        """Tell whether memory allows a recycled app-server: as many may linger as serve."""
        return worker in list(self._draining.values())[-self.target :]

    def _is_due(self, worker: Worker) -> bool:
        """Tell whether an app-server is to be recycled now."""
        return self._is_outdated(worker) or (self._is_outgrown(worker) and not self._is_handing_over())

    def _due_reason(self, worker: Worker) -> Reason:
        if self._is_outdated(worker):
            return "login"
        if worker.stale:
            return "reload"
        return "memory" if self._growth(worker) >= self.max_growth_bytes else "age"

    def _is_handing_over(self) -> bool:
        """Tell whether a recycled app-server still has turns, so that the next one is better recycled after it.

        Each holds its memory until then. But one that has outgrown its bound twice does not wait.
        """
        draining = any(worker.load for worker in self._draining.values())
        return draining and all(self._growth(worker) < 2 * self.max_growth_bytes for worker in self._serving)

    def _is_outgrown(self, worker: Worker) -> bool:
        old = worker.stale or _now() - worker.started_at >= self.max_age_s
        return old or self._growth(worker) >= self.max_growth_bytes

    def _growth(self, worker: Worker) -> int:
        """Return the memory that an app-server has gained, besides its threads that are still held."""
        return worker.resident_bytes - worker.first_resident_bytes - worker.held * self.bytes_per_thread

    async def _probe_all(self) -> None:
        """Watchdog: probe all app-servers at intervals."""
        while True:
            await asyncio.sleep(self.probe_interval_s)
            await asyncio.gather(*(self._probe(worker) for worker in (*self._serving, *self._draining.values())))
            # Something may have become due by itself: a login, an age, an idle time.
            self._check.set()

    async def _probe(self, worker: Worker) -> None:
        """Measure an app-server, and kill it if it does not answer."""
        pid = worker.process.pid
        try:
            await worker.measure(within_s=self.probe_timeout_s)
            if self._is_outgrown(worker):
                self._check.set()
        except BackendUnavailable as error:
            if isinstance(error, CodexFaulted):
                log.warning("codex_probe_refused", pid=pid, reason=error.message)
            elif not worker.process.exited.done():
                log.error("codex_hangs", pid=pid)
                worker.hangs = True
                worker.process.kill()
        except GatewayError as error:
            # Any answer shows that it is alive.
            log.warning("codex_probe_refused", pid=pid, reason=error.message)

    async def _stop_all(self) -> None:
        for task in (*self._draining, *self._probes):
            task.cancel()
        # Also those that are draining: cancelling the drain of a hanging one would leave it running.
        workers = [*self._serving, *self._draining.values()]
        self._serving = []
        await asyncio.gather(*(worker.process.stop() for worker in workers), *self._draining, return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
