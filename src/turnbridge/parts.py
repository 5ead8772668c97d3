"""The parts of a gateway that have a life of their own: settings → each part, begun; whoever begins them ends them."""

import asyncio
import contextlib
import os
from dataclasses import dataclass
from functools import partial

from turnbridge.api.shared.body_budget import is_within_budget
from turnbridge.codex.process.backend import CodexBackend
from turnbridge.codex.setup import codex_backend
from turnbridge.engine.kept_threads import ParkedTurns, WarmThreads
from turnbridge.engine.ports import Judge, MediaLoader, ToolServers
from turnbridge.mcp.off import NoToolServers
from turnbridge.media.loader import HttpMediaLoader
from turnbridge.media.pdf import read_job
from turnbridge.offload.helpers import HelperPool, JobLimits
from turnbridge.offload.schemas import SchemaJudge
from turnbridge.replicas.rates import SharedRates
from turnbridge.replicas.replica import Replica, replica_of
from turnbridge.replicas.runs import SharedRuns, shared_runs
from turnbridge.replicas.tokens import SharedTokens
from turnbridge.settings.fields import Settings
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import SqlStore, guarded_store
from turnbridge.trace.pipe import TracePipe
from turnbridge.trace.redaction import Redaction
from turnbridge.trace.trace import Trace, TraceFile
from turnbridge.turn.mcp_hosts import parse_hosts
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.meter import Meter
from turnbridge.web.middleware.rate_limit import RequestRates
from turnbridge.web.middleware.spans import Spans, spans_for

PDF_JOB = f"{read_job.__module__}:{read_job.__name__}"
# A page takes some ten milliseconds, so the time is far from what honest documents need, and it is the client's wait.
# pypdf takes some ten times the size of a document, of which 20 MB are the most. Two at once, so that one long document
# does not block all others; each has a process of its own, since pypdf leaves much memory behind.
PDF_LIMITS = JobLimits(seconds=20.0, megabytes=1024, processes=2, waiting=32, jobs_of_one=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What has a life of its own."""

    backend: CodexBackend
    media: MediaLoader
    servers: ToolServers
    judge: Judge
    calls: ParkedTurns
    warm: WarmThreads
    rates: RequestRates
    trace: Trace | None
    spans: Spans | None
    keyring: Keyring
    meter: Meter
    store: SqlStore | None
    answers: SqlStore | None
    """The store, if answers are kept there."""
    replica: Replica | None
    """This gateway among others, if it shares a Postgres or a Redis with them."""
    shared: SharedRuns | None
    """What it shares with them of what it runs, if they have one Postgres."""


def begun_parts(
    settings: Settings, stack: contextlib.AsyncExitStack, *, api_key: str, provider: str | None, alone: bool
) -> Parts:
    """Begin what has a life of its own; `stack` ends it."""
    trace = wire_trace(settings, api_key) if settings.log_proto else None
    if trace is not None:
        stack.push_async_callback(asyncio.to_thread, trace.close)
    backend = codex_backend(settings, provider=provider, tap=None if trace is None else partial(TracePipe, trace))
    stack.push_async_callback(backend.aclose)
    stack.push_async_callback(ended, asyncio.create_task(backend.default.run()))
    pdf_helpers = HelperPool(PDF_JOB, PDF_LIMITS)
    store = None if alone else guarded_store(settings.database_url or store_url(settings.data_dir))
    if store is not None:
        stack.push_async_callback(store.aclose)
    media, judge = HttpMediaLoader(pdf_helpers, files=store), SchemaJudge()
    replica = replica_of(store if settings.store_is_shared else None, None if alone else settings.redis_url)
    for closing in (pdf_helpers.aclose, media.aclose, judge.aclose):
        stack.push_async_callback(closing)
    calls = ParkedTurns(ttl_s=settings.parked_turn_ttl_s)
    stack.callback(calls.close)
    warm = WarmThreads(most=settings.warm_threads_max, ttl_s=settings.warm_threads_ttl_s)
    stack.callback(warm.close)
    keyring = Keyring(api_key, store)
    return Parts(
        backend=backend,
        media=media,
        servers=_tool_servers(settings.mcp, stack),
        judge=judge,
        calls=calls,
        warm=warm,
        rates=RequestRates(settings.rate_limit, None if replica is None else SharedRates(replica)),
        trace=trace,
        spans=spans_for(os.environ),
        keyring=keyring,
        meter=Meter(store, keyring.clients, budgets=None if replica is None else SharedTokens(replica, replica.redis)),
        store=store,
        answers=store if settings.store_ttl_days else None,
        replica=replica,
        shared=_shared_runs(settings, replica, store),
    )


def _tool_servers(allowed: str, stack: contextlib.AsyncExitStack) -> ToolServers:
    if parse_hosts(allowed).access == "off":
        return NoToolServers()
    # Its HTTP client would delay every other start.
    from turnbridge.mcp.servers import HttpToolServers  # noqa: PLC0415

    servers = HttpToolServers(allowed)
    stack.push_async_callback(servers.aclose)
    return servers


def _shared_runs(settings: Settings, replica: Replica | None, store: SqlStore | None) -> SharedRuns | None:
    # A gateway that keeps nothing does not share it either.
    if replica is None or store is None or not settings.store_is_shared or not settings.store_ttl_days:
        return None
    return shared_runs(replica, store, settings.database_url or "")


def wire_trace(settings: Settings, api_key: str) -> Trace:
    """Return where all that goes over the wires is written to, without the gateway's own keys."""
    keys = [key.strip() for key in (*api_key.split(","), settings.metrics_token or "")]
    redaction = Redaction(keys=keys, limit=settings.trace_body_limit, within_budget=is_within_budget)
    return Trace(TraceFile(settings.trace_path), redaction)


async def ended(task: "asyncio.Task[None]") -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
