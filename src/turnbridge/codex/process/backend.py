"""`engine.ports.Backend` over app-server: opens a thread for each request, in the dialect of the binary."""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from turnbridge.codex import legacy
from turnbridge.codex.process.connection import CallRefused
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.thread import CodexThread, open_v2
from turnbridge.codex.process.worker import Worker, fidelity_of
from turnbridge.codex.protocol.capabilities import Dialect
from turnbridge.engine.ports import Model, Thread
from turnbridge.turn.errors import GatewayError, InvalidRequest
from turnbridge.turn.request import TurnRequest

log = structlog.get_logger(__name__)


class CodexBackend:
    """Codex, as the engine sees it: a pool, and an optional `native` one in which models keep their own tool mode."""

    def __init__(self, pool: Pool, *, native: Pool | None = None) -> None:
        self._pool = pool
        self._native = native
        self._native_models: set[str] = set()

    async def open(self, request: TurnRequest, *, suspect: bool = False) -> CodexThread:
        """Start a thread that shows the model exactly the request's items and tools."""
        pool = self._native if self._native and request.spec.model in self._native_models else self._pool
        try:
            return await self._open(pool, request, suspect=suspect)
        except CallRefused:
            # App-servers share the databases in their home, and at times find one locked; or the home was removed.
            pool.recycle_homeless()
            return await self._open(pool, request, suspect=suspect)

    async def _open(self, pool: Pool, request: TurnRequest, *, suspect: bool) -> CodexThread:
        worker = await pool.worker(suspect=suspect)
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
        if thread.native_tools:
            self._native_models.discard(request.spec.model)
            return False
        if request.spec.model in self._native_models:
            return True
        if not any(model.id == request.spec.model and model.scripts_tools for model in await self.models()):
            return False
        log.warning("native_tool_mode", model=request.spec.model, refusal=error.message)
        self._native_models.add(request.spec.model)
        return True

    async def models(self) -> Sequence[Model]:
        """Return the models that Codex offers."""
        return (await self._pool.any_worker()).models

    async def default_model(self) -> str | None:
        """Return the id of the model that the user's Codex configuration names."""
        return (await self._pool.any_worker()).default_model

    def fidelity(self) -> str:
        """Return how faithfully models are shown a request."""
        return fidelity_of(self._pool.workers)


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
