"""`engine.ports.Backend` over app-server: opens a thread for each request, in the dialect of the binary.

Every account has app-servers of its own. Those of a named account are started when one of its clients first asks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

import structlog

from turnbridge.codex import legacy
from turnbridge.codex.process.connection import CallRefused
from turnbridge.codex.process.pool import Pool, Readiness
from turnbridge.codex.process.thread import CodexThread, open_v2
from turnbridge.codex.process.worker import Worker, fidelity_of
from turnbridge.codex.protocol.capabilities import Dialect
from turnbridge.engine.ports import ModelOffer, PlanWindow, Thread
from turnbridge.turn.errors import BackendUnavailable, GatewayError, InvalidRequest
from turnbridge.turn.request import TurnRequest

log = structlog.get_logger(__name__)

GONE = (
    "The Codex account `{account}` of this API key does not exist on this server. Its operator can make it: "
    "turnbridge login --account {account}"
)


class AccountBackend:
    """The Codex of one account: a pool, and an optional `native` one in which models keep their own tool mode."""

    def __init__(self, pool: Pool, *, native: Pool | None = None) -> None:
        self.pool = pool
        self._native = native
        self._native_models: set[tuple[str | None, str | None, str]] = set()

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Return all its pools."""
        return (self.pool,) if self._native is None else (self.pool, self._native)

    async def run(self) -> None:
        """Supervise its app-servers until cancelled, then stop them."""
        # Not `gather`, which does not wait for the others when the first one has been cancelled.
        async with asyncio.TaskGroup() as group:
            for pool in self.pools:
                group.create_task(pool.run())

    async def open(self, request: TurnRequest, *, suspect: bool = False) -> CodexThread:
        """Start a thread that shows the model exactly the request's items and tools."""
        pool = self._native if self._native and request.spec.served_model in self._native_models else self.pool
        try:
            return await self._open(pool, request, suspect=suspect)
        except CallRefused:
            # App-servers share the databases in their home, and at times find one locked; or the home was removed.
            pool.recycle_homeless()
            return await self._open(pool, request, suspect=suspect)

    async def _open(self, pool: Pool, request: TurnRequest, *, suspect: bool) -> CodexThread:
        worker = await pool.worker(suspect=suspect, provider=request.spec.provider)
        pool.note_thread(worker)
        return await open_thread(worker, request)

    async def serves_otherwise(self, request: TurnRequest, thread: Thread, error: GatewayError) -> bool:
        """Tell whether to retry a turn that the provider refused, in the model's own tool mode.

        Whether a provider takes such a model with ordinary functions shows only when it is tried. If it also refuses
        the model as Codex ships it, the tool mode was not the reason. Concurrent requests may have switched the model
        already, so what counts is where this one was run.
        """
        if self._native is None or not request.spec.tools or not isinstance(error, InvalidRequest):
            return False
        asked = request.spec.served_model
        if thread.native_tools:
            self._native_models.discard(asked)
            return False
        if asked in self._native_models:
            return True
        models = (await self.pool.any_worker()).models
        if not any(model.id == request.spec.model and model.scripts_tools for model in models):
            return False
        log.warning("native_tool_mode", model=request.spec.model, refusal=error.message)
        self._native_models.add(asked)
        return True

    async def offer(self) -> ModelOffer:
        """Return the models that Codex offers."""
        return (await self.pool.any_worker()).offer


class CodexBackend:
    """Codex, as the engine sees it: the backend of each account, by its name."""

    def __init__(
        self,
        default: AccountBackend,
        *,
        exists: Callable[[str], bool] = lambda _: False,
        named: Callable[[str], AccountBackend],
    ) -> None:
        """`exists` tells whether there is an account of this name now, and `named` makes its backend."""
        self.default = default
        self.accounts: dict[str | None, AccountBackend] = {None: default}
        """Those that somebody has asked for, by name."""
        self._exists = exists
        self._named = named
        self._running: list[asyncio.Task[None]] = []

    def of(self, account: str | None) -> AccountBackend:
        """Return the backend of an account, and start to supervise it; raises `BackendUnavailable` if it is gone."""
        if account is None:
            return self.default
        if not self._exists(account):
            raise BackendUnavailable(GONE.format(account=account), code="account_not_found")
        if account not in self.accounts:
            backend = self.accounts[account] = self._named(account)
            self._running.append(asyncio.create_task(backend.run()))
        return self.accounts[account]

    def workers(self) -> Iterator[Worker]:
        """Yield the app-servers of all accounts."""
        for account in self.accounts.values():
            for pool in account.pools:
                yield from pool.workers

    def reload(self) -> None:
        """Let every account read its Codex configuration anew."""
        for account in self.accounts.values():
            for pool in account.pools:
                pool.reload()

    async def aclose(self) -> None:
        """Stop the app-servers of the named accounts."""
        for running in self._running:
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def readiness(self, account: str | None) -> Readiness:
        """Return whether turns of an account can run; one that is at rest is ready."""
        if account is not None and not self._exists(account):
            return Readiness(ready=False, reason=GONE.format(account=account))
        backend = self.accounts.get(account)
        at_rest = backend is None or backend.pool.target == 0
        return Readiness(ready=True, reason="") if at_rest else self.of(account).pool.readiness()

    def plan(self, account: str | None) -> Mapping[str, PlanWindow]:
        """Return the windows of an account's plan, as far as they are known."""
        backend = self.accounts.get(account)
        return {} if backend is None else backend.pool.plan.windows(time.time())

    async def open(self, request: TurnRequest, *, suspect: bool = False) -> CodexThread:
        """Start a thread on the request's account."""
        return await self.of(request.spec.account).open(request, suspect=suspect)

    async def serves_otherwise(self, request: TurnRequest, thread: Thread, error: GatewayError) -> bool:
        """Tell whether to retry a turn that the provider refused, in the model's own tool mode."""
        return await self.of(request.spec.account).serves_otherwise(request, thread, error)

    async def offer(self, account: str | None) -> ModelOffer:
        """Return the models of an account."""
        return await self.of(account).offer()

    def fidelity(self, account: str | None = None) -> str:
        """Return how faithfully models are shown a request."""
        backend = self.accounts.get(account)
        return fidelity_of(() if backend is None else backend.pool.workers)


_OPEN_THREAD: dict[Dialect, Callable[[Worker, TurnRequest], Awaitable[CodexThread]]] = {
    "v2": open_v2,
    "v2-early": legacy.open_v2_early,
    "v1": legacy.open_v1,
}


async def open_thread(worker: Worker, request: TurnRequest) -> CodexThread:
    """Start a thread in an app-server, and inject the request's items."""
    # Counted before it exists, so that the app-server is not recycled meanwhile. The thread subtracts it.
    worker.load += 1
    try:
        thread = await _OPEN_THREAD[worker.dialect](worker, request)
    except BaseException:
        worker.load -= 1
        raise
    try:
        await thread.inject(request.items)
    except BaseException:
        thread.close()
        raise
    return thread
