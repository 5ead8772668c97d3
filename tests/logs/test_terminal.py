"""The log as text."""

import io
import re

import pytest
import structlog

from turnbridge.logs.output import may_colour
from turnbridge.logs.setup import configure_logging
from turnbridge.logs.terminal import TerminalForm

REQUEST = {
    "event": "request",
    "timestamp": "14:05:31",
    "method": "POST",
    "route": "/v1/chat/completions",
    "model": "gpt-5.5",
    "served_by": "warm",
    "status": 200,
    "outcome": "ok",
    "error_code": None,
    "input_tokens": 15_240,
    "output_tokens": 62,
    "total_ms": 1234.5,
}


def line(**changes: object) -> str:
    form = TerminalForm(colours=False, exceptions=structlog.dev.plain_traceback)
    return form(None, "info", {**REQUEST, **changes})


@pytest.mark.promise("commands.serve.lines")
@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "14:05:31 200  1.2 s POST /v1/chat/completions gpt-5.5 15k→62 warm"),
        (
            {"model": "a-model-with-a-long-name", "total_ms": 83_000.0, "output_tokens": 1_249},
            "14:05:31 200  1m23s POST /v1/chat/completions a-model-with-a-… 15k→1.2k warm",
        ),
        (
            {"status": 429, "error_code": "queue_full", "input_tokens": None, "output_tokens": None, "total_ms": 0.4},
            "14:05:31 429   0 ms POST /v1/chat/completions gpt-5.5 queue_full",
        ),
        (
            {"outcome": "client_gone"},
            "14:05:31 200  1.2 s POST /v1/chat/completions gpt-5.5 15k→62 warm client left",
        ),
        (
            {"status": None, "model": None, "total_ms": None},
            "14:05:31 ---      - POST /v1/chat/completions 15k→62 warm",
        ),
    ],
)
def test_a_request_is_one_line(changes: dict[str, object], shown: str) -> None:
    assert line(**changes) == shown
    assert len(shown) <= 80


@pytest.mark.promise("commands.serve.lines")
@pytest.mark.parametrize(("terminal", "form", "text"), [(True, "json", False), (False, "text", True)])
def test_the_form_can_be_chosen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, form: str, text: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    configure_logging("info", form)  # type: ignore[arg-type]
    structlog.get_logger().info("request", **{key: REQUEST[key] for key in ("method", "route", "status")})
    written = capsys.readouterr().err
    assert written.startswith("{") != text
    if text:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d 200      - POST /v1/chat/completions\n", written)


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_colours_are_for_those_who_want_them(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert may_colour(terminal) == coloured
    assert not may_colour(io.StringIO())
