"""Prometheus metrics: what is counted, `/metrics`, and who may read it."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge, GCCollector, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from turnbridge.api.shared.errors import TABLE
from turnbridge.turn.events import Usage
from turnbridge.web.middleware.access_log import Outcome, RequestContext

OTHER = "other"
"""The label of whatever is in no fixed list."""

INGRESS_ERROR_CODES = frozenset(
    {"unsupported_content_encoding", "queue_full", "queue_timeout", "shutting_down", "slow_reader"}
)
"""Codes that an operator should be able to count, and that no error class carries by itself."""

REQUEST_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1800)
"""From a list of models to a long agentic turn."""

FIRST_OUTPUT_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8, 13, 20, 40, 60, 120)
"""Finest where a person starts to notice the wait; the tail is a model that reasons first."""


class Metrics:
    """All series of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._error_codes = INGRESS_ERROR_CODES.union(kind.code for kind in TABLE if kind.code is not None)
        self._active = 0
        self.watch("turnbridge_active_requests", "Requests being served.", lambda: self._active)
        self._requests = Tally("turnbridge_requests_total", "Requests that ended.", "route", "status_class", "outcome")
        self._tokens = Tally(
            "turnbridge_tokens_total",
            "Tokens as the provider counts them; cached are part of input, reasoning of output.",
            "kind",
        )
        self._turns = Tally(
            "turnbridge_turns_total", "Turns by how they were served: fresh, replayed, warm or parked.", "thread"
        )
        self._errors = Tally("turnbridge_errors_total", "Errors told to clients, by code.", "code")
        self._seconds = Distribution(
            "turnbridge_request_seconds",
            "From the request's arrival to the end of its answer.",
            "route",
            REQUEST_SECONDS,
        )
        self._first_output = Distribution(
            "turnbridge_first_output_seconds",
            "From the request's arrival to the model's first output.",
            "route",
            FIRST_OUTPUT_SECONDS,
        )
        for series in (self._requests, self._tokens, self._turns, self._errors, self._seconds, self._first_output):
            self.registry.register(series)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Show a value that something else keeps, as it is at each reading."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def request_began(self) -> None:
        """Count a request that is being served."""
        self._active += 1

    def request_ended(self, context: RequestContext, *, outcome: Outcome, ended_at: float) -> None:
        """Count a request that is no longer served, with all that is known of it."""
        self._active -= 1
        status_class = "none" if context.status is None else f"{context.status // 100}xx"
        self._requests.add(context.route, status_class, outcome)
        self._seconds.add(context.route, ended_at - context.started_at)
        if context.first_output_at is not None:
            self._first_output.add(context.route, context.first_output_at - context.started_at)
        self._count_tokens(
            input=context.input_tokens,
            cached=context.cached_tokens,
            output=context.output_tokens,
            reasoning=context.reasoning_tokens,
        )
        if context.served_by is not None:
            self._turns.add(context.served_by)
        if outcome not in ("ok", "client_gone"):
            code = context.error_code
            self._errors.add(code if code in self._error_codes else OTHER)

    def background_ended(self, usage: Usage, served_by: str) -> None:
        """Count a turn that no request waited for."""
        self._count_tokens(input=usage.input, cached=usage.cached, output=usage.output, reasoning=usage.reasoning)
        self._turns.add(served_by)

    def _count_tokens(self, **counts: int | None) -> None:
        for kind, count in counts.items():
            if count:
                self._tokens.add(kind, count=count)


def metrics_endpoint(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of `/metrics`."""

    async def serve(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), headers={"content-type": content_type})

    return serve


class Tally(Collector):
    """Counts what has happened, by labels."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self._name, self._description, self._labels = name, description, labels
        self._counts: Counter[tuple[str, ...]] = Counter()

    def add(self, *labels: str, count: int = 1) -> None:
        """Count something."""
        self._counts[labels] += count

    def collect(self) -> Iterable[Metric]:
        """Return the series."""
        series = CounterMetricFamily(self._name, self._description, labels=self._labels)
        for labels, count in self._counts.items():
            series.add_metric(labels, count)
        yield series


class Distribution(Collector):
    """Counts values in buckets, by one label; a value belongs to the first bucket whose bound it does not exceed."""

    def __init__(self, name: str, description: str, label: str, bounds: Sequence[float]) -> None:
        self._name, self._description, self._label = name, description, label
        self._bounds = bounds
        self._names = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def add(self, label: str, value: float) -> None:
        """Count a value."""
        counts = self._counts.get(label)
        if counts is None:
            counts = self._counts[label] = [0] * len(self._names)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[label] = self._sums.get(label, 0.0) + value

    def collect(self) -> Iterable[Metric]:
        """Return the series; each bucket of Prometheus's holds those below it, too."""
        series = HistogramMetricFamily(self._name, self._description, labels=[self._label])
        for label, counts in self._counts.items():
            series.add_metric([label], list(zip(self._names, accumulate(counts), strict=True)), self._sums[label])
        yield series
