"""Spans of a real gateway, as a collector gets them."""

import asyncio
import signal
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.gateway_process import API_KEY, gateway_process
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.real]

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ASKED, SAID = "a question that nobody else may read", "an answer that nobody else may read"
END_TIMEOUT_S = 25


class Collector:
    """Accepts what an exporter sends over HTTP, and keeps the bodies."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.bodies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
                self.paths.append(lines[0].split()[1])
                self.bodies.append(await reader.readexactly(int(fields["content-length"])))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()


@pytest.mark.promise("telemetry.spans")
async def test_a_collector_gets_the_spans_and_nothing_that_was_said(tmp_path: Path) -> None:
    collector = Collector()
    server = await asyncio.start_server(collector.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = {"WORKER_COUNT": 1, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    async with (
        ScriptedModel(lambda _: answer(message(SAID))) as model,
        gateway_process(tmp_path, model.base_url, settings) as gateway,
        gateway.client() as http,
    ):
        await gateway.ready()
        body = {"model": "gpt-5.5", "input": ASKED}
        sent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert (await http.post("/v1/responses", json=body, headers=sent)).status_code == 200
        gateway.send(signal.SIGTERM)
        async with asyncio.timeout(END_TIMEOUT_S):
            assert await gateway.process.wait() == 0
    server.close()
    assert set(collector.paths) == {"/v1/traces"}
    raw = b"".join(collector.bodies)
    assert not any(secret.encode() in raw for secret in (ASKED, SAID, API_KEY))
    (resource,) = [
        each for body in collector.bodies for each in ExportTraceServiceRequest.FromString(body).resource_spans
    ]
    spans = {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert set(spans) == {"chat gpt-5.5", "queue", "thread", "provider"}
    request = spans["chat gpt-5.5"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    assert {span.parent_span_id for name, span in spans.items() if span is not request} == {request.span_id}
    said = {each.key: each.value for each in request.attributes}
    assert said["gen_ai.usage.input_tokens"].int_value > 0
    assert said["gen_ai.response.model"].string_value == "gpt-5.5"
