"""`engine.ports.Backend` over app-server: a thread for each request, its items injected, its turns decoded."""

from collections.abc import Sequence
from typing import assert_never

import structlog

from turnbridge.codex.legacy.v1 import open_v1
from turnbridge.codex.legacy.v2_early import open_early
from turnbridge.codex.process.connection import CallRefused
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.thread import CodexThread, open_v2
from turnbridge.codex.process.worker import Worker, fidelity_of
from turnbridge.engine.ports import Model, Thread
from turnbridge.turn.errors import GatewayError, InvalidRequest
from turnbridge.turn.request import TurnRequest

log = structlog.get_logger(__name__)


class CodexBackend:
    """Codex, as the engine sees it: a pool, and if need be one that leaves the models' tool mode alone."""

    def __init__(self, pool: Pool, *, native: Pool | None = None) -> None:
        self._pool = pool
        self._native = native
        self._native_models: set[str] = set()

    async def open(self, request: TurnRequest) -> CodexThread:
        """Start a thread that shows the model exactly the request's items and tools."""
        pool = self._native if self._native and request.spec.model in self._native_models else self._pool
        try:
            return await self._open(pool, request)
        except CallRefused:
            # App-servers share the databases in their home, and now and then find one locked; or it was removed.
            pool.replace_uprooted()
            return await self._open(pool, request)

    async def _open(self, pool: Pool, request: TurnRequest) -> CodexThread:
        worker = await pool.worker()
        pool.note_thread(worker)
        return await open_thread(worker, request)

    async def serves_otherwise(self, request: TurnRequest, thread: Thread, error: GatewayError) -> bool:
        """Tell whether a turn that the provider refused is worth another try, in the model's own tool mode.

        Nobody can know beforehand whether a provider takes such a model with ordinary functions. If it also refuses
        the model as Codex ships it, the tool mode was not the reason. Other requests may have found out meanwhile, so
        what counts is where this one was run.
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
        """Tell whether the model sees a history as it is, or flattened into one message; and what Codex adds to it."""
        return fidelity_of(self._pool.workers)


async def open_thread(worker: Worker, request: TurnRequest) -> CodexThread:
    """Start a thread in an app-server, and show the model the request's items."""
    # Counted from here on, so that the app-server is not replaced under it. The conversation takes it off again.
    worker.load += 1
    try:
        thread = await _start_thread(worker, request)
    except BaseException:
        worker.load -= 1
        raise
    try:
        await thread.show(request.items)
    except BaseException:
        thread.close()
        raise
    return thread


async def _start_thread(worker: Worker, request: TurnRequest) -> CodexThread:
    """Start a thread in the dialect that is spoken with an app-server."""
    match worker.dialect:
        case "v2":
            return await open_v2(worker, request)
        case "v2-early":
            return await open_early(worker, request)
        case "v1":
            return await open_v1(worker, request)
        case _:
            assert_never(worker.dialect)
