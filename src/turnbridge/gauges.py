"""Gauges of what counts by itself, for the metrics: turns, threads, app-servers, connections."""

from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Protocol

from turnbridge.codex.process.backend import CodexBackend
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.spare_threads import SpareThreads
from turnbridge.engine.admission import Admission
from turnbridge.engine.ports import PlanWindow
from turnbridge.replicas.replica import Replica
from turnbridge.trace.trace import Trace
from turnbridge.turn.clients import DEFAULT_ACCOUNT
from turnbridge.web.middleware.observability import Metrics


class Counted(Protocol):
    """The parts of a gateway that count by themselves."""

    @property
    def backend(self) -> CodexBackend:
        """Return the accounts with their app-servers."""
        ...

    @property
    def calls(self) -> Sized:
        """Return the parked turns."""
        ...

    @property
    def warm(self) -> Sized:
        """Return the warm threads."""
        ...

    @property
    def replica(self) -> Replica | None:
        """Return this gateway among others, if it is one of several."""
        ...

    @property
    def trace(self) -> Trace | None:
        """Return the wire trace."""
        ...


def observe(metrics: Metrics, admission: Admission, parts: Counted, sockets: Sized) -> None:
    """Let the metrics show what counts by itself."""
    backend, calls, warm = parts.backend, parts.calls, parts.warm
    pool = backend.default.pool
    metrics.watch(
        "turnbridge_ready",
        "Whether turns can be run, as `/readyz` says.",
        lambda: pool.readiness().ready and not admission.leaving,
    )
    metrics.watch("turnbridge_logged_in", "Whether the default account has a login.", lambda: pool.logged_in)
    metrics.watch("turnbridge_turns_running", "Turns that run now.", lambda: admission.running)
    metrics.watch("turnbridge_requests_waiting", "Requests that wait for a turn.", lambda: admission.waiting)
    metrics.watch("turnbridge_websockets_open", "WebSocket connections.", lambda: len(sockets))
    metrics.watch("turnbridge_turns_parked", "Turns that wait for the outputs of their calls.", lambda: len(calls))
    metrics.watch("turnbridge_threads_warm", "Threads kept for a next request.", lambda: len(warm))
    _observe_threads(metrics, backend)
    metrics.watch("turnbridge_app_servers", "App-servers that take turns.", lambda: len([*backend.workers()]))
    metrics.watch(
        "turnbridge_app_server_memory_bytes",
        "Resident memory of the app-servers that take turns.",
        lambda: sum(worker.resident_bytes for worker in backend.workers()),
    )
    metrics.watch_each(
        "turnbridge_app_server_replacements_total",
        "App-servers that ended by themselves or were replaced or stopped, by reason.",
        lambda: {(reason,): sum(each.ended[reason] for each in _pools(backend)) for reason in pool.ended},
        labels=("reason",),
    )
    _observe_plan(metrics, backend)
    if parts.replica is not None:
        _observe_replica(metrics, parts.replica)
    if parts.trace is not None:
        trace = parts.trace
        metrics.watch_total(
            "turnbridge_trace_lines_lost_total", "Lines of the wire trace not written.", lambda: trace.lost
        )


def _observe_threads(metrics: Metrics, backend: CodexBackend) -> None:
    metrics.watch(
        "turnbridge_threads_spare",
        "Threads started ahead of requests.",
        lambda: sum(len(worker.spares) for worker in backend.workers()),
    )
    metrics.watch_each(
        "turnbridge_threads_ahead_total",
        "Threads that were started ahead of requests, of them those that a request used, and those released unused.",
        lambda: {(fate,): count for fate, count in SpareThreads.fates.items()},
        labels=("fate",),
    )


def _observe_replica(metrics: Metrics, replica: Replica) -> None:
    metrics.watch("turnbridge_replicas", "Replicas that are alive, as this one knows.", lambda: replica.registry.live)
    metrics.watch(
        "turnbridge_redis_away_since_timestamp_seconds",
        "Since when Redis cannot be used, and each replica holds its share of every limit; 0 if it can be.",
        lambda: replica.degraded_since() or 0,
    )
    metrics.watch_total(
        "turnbridge_redis_commands_total",
        "Commands to Redis.",
        lambda: 0 if replica.redis is None else replica.redis.commands,
    )


def observe_shared(metrics: Metrics, legs: Mapping[str, int], followed: Sized, connected: Callable[[], bool]) -> None:
    """Let the metrics show what replicas share of what they run."""
    metrics.watch_each(
        "turnbridge_shared_legs_total",
        "What the model said with its calls, for other replicas: kept, lost, or found for a request.",
        lambda: {(result,): count for result, count in legs.items()},
        labels=("result",),
    )
    metrics.watch(
        "turnbridge_streams_followed",
        "Background responses of other replicas that are read here.",
        lambda: len(followed),
    )
    metrics.watch("turnbridge_replica_messages", "Whether messages of other replicas are received.", connected)


def _pools(backend: CodexBackend) -> Iterator[Pool]:
    for account in backend.accounts.values():
        yield from account.pools


def _observe_plan(metrics: Metrics, backend: CodexBackend) -> None:
    def each(value: Callable[[PlanWindow], float]) -> Mapping[tuple[str, ...], float]:
        return {
            (account or DEFAULT_ACCOUNT, name): value(window)
            for account in backend.accounts
            for name, window in backend.plan(account).items()
        }

    labels = ("account", "window")
    metrics.watch_each(
        "turnbridge_plan_used_ratio",
        "How much of each window of an account's plan is used, as the provider told last.",
        lambda: each(lambda window: window.used_percent / 100),
        labels=labels,
    )
    metrics.watch_each(
        "turnbridge_plan_reset_timestamp_seconds",
        "When each window of an account's plan starts anew.",
        lambda: each(lambda window: window.resets_at or 0),
        labels=labels,
    )
