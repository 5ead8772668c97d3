"""What is known of one request while it is served; the one line that is logged when it ends, and the metrics.

The line tells who waited how long for what, and how it ended. A client is named by a digest of its key. The line never
holds prompts, keys, query strings or the paths of unknown routes: only fields of `RequestContext` reach it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope
from structlog.typing import FilteringBoundLogger

from turnbridge.api.shared.errors import TABLE
from turnbridge.turn.events import Usage
from turnbridge.web.http import OPENAI, Dialect

CONTEXT_KEY = "turnbridge"
"""Where the ingress puts the `RequestContext` in the ASGI scope."""

MODEL_NAME_LIMIT = 128
"""The model is the client's own word until it is checked; no real name is longer than this."""

Outcome: TypeAlias = Literal["ok", "client_error", "server_error", "client_gone", "failed_mid_stream"]

OUTCOMES_OF_CONCERN: frozenset[Outcome] = frozenset({"server_error", "failed_mid_stream"})
"""Outcomes that an operator should look at; the others are the client's own business."""

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

# From a list of models to a long agentic turn.
REQUEST_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1800)
# Finest where a person starts to notice the wait; the tail is for reasoning models.
FIRST_OUTPUT_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8, 13, 20, 40, 60, 120)

# When a series was made tells nothing here, and would double the size of a scrape.
disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who makes a request."""

    id: str
    """Under which its data are stored and its limits counted."""
    name: str
    """As logs show it."""


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """One request's record: the ingress writes the first half, handlers write what they learn below it."""

    request_id: str
    method: str
    route: str
    """The route's template, such as `/v1/responses/{response_id}`."""
    dialect: Dialect = OPENAI
    """How errors are told and keys are sent on this route."""
    clock: Callable[[], float]
    started_at: float
    response_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Headers that the answer to this request carries, whoever gives it."""
    status: int | None = None
    """The HTTP status, once the response has begun."""
    first_byte_at: float | None = None
    complete: bool = False
    """Whether the response was sent to its end."""

    peer: str = ""
    """The address at the other end of the connection; a reverse proxy's, if there is one."""
    client: Client | None = None
    """Who asks, once the key has been checked."""
    client_gone: bool = False
    model: str | None = None
    served_by: str | None = None
    stream: bool = False
    usage: Usage | None = None
    first_output_at: float | None = None
    error_code: str | None = None
    """The code told to the client, also when it was told inside a stream that had begun with 200."""

    def mark_first_output(self) -> None:
        """Note when the model's first output came; later calls change nothing."""
        if self.first_output_at is None:
            self.first_output_at = self.clock()

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


class Metrics:
    """All series of one gateway, in its own registry."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        ProcessCollector(registry=own)
        GCCollector(registry=own)
        self._active = Gauge("turnbridge_active_requests", "Requests being served.", registry=own)
        requests = Counter(
            "turnbridge_requests_total", "Requests that ended.", ("route", "status_class", "outcome"), registry=own
        )
        tokens = Counter(
            "turnbridge_tokens_total", "Tokens; input includes cached, output reasoning.", ("kind",), registry=own
        )
        turns = Counter(
            "turnbridge_turns_total", "Turns that were fresh, replayed, warm or parked.", ("thread",), registry=own
        )
        errors = Counter("turnbridge_errors_total", "Error responses, by code.", ("code",), registry=own)
        seconds = Histogram(
            "turnbridge_request_seconds", "Duration of requests.", ("route",), registry=own, buckets=REQUEST_SECONDS
        )
        first_output = Histogram(
            "turnbridge_first_output_seconds",
            "Time to the first output.",
            ("route",),
            registry=own,
            buckets=FIRST_OUTPUT_SECONDS,
        )
        # The library finds a series by its labels in 1 µs.
        self._requests, self._tokens, self._turns = cache(requests.labels), cache(tokens.labels), cache(turns.labels)
        self._errors, self._seconds = cache(errors.labels), cache(seconds.labels)
        self._first_output = cache(first_output.labels)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read at each scrape."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def request_began(self) -> None:
        self._active.inc()

    def request_ended(self, context: RequestContext, *, outcome: Outcome, ended_at: float) -> None:
        self._active.dec()
        status_class = "none" if context.status is None else f"{context.status // 100}xx"
        self._requests(context.route, status_class, outcome).inc()
        self._seconds(context.route).observe(ended_at - context.started_at)
        if context.first_output_at is not None:
            self._first_output(context.route).observe(context.first_output_at - context.started_at)
        if context.usage is not None:
            self.turn_ended(context.usage, context.served_by)
        if outcome not in ("ok", "client_gone"):
            self._errors(context.error_code if context.error_code in ERROR_CODES else OTHER).inc()

    def turn_ended(self, usage: Usage, served_by: str | None) -> None:
        """Count the tokens of a request or of a background response, and how it was served."""
        for kind in TOKENS:
            if count := getattr(usage, kind):
                self._tokens(kind).inc(count)
        if served_by is not None:
            self._turns(served_by).inc()

    async def scrape(self, request: Request) -> Response:
        """Answer a scrape, in the format that it asks for."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self.registry), headers={"content-type": content_type})
