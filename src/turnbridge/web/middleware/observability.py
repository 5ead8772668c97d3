"""What is known of one request while it is served; the one line that is logged when it ends, and the metrics.

The line tells who waited how long for what, and how it ended. A client is named by a digest of its key. The line never
holds prompts, keys, query strings or the paths of unknown routes: only fields of `RequestContext` reach it.
"""

import platform
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from itertools import accumulate
from typing import Literal, TypeAlias, assert_never

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    Info,
    Metric,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Scope
from structlog.typing import FilteringBoundLogger

from turnbridge import __version__
from turnbridge.api.shared.errors import TABLE
from turnbridge.engine.run import Stage
from turnbridge.turn.clients import Client
from turnbridge.turn.errors import GatewayError, Source
from turnbridge.turn.events import Usage
from turnbridge.web.http import OPENAI, Dialect

CONTEXT_KEY = "turnbridge"
"""Where the ingress puts the `RequestContext` in the ASGI scope."""

MODEL_NAME_LIMIT = 128
"""The model is the client's own word until it is checked; no real name is longer than this."""

Outcome: TypeAlias = Literal["ok", "client_error", "server_error", "client_gone", "failed_mid_stream"]

OUTCOMES_OF_CONCERN: frozenset[Outcome] = frozenset({"server_error", "failed_mid_stream"})
"""Outcomes that an operator should look at; the others are the client's own business."""

# Asked every few seconds by machines: their lines would hide all others. That a scraper has no key is worth a line.
POLLED_ROUTES = frozenset({"/healthz", "/livez", "/readyz", "/metrics"})
REFUSED = (401, 403)

# The label of values outside a fixed list, to bound the number of series.
OTHER = "other"
ERROR_CODES = {kind.code for kind in TABLE if kind.code is not None} | {
    "unsupported_content_encoding",
    "queue_full",
    "queue_timeout",
    "shutting_down",
    "slow_reader",
}
TOKENS = ("input", "cached", "output", "reasoning")
# How many clients and models have series of their own.
MOST_CLIENTS = 100
MOST_MODELS = 64  # Only names that Codex serves get that far, and it serves fewer.

# From a list of models to a long agentic turn.
REQUEST_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1800)
# Finest where a person starts to notice the wait; the tail is for reasoning models.
FIRST_OUTPUT_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8, 13, 20, 40, 60, 120)
# Most requests do not wait at all. The last ones are near the default patience.
QUEUE_SECONDS = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)

# When a series was made tells nothing here, and would double the size of a scrape.
disable_created_metrics()  # type: ignore[no-untyped-call]


class RequestContext(msgspec.Struct, kw_only=True, eq=False):
    """One request's record: the ingress writes the first half, handlers write what they learn below it.

    A struct, since a dataclass of so many fields takes ten times as long to make.
    """

    request_id: str
    method: str
    route: str
    """The route's template, such as `/v1/responses/{response_id}`."""
    dialect: Dialect = OPENAI
    """How errors are told and keys are sent on this route."""
    clock: Callable[[], float]
    started_at: float
    response_headers: list[tuple[bytes, bytes]] = []
    """Headers of the response to this request, whichever middleware sends it."""
    late_headers: Callable[[], Iterable[tuple[bytes, bytes]]] = tuple
    """Returns further ones when the answer begins."""
    status: int | None = None
    """The HTTP status, once the response has begun."""
    first_byte_at: float | None = None
    complete: bool = False
    """Whether the response was sent to its end."""

    headers: Mapping[bytes, bytes] = {}
    """The request's; names are in lower case."""
    agent: str = ""
    """The beginning of the request's User-Agent; the log does not have it."""
    from_page: bool = False
    """Whether the page of this gateway makes the request."""
    own: bool = False
    """Whether it is for a file or data of that page, and not for an API: then it is not counted."""
    peer: str = ""
    """The address at the other end of the connection; a reverse proxy's, if there is one."""
    client: Client | None = None
    """Who asks, once the key has been checked."""
    client_gone: bool = False
    model: str | None = None
    """As the client names it."""
    codex_model: str | None = None
    """As Codex names it, once the client's name is resolved."""
    served_by: str | None = None
    stream: bool = False
    usage: Usage | None = None
    queued_at: float | None = None
    """When it was read and understood, and asked for a turn."""
    admitted_at: float | None = None
    """When it left the admission queue."""
    served_at: float | None = None
    """When a thread of Codex had its turn."""
    first_output_at: float | None = None
    error_code: str | None = None
    """The code told to the client, also when it was told inside a stream that had begun with 200."""
    error_source: Source | None = None
    on_end: "Callable[[RequestContext, Outcome], None] | None" = None
    """Called when it has ended."""

    def note_error(self, error: GatewayError) -> None:
        """Note the error that the client is sent."""
        self.error_code, self.error_source = error.error_code, error.source

    def mark(self, stage: Stage) -> None:
        """Note when the request got so far; of several turns, the first counts."""
        match stage:
            case "queued":
                self.queued_at = self.clock()
            case "admitted":
                self.admitted_at = self.clock()
            case "served":
                self.served_at = self.clock() if self.served_at is None else self.served_at
            case "output":
                self.first_output_at = self.clock() if self.first_output_at is None else self.first_output_at
            case _:
                assert_never(stage)

    def server_timing(self, *, total_at: float | None) -> bytes:
        """Return what took how long so far, in milliseconds, as the header `Server-Timing` says it."""
        parts, began = [], self.started_at
        for name, at in (
            ("decode", self.queued_at),
            ("queue", self.admitted_at),
            ("thread", self.served_at),
            ("first_output", self.first_output_at),
        ):
            if at is not None:
                parts.append(f"{name};dur={(at - began) * 1000:.1f}")
                began = at
        if total_at is not None:
            parts.append(f"total;dur={(total_at - self.started_at) * 1000:.1f}")
        return ", ".join(parts).encode()

    def begun(self, start: Message, *, leaving: bool) -> Message:
        """Note that the response begins, and return its beginning with all of its headers."""
        self.status, self.first_byte_at = start["status"], self.clock()
        headers = [*start.get("headers", ()), *self.response_headers, *self.late_headers()]
        # Only the time of an answer that is whole is known here.
        whole = b"content-length" in dict(headers)
        if timing := self.server_timing(total_at=self.first_byte_at if whole else None):
            headers.append((b"server-timing", timing))
        if leaving and self.status != HTTPStatus.SWITCHING_PROTOCOLS:
            # The client's next request is for the successor, on another connection.
            headers.append((b"connection", b"close"))
        return {**start, "headers": headers}

    def outcome(self) -> Outcome:
        """Return how the request ended."""
        if self.client_gone:
            return "client_gone"
        if self.status is None or self.status >= 500:
            return "server_error"
        if not self.complete:
            return "failed_mid_stream"
        if self.status >= 400:
            return "client_error"
        return "ok" if self.error_code is None else "failed_mid_stream"


def context_of(scope: Scope) -> RequestContext:
    """Return the record of the request that `scope` belongs to."""
    context: RequestContext = scope[CONTEXT_KEY]
    return context


def log_request(log: FilteringBoundLogger, context: RequestContext, *, outcome: Outcome, ended_at: float) -> None:
    """Write the request's one line."""
    write = log.warning if outcome in OUTCOMES_OF_CONCERN else log.info
    if (context.route in POLLED_ROUTES or context.own) and context.status not in REFUSED:
        write = log.debug
    started, usage = context.started_at, context.usage
    write(
        "request",
        request_id=context.request_id,
        client=None if context.client is None else context.client.name,
        peer=context.peer,
        method=context.method,
        route=context.route,
        model=None if context.model is None else context.model[:MODEL_NAME_LIMIT],
        served_by=context.served_by,
        stream=context.stream,
        status=context.status,
        outcome=outcome,
        error_code=context.error_code,
        **{f"{kind}_tokens": None if usage is None else getattr(usage, kind) for kind in TOKENS},
        first_byte_ms=_milliseconds(started, context.first_byte_at),
        first_output_ms=_milliseconds(started, context.first_output_at),
        total_ms=_milliseconds(started, ended_at),
    )


def _milliseconds(start: float, end: float | None) -> float | None:
    return None if end is None else round((end - start) * 1000, 3)


Series: TypeAlias = Callable[[], Mapping[tuple[str, ...], float]]
"""Returns values by the values of their labels."""


class _Watched(Collector):
    """A counter or gauge whose values are read at each scrape, from what counts by itself."""

    def __init__(self, name: str, description: str, values: Series, *, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._description = description
        self._values = values
        self._labels = labels

    def collect(self) -> Iterable[Metric]:
        kind = CounterMetricFamily if self._name.endswith("_total") else GaugeMetricFamily
        family = kind(self._name, self._description, labels=self._labels)
        for values, count in self._values().items():
            family.add_metric(values, count)
        yield family


class _Durations(Collector):
    """A histogram of seconds with at most one label, whose values are counted here and read at each scrape."""

    def __init__(self, name: str, description: str, bounds: Sequence[float], *labels: str) -> None:
        self._name = f"turnbridge_{name}_seconds"
        self._description = description
        self._bounds = bounds
        self._labels = labels
        self._empty = (0,) * (len(bounds) + 1)
        self._counts: dict[tuple[str, ...], list[int]] = {} if labels else {(): [*self._empty]}
        self._sums: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def observe(self, seconds: float, *values: str) -> None:
        """Count a duration, of the series with these values of the labels."""
        counts = self._counts.get(values)
        if counts is None:
            counts = self._counts[values] = [*self._empty]
        counts[bisect_left(self._bounds, seconds)] += 1
        self._sums[values] += seconds

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._description, labels=self._labels)
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for values, counts in self._counts.items():
            family.add_metric(values, list(zip(bounds, accumulate(counts), strict=True)), self._sums[values])
        yield family


class Metrics:
    """All series of one gateway, in its own registry.

    What every request adds to is counted in dictionaries here: the library takes its locks and four calls for each
    increment, of which a request has 19.
    """

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        ProcessCollector(registry=own)
        GCCollector(registry=own)
        build = {"version": __version__, "python": platform.python_version()}
        Info("turnbridge_build", "What runs here.", registry=own).info(build)
        self.active = 0
        self.watch("turnbridge_active_requests", "Requests being served.", lambda: self.active)
        self._requests = self._counter("requests", "Requests that ended.", "route", "status_class", "outcome")
        self._tokens = self._counter("tokens", "Tokens; input includes cached, output reasoning.", "kind", "model")
        self._turns = self._counter("turns", "Turns that ended: fresh, replayed, warm or parked.", "thread", "model")
        self._errors = self._counter(
            "errors",
            "Error responses, by code and by where the failure comes from: client, gateway or provider.",
            "code",
            "source",
        )
        self._seconds = self._histogram("request", "Duration of requests.", REQUEST_SECONDS, "route")
        self._first_output = self._histogram(
            "first_output",
            "Time to the model's first output, from the arrival of the request.",
            FIRST_OUTPUT_SECONDS,
            "model",
        )
        self.waited = self._histogram(
            "queue_wait",
            "Time in the admission queue, of requests that were admitted and of those that gave up.",
            QUEUE_SECONDS,
        )
        self._client_requests = self._counter("client_requests", "Requests with a valid key that ended.", "client")
        self._client_tokens = self._counter("client_tokens", "Tokens of each client, by kind.", "client", "kind")
        self._models: set[str] = set()
        self._clients: set[str] = set()

    def _counter(self, name: str, description: str, *labels: str) -> defaultdict[tuple[str, ...], int]:
        """Return the counts of a new counter, by the values of its labels."""
        counts: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self.registry.register(_Watched(f"turnbridge_{name}_total", description, lambda: counts, labels=labels))
        return counts

    def _histogram(self, name: str, description: str, bounds: Sequence[float], *labels: str) -> Callable[..., None]:
        """Return what adds a duration to a new histogram."""
        durations = _Durations(name, description, bounds, *labels)
        self.registry.register(durations)
        return durations.observe

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read at each scrape."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def watch_total(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a counter whose value is read at each scrape."""
        self.registry.register(_Watched(name, description, lambda: {(): value()}))

    def watch_each(self, name: str, description: str, values: Series, *, labels: Sequence[str]) -> None:
        """Add a gauge with a series for each key of `values`, which is called at each scrape; a counter by its name."""
        self.registry.register(_Watched(name, description, values, labels=labels))

    def request_ended(self, context: RequestContext, *, outcome: Outcome, ended_at: float) -> None:
        self.active -= 1
        status_class = "none" if context.status is None else f"{context.status // 100}xx"
        self._requests[context.route, status_class, outcome] += 1
        self._seconds(ended_at - context.started_at, context.route)
        if context.first_output_at is not None:
            self._first_output(context.first_output_at - context.started_at, self._model_label(context.codex_model))
        if context.client is not None:
            self._client_requests[(self._client_label(context.client),)] += 1
        if context.usage is not None:
            self.turn_ended(context.usage, context.served_by, context.codex_model, context.client)
        if outcome not in ("ok", "client_gone"):
            code = context.error_code if context.error_code in ERROR_CODES else None
            self._errors[code or OTHER, context.error_source or "gateway"] += 1

    def turn_ended(self, usage: Usage, served_by: str | None, model: str | None, client: Client | None) -> None:
        """Count the tokens of a request or of a background response, how it was served, and for whom."""
        label, named = self._model_label(model), None if client is None else self._client_label(client)
        for kind in TOKENS:
            if count := getattr(usage, kind):
                self._tokens[kind, label] += count
                if named is not None:
                    self._client_tokens[named, kind] += count
        if served_by is not None:
            self._turns[served_by, label] += 1

    def _model_label(self, model: str | None) -> str:
        """Return the label of a model that Codex serves; of nearly all, its name."""
        if model in self._models:
            return model
        if model is None or len(self._models) >= MOST_MODELS:
            return OTHER
        self._models.add(model)
        return model

    def _client_label(self, client: Client) -> str:
        """Return the name of a client; those beyond the first hundred share one."""
        if client.name in self._clients:
            return client.name
        if len(self._clients) >= MOST_CLIENTS:
            return OTHER
        self._clients.add(client.name)
        return client.name

    async def scrape(self, request: Request) -> Response:
        """Answer a scrape, in the format that it asks for."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self.registry), headers={"content-type": content_type})
