"""Spans of requests: what they say, whose trace they belong to, and that there are none unless they are asked for."""

import os
import socket
import subprocess
import sys
import time

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from turnbridge import __version__
from turnbridge.turn.errors import UpstreamFailed
from turnbridge.turn.events import Usage
from turnbridge.web.middleware.observability import Outcome, RequestContext
from turnbridge.web.middleware.spans import Spans, spans_for

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
MS = 1_000_000


def ended(*, answered: bool = True) -> RequestContext:
    """Return the record of a request that came at 10.0."""
    context = RequestContext(request_id="req_1", method="POST", route="/v1/responses", clock=float, started_at=10.0)
    context.model, context.codex_model, context.status, context.complete = "codex-5", "gpt-5.5", 200, True
    context.queued_at, context.admitted_at, context.served_at = 10.1, 10.3, 10.6
    if answered:
        context.first_output_at, context.served_by = 11.0, "fresh"
        context.usage = Usage(input=30, cached=20, output=10)
    return context


def made(context: RequestContext, *, outcome: Outcome = "ok", **headers: str) -> dict[str, ReadableSpan]:
    """Return the spans of a request that ended at 12.0, by their names."""
    exporter = InMemorySpanExporter()
    spans = Spans(SimpleSpanProcessor(exporter), {})
    scope = {"headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    spans.request_ended(context, scope, outcome=outcome, ended_at=12.0)
    return {span.name: span for span in exporter.get_finished_spans()}


def milliseconds(span: ReadableSpan) -> int:
    assert span.start_time is not None
    assert span.end_time is not None
    return round((span.end_time - span.start_time) / MS)


@pytest.mark.promise("telemetry.spans")
def test_a_request_is_one_span_with_its_stages_below() -> None:
    spans = made(ended())
    request = spans["chat gpt-5.5"]
    assert {name: milliseconds(span) for name, span in spans.items()} == {
        "chat gpt-5.5": 2000,
        "queue": 200,
        "thread": 300,
        "provider": 1400,
    }
    assert (request.kind, request.parent, request.status.status_code) == (SpanKind.SERVER, None, StatusCode.UNSET)
    assert request.resource.attributes["service.name"] == "turnbridge"
    assert request.resource.attributes["service.version"] == __version__
    for stage in ("queue", "thread", "provider"):
        assert spans[stage].parent == request.context
    (first,) = spans["provider"].events
    assert (first.name, round((first.timestamp - (spans["provider"].start_time or 0)) / MS)) == ("first_output", 400)


@pytest.mark.promise("telemetry.spans")
def test_attributes_follow_the_conventions_and_hold_nothing_that_was_said() -> None:
    assert dict(made(ended())["chat gpt-5.5"].attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/responses",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "codex",
        "gen_ai.request.model": "codex-5",
        "gen_ai.response.model": "gpt-5.5",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "turnbridge.request_id": "req_1",
        "turnbridge.outcome": "ok",
        "turnbridge.thread": "fresh",
        "turnbridge.stream": False,
    }


@pytest.mark.promise("telemetry.spans")
def test_a_callers_trace_goes_on() -> None:
    request = made(ended(), traceparent=f"00-{TRACE}-{PARENT}-01")["chat gpt-5.5"]
    assert request.parent is not None
    assert (f"{request.context.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, PARENT)


@pytest.mark.parametrize("wrong", ["", "00-xyz", f"00-{TRACE}-{PARENT}", "\xff" * 4000])
def test_a_broken_traceparent_is_a_trace_of_its_own(wrong: str) -> None:
    assert made(ended(), traceparent=wrong)["chat gpt-5.5"].parent is None


def test_a_failure_says_its_code() -> None:
    context = ended(answered=False)
    context.note_error(UpstreamFailed("It broke, and this is what it said."))
    context.status = 502
    spans = made(context, outcome="server_error")
    request = spans["chat gpt-5.5"]
    assert request.status.status_code == StatusCode.ERROR
    assert (request.attributes or {})["error.type"] == "upstream_error"
    assert "what it said" not in request.to_json()
    assert spans["provider"].events == ()


def test_a_request_without_a_model_is_named_by_its_route_and_probes_are_left_out() -> None:
    context = RequestContext(request_id="r", method="GET", route="/v1/models", clock=float, started_at=10.0)
    assert list(made(context)) == ["GET /v1/models"]
    context.route = "/healthz"
    assert made(context) == {}


@pytest.mark.promise("telemetry.off")
@pytest.mark.parametrize("environment", [{}, {**COLLECTOR, "OTEL_SDK_DISABLED": "true"}])
def test_without_a_collector_there_are_none(environment: dict[str, str]) -> None:
    assert spans_for(environment) is None


@pytest.mark.promise("telemetry.off")
def test_a_missing_package_or_another_protocol_is_told_once_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with capture_logs() as logged:
        assert spans_for(COLLECTOR) is None
        assert spans_for({**COLLECTOR, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is None
    assert [line["event"] for line in logged] == ["otel_off", "otel_off"]


@pytest.mark.promise("telemetry.off")
def test_the_server_imports_nothing_of_it_by_itself() -> None:
    look = "import sys, turnbridge.cli.serve; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, encoding="utf-8", check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_the_end_does_not_wait_long_for_a_collector_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        spans = spans_for(os.environ)
        assert spans is not None
        spans.flush_s = 0.2
        spans.request_ended(ended(), {"headers": []}, outcome="ok", ended_at=12.0)
        began = time.monotonic()
        spans.close()
        assert time.monotonic() - began < 5
