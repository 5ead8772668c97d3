"""Prometheus metrics and `/metrics`.

Counters and histograms are our own collectors: prometheus-client's take 12 µs a request, or 6 with cached children, and
these 3.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
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

# The label of values outside a fixed list, to bound the number of series.
OTHER = "other"
INGRESS_ERROR_CODES = frozenset(
    {"unsupported_content_encoding", "queue_full", "queue_timeout", "shutting_down", "slow_reader"}
)
"""Codes to count besides those of the error classes."""

# From a list of models to a long agentic turn.
REQUEST_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1800)
# Finest where a person starts to notice the wait; the tail is for reasoning models.
FIRST_OUTPUT_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8, 13, 20, 40, 60, 120)


class Metrics:
    """All series of one gateway, in its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._error_codes = INGRESS_ERROR_CODES.union(kind.code for kind in TABLE if kind.code is not None)
        self._active = 0
        self.watch("turnbridge_active_requests", "Requests being served.", lambda: self._active)
        self._requests = Tally("turnbridge_requests_total", "Requests that ended.", "route", "status_class", "outcome")
        self._tokens = Tally("turnbridge_tokens_total", "Tokens; input includes cached, output reasoning.", "kind")
        self._turns = Tally("turnbridge_turns_total", "Turns that were fresh, replayed, warm or parked.", "thread")
        self._errors = Tally("turnbridge_errors_total", "Error responses, by code.", "code")
        self._seconds = Distribution("turnbridge_request_seconds", "Duration of requests.", "route", REQUEST_SECONDS)
        self._first_output = Distribution(
            "turnbridge_first_output_seconds", "Time to the first output.", "route", FIRST_OUTPUT_SECONDS
        )
        for series in (self._requests, self._tokens, self._turns, self._errors, self._seconds, self._first_output):
            self.registry.register(series)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read at each scrape."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def request_began(self) -> None:
        self._active += 1

    def request_ended(self, context: RequestContext, *, outcome: Outcome, ended_at: float) -> None:
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
        self._count_tokens(input=usage.input, cached=usage.cached, output=usage.output, reasoning=usage.reasoning)
        self._turns.add(served_by)

    def _count_tokens(self, **counts: int | None) -> None:
        for kind, count in counts.items():
            if count:
                self._tokens.add(kind, count=count)


def metrics_endpoint(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), headers={"content-type": content_type})

    return serve


class Tally(Collector):
    """A counter with labels."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self._name, self._description, self._labels = name, description, labels
        self._counts: Counter[tuple[str, ...]] = Counter()

    def add(self, *labels: str, count: int = 1) -> None:
        self._counts[labels] += count

    def collect(self) -> Iterable[Metric]:
        series = CounterMetricFamily(self._name, self._description, labels=self._labels)
        for labels, count in self._counts.items():
            series.add_metric(labels, count)
        yield series


class Distribution(Collector):
    """A histogram with one label. Its buckets are disjoint until a scrape adds them up."""

    def __init__(self, name: str, description: str, label: str, bounds: Sequence[float]) -> None:
        self._name, self._description, self._label = name, description, label
        self._bounds = bounds
        self._names = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(self._names))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def add(self, label: str, value: float) -> None:
        """Count a value in its bucket."""
        self._counts[label][bisect_left(self._bounds, value)] += 1
        self._sums[label] += value

    def collect(self) -> Iterable[Metric]:
        """Return the series, with cumulative buckets as Prometheus defines them."""
        series = HistogramMetricFamily(self._name, self._description, labels=[self._label])
        for label, counts in self._counts.items():
            series.add_metric([label], list(zip(self._names, accumulate(counts), strict=True)), self._sums[label])
        yield series
