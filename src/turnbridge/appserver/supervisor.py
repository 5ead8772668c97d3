"""Keeps one app-server running: starts it, notices its end, starts it again, and says what is wrong meanwhile."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from turnbridge.appserver.worker import Worker
from turnbridge.turn.errors import BackendUnavailable, GatewayError, LoginRequired

log = structlog.get_logger(__name__)

# A crash is usually a one-off, so the first restart comes soon; something that keeps crashing is left in peace.
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 30.0
# A process that ran this long had started well: its end is a new incident.
STEADY_AFTER_S = 30.0
# How long a request waits for a Codex that is just starting before it is told to come back.
START_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether turns can be run now, and if not, why."""

    ready: bool
    reason: str


class Supervisor:
    """Owns the app-server. `run` does the work until it is cancelled; everything else may be asked at any time."""

    def __init__(
        self,
        start: Callable[[], Awaitable[Worker]],
        *,
        login_state: Callable[[], object],
        login_help: str,
        on_demand: bool = False,
    ) -> None:
        self._start = start
        self._login_state = login_state
        self._login_help = login_help
        self._wanted = asyncio.Event()
        if not on_demand:
            self._wanted.set()
        self._worker: Worker | None = None
        self._problem = "Codex is starting."
        self._changed = asyncio.Condition()
        self.restarts = 0

    async def run(self) -> None:
        """Keep an app-server running until cancelled, then end it; if it is on demand, from the first request on."""
        await self._wanted.wait()
        backoff = FIRST_BACKOFF_S
        while True:
            began = asyncio.get_running_loop().time()
            await self._run_once()
            lived = asyncio.get_running_loop().time() - began
            backoff = FIRST_BACKOFF_S if lived >= STEADY_AFTER_S else backoff
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF_S)
            self.restarts += 1

    async def _run_once(self) -> None:
        try:
            worker = await self._start()
        except GatewayError as error:
            log.error("codex_start_failed", reason=error.message)
            await self._set(None, error.message)
            return
        try:
            log.info("codex_ready", pid=worker.process.pid, models=len(worker.models))
            await self._set(worker, "")
            await asyncio.shield(worker.process.exited)
            log.warning("codex_ended", last_words=worker.process.last_words())
            await self._set(None, f"Codex ended ({worker.process.last_words()}) and is being started again.")
        finally:
            await asyncio.shield(worker.process.stop())

    async def _set(self, worker: Worker | None, problem: str) -> None:
        async with self._changed:
            self._worker, self._problem = worker, problem
            self._changed.notify_all()

    def readiness(self) -> Readiness:
        """Return whether turns can be run now."""
        if self._worker is None:
            return Readiness(ready=False, reason=self._problem)
        if self._worker.login_missing:
            return Readiness(ready=False, reason=self._login_help)
        return Readiness(ready=True, reason="")

    async def worker(self) -> Worker:
        """Return the app-server, waiting a little if it is just starting; raises what the client should hear."""
        worker = await self._started()
        if worker.login_missing and self._login_state() != worker.login:
            # The app-server reads the login once. Somebody has logged in since: a fresh one will know.
            await worker.process.stop()
            worker = await self._started(other_than=worker)
        if worker.login_missing:
            raise LoginRequired(self._login_help)
        return worker

    async def any_worker(self) -> Worker:
        """Return the app-server even if nobody is logged in."""
        return await self._started()

    async def _started(self, *, other_than: Worker | None = None) -> Worker:
        self._wanted.set()
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_PATIENCE_S):
                    await self._changed.wait_for(lambda: self._worker not in (None, other_than))
            if self._worker is None or self._worker is other_than:
                raise BackendUnavailable(self._problem, retry_after=FIRST_BACKOFF_S)
            return self._worker
