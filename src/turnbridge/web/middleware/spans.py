"""OpenTelemetry: one span for each request, and below it where its time went. No prompts, no answers, no keys.

Spans are made when a request has ended, out of the times that its record holds anyway: while it is served, nothing is
done for them. The packages are an extra, imported only if an endpoint is named in the environment.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import structlog
from starlette.types import Scope

from turnbridge import __version__
from turnbridge.web.http import header_value
from turnbridge.web.middleware.observability import (
    MODEL_NAME_LIMIT,
    OUTCOMES_OF_CONCERN,
    POLLED_ROUTES,
    Outcome,
    RequestContext,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

log = structlog.get_logger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
SERVED_PROTOCOL = "http/protobuf"
OPERATION = "chat"
"""GenAI's name for what all three APIs do."""
PROVIDER = "codex"
NS_PER_S = 1_000_000_000

Attributes: TypeAlias = dict[str, str | int | bool]


def spans_for(environment: Mapping[str, str]) -> "Spans | None":
    """Return what makes spans, if the environment names a collector, as it does for every OpenTelemetry SDK."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if disabled or not any(environment.get(name) for name in ENDPOINTS):
        return None
    protocol = next((environment[name] for name in PROTOCOLS if environment.get(name)), SERVED_PROTOCOL)
    if protocol != SERVED_PROTOCOL:
        log.warning("otel_off", reason=f"The protocol {protocol} is not served; use {SERVED_PROTOCOL}.")
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError as error:
        log.warning("otel_off", reason=f"The package {error.name} is missing: install the extra `otel`.")
        return None
    return Spans(BatchSpanProcessor(OTLPSpanExporter()), environment)


class Spans:
    """Makes the spans of requests that have ended."""

    # How long the end of the gateway may wait for a collector: spans that are not sent by then are lost.
    flush_s = 3.0

    def __init__(self, processor: "SpanProcessor", environment: Mapping[str, str]) -> None:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
        own = {"service.version": __version__, **({} if named else {"service.name": "turnbridge"})}
        # Its own hook at exit would wait for a collector that is down.
        self._provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("turnbridge", __version__)
        self._extract: Callable[..., object] = TraceContextTextMapPropagator().extract

    def request_ended(self, context: RequestContext, scope: Scope, *, outcome: Outcome, ended_at: float) -> None:
        """Make the span of a request, and those of its stages."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context  # noqa: PLC0415

        if context.route in POLLED_ROUTES:
            return
        now_ns = time.time_ns()

        def at(moment: float) -> int:
            return now_ns - int((ended_at - moment) * NS_PER_S)

        span = self._tracer.start_span(
            _name(context),
            context=self._extract(dict(_carried(scope))),  # type: ignore[arg-type]  # Typed as any context.
            kind=SpanKind.SERVER,
            attributes=_attributes(context, outcome),
            start_time=at(context.started_at),
        )
        if outcome in OUTCOMES_OF_CONCERN:
            span.set_status(Status(StatusCode.ERROR, context.error_code))
        below = set_span_in_context(span)
        for name, began, ended in _stages(context, ended_at):
            kind = SpanKind.CLIENT if name == "provider" else SpanKind.INTERNAL
            stage = self._tracer.start_span(name, context=below, kind=kind, start_time=at(began))
            if name == "provider" and context.first_output_at is not None:
                stage.add_event("first_output", timestamp=at(context.first_output_at))
            stage.end(at(ended))
        span.end(now_ns)

    def close(self) -> None:
        """Send what is left, for a short while; to be called in a thread."""
        # A daemon, since the exporter goes on trying for longer than a stop may take.
        closing = threading.Thread(target=self._provider.shutdown, name="otel", daemon=True)
        closing.start()
        closing.join(self.flush_s)


def _carried(scope: Scope) -> Iterator[tuple[str, str]]:
    """Yield the headers by which a caller's trace goes on."""
    for name in ("traceparent", "tracestate"):
        if (value := header_value(scope, name.encode())) is not None:
            yield name, value.decode("latin-1")


def _name(context: RequestContext) -> str:
    """Return a name of which there are few."""
    return f"{OPERATION} {context.codex_model}" if context.codex_model else f"{context.method} {context.route}"


def _attributes(context: RequestContext, outcome: Outcome) -> Attributes:
    """Return the attributes by the semantic conventions of HTTP and of GenAI, and ours."""
    told: dict[str, str | int | bool | None] = {
        "http.request.method": context.method,
        "http.route": context.route,
        "http.response.status_code": context.status,
        "error.type": context.error_code,
        "turnbridge.request_id": context.request_id,
        "turnbridge.outcome": outcome,
        "turnbridge.client": None if context.client is None else context.client.name,
        "turnbridge.thread": context.served_by,
    }
    if context.codex_model is not None:
        told |= {
            "gen_ai.operation.name": OPERATION,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": (context.model or context.codex_model)[:MODEL_NAME_LIMIT],
            "gen_ai.response.model": context.codex_model,
            "turnbridge.stream": context.stream,
        }
    if context.usage is not None:
        told |= {
            "gen_ai.usage.input_tokens": context.usage.input,
            "gen_ai.usage.output_tokens": context.usage.output,
            "gen_ai.usage.cache_read.input_tokens": context.usage.cached,
        }
    return {name: value for name, value in told.items() if value is not None}


def _stages(context: RequestContext, ended_at: float) -> Iterator[tuple[str, float, float]]:
    """Yield each stage that has begun, with its beginning and its end."""
    begun = (
        ("queue", context.queued_at),
        ("thread", context.admitted_at),
        ("provider", context.served_at),
    )
    known = [(name, at) for name, at in begun if at is not None]
    for (name, began), (_, ended) in pairwise([*known, ("", ended_at)]):
        yield name, began, ended
