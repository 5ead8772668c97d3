"""The lines of a trace: each is one for every reader, of bounded length, and without keys in whatever field."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.trace.reading import lines, trace_to
from turnbridge.trace import redaction
from turnbridge.trace.redaction import Redaction
from turnbridge.trace.trace import Line, Trace, TraceFile
from turnbridge.turn.items import JsonObject

TRICKS = "\x1b[2J\x7f\x85\x9b2J\u2028\u2029\u202e\U000e0001\r\n é 漢 😀"


@pytest.mark.promise("bounds.log-lines")
def test_a_line_is_one_line_for_every_reader_and_steers_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path)
    payload = trace.redaction.value({TRICKS: [TRICKS]})
    line_of = partial(Line, *trace.clock(), "http_ingress", "inbound", "request")
    trace.note(line_of("mine", method=f"GET /{TRICKS}", payload=payload.raw))
    trace.close()
    written = path.read_text(encoding="utf-8")
    assert written.removesuffix("\n").isprintable()
    (line,) = lines(path)
    assert (line["payload"], line["method"]) == ({TRICKS: [TRICKS]}, f"GET /{TRICKS}")
    assert "é 漢 😀" in written


def test_a_long_path_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path)
    trace.note(Line(*trace.clock(), "http_ingress", "inbound", "request", method="GET /" + "x" * 60_000))
    trace.close()
    (line,) = lines(path)
    assert len(line["method"]) <= 512
    assert line["method"].startswith("GET /xxx")


def test_even_without_a_limit_a_payload_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "MOST_PAYLOAD_BYTES", 1000)
    cut = Redaction(limit=0).value("x" * 10_000)
    assert (cut.cut, len(msgspec.json.decode(cut.raw))) == (True, 1000)


def test_a_key_that_is_sent_as_an_id_or_a_path_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = Trace(TraceFile(path), Redaction(keys=["the-key-of-a-client"]))
    named: JsonObject = {"headers": {"idempotency-key": "the-key-of-a-client"}, "user": "the-key-of-a-client"}
    line = Line(
        *trace.clock(),
        "http_ingress",
        "inbound",
        "request",
        request_id="the-key-of-a-client",
        method="GET /v1/responses/the-key-of-a-client",
        payload=trace.redaction.value(named).raw,
    )
    trace.note(line)
    trace.close()
    assert "the-key" not in path.read_text(encoding="utf-8")
