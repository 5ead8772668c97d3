"""What reaches stderr, and in which form."""

import json
import logging
import re
import sys

import pytest
import structlog
import uvicorn
from dirty_equals import IsStr
from starlette.types import Receive, Scope, Send

from turnbridge.logs.setup import conceal, configure_logging
from turnbridge.turn.items import JsonObject


async def no_app(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotImplementedError


def failure() -> LookupError:
    # Made at run time, so that it is in no line of source that a traceback shows.
    prompt = "".join(["hush", "-", "hush"])
    try:
        raise LookupError(len(prompt))
    except LookupError as error:
        return error


def lines(capsys: pytest.CaptureFixture[str]) -> list[JsonObject]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_an_event_is_one_json_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    structlog.get_logger().info("request", status=200, text="two\nlines", odd="\ud800")
    assert lines(capsys) == [
        {
            "event": "request",
            "level": "info",
            "timestamp": IsStr(regex=r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"),
            "status": 200,
            "text": "two\nlines",
            "odd": "\ud800",
        }
    ]


def test_what_the_server_logs_takes_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    uvicorn.Config(no_app, log_config=None)
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7, extra={"color_message": "!"})
    assert lines(capsys) == [
        {
            "event": "Started server process [7]",
            "level": "info",
            "logger": "uvicorn.error",
            "timestamp": IsStr(),
        }
    ]


def test_the_servers_own_access_lines_are_off(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug")
    uvicorn.Config(no_app, log_config=None)
    access = logging.getLogger("uvicorn.access")
    access.info('127.0.0.1:1 - "GET /?secret=1 HTTP/1.1" 200')
    assert not access.hasHandlers()
    assert lines(capsys) == []


def test_libraries_are_heard_from_warnings_up_even_at_debug(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug")
    library = logging.getLogger("some.library")
    library.info("GET https://example.org/?secret=1")
    library.warning("careful")
    assert [line["event"] for line in lines(capsys)] == ["careful"]


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("WARNING")
    log = structlog.get_logger()
    log.info("quiet")
    log.warning("loud")
    logging.getLogger("uvicorn.error").info("quiet")
    assert [line["event"] for line in lines(capsys)] == ["loud"]


@pytest.mark.promise("ingress.log.private")
def test_secrets_are_replaced_at_any_depth_and_counts_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    structlog.get_logger().info(
        "request",
        authorization="Bearer x",
        apiKey="x",
        PROXY_API_KEY="x",
        metrics_token="x",
        input_tokens=3,
        access_token=None,
        headers=[{"Set-Cookie": "x", "accept": "y"}],
        auth={"tokens": {"refresh_token": "x", "account": "y"}},
    )
    assert lines(capsys) == [
        {
            "event": "request",
            "level": "info",
            "timestamp": IsStr(),
            "authorization": "[redacted]",
            "apiKey": "[redacted]",
            "PROXY_API_KEY": "[redacted]",
            "metrics_token": "[redacted]",
            "input_tokens": 3,
            "access_token": None,
            "headers": [{"Set-Cookie": "[redacted]", "accept": "y"}],
            "auth": {"tokens": {"refresh_token": "[redacted]", "account": "y"}},
        }
    ]


@pytest.mark.promise("ingress.log.private")
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("through", ["structlog", "logging"])
def test_a_traceback_is_written_without_local_variables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, through: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    configure_logging("info")
    log = structlog.get_logger() if through == "structlog" else logging.getLogger("uvicorn.error")
    # Servers log a failure after they caught it, when it is no longer the exception being handled.
    log.error("unexpected_fault", exc_info=failure())
    written = capsys.readouterr().err
    assert "LookupError: 9" in written
    assert "hush-hush" not in written


def test_a_terminal_gets_a_readable_form(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    configure_logging("info")
    structlog.get_logger().info("request", status=200)
    written = capsys.readouterr().err
    assert "request" in written
    assert "status" in written
    assert not written.startswith("{")


def test_nothing_that_is_logged_steers_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    configure_logging("info")
    tricks = "\x1b]0;owned\x07 \x9b2J \u202e \r\nforged"
    shown = r"\x1b]0;owned\x07 \x9b2J \u202e \r\nforged"
    structlog.get_logger().info("request", model=tricks, names=[tricks])
    logging.getLogger("uvicorn.error").error(tricks, exc_info=LookupError(tricks.replace("\r\n", "")))
    written = capsys.readouterr().err
    # What is left are the colours.
    plain = re.sub(r"\x1b\[\d*m", "", written)
    assert all(line.isprintable() for line in plain.split("\n"))
    assert "forged" not in [line.lstrip()[:6] for line in plain.splitlines()]
    # Once as the message; with its blanks, a value is shown as Python would write it.
    assert (plain.count(shown), plain.count(repr(shown))) == (2, 1)
    assert "LookupError: " in plain


KEY = 'sk-own"key\\with-ü-and-quotes'
LONG_KEY = "k" * 200


@pytest.mark.promise("ingress.log.private")
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("through", ["structlog", "logging"])
def test_a_key_is_removed_wherever_a_client_has_put_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, through: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    configure_logging("info")
    conceal([KEY, LONG_KEY, "short"])
    jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl"
    said = [KEY, LONG_KEY[:128], "sk-proj-0123456789abcdef", jwt, f"Bearer {'b' * 20}", KEY.upper()]
    if through == "structlog":
        structlog.get_logger().info("request", model=said[0], request_id=f"x{said[1]}", names={"of": said})
    else:
        logging.getLogger("uvicorn.error").error("bad: %s", said, exc_info=LookupError(*said))
    written = capsys.readouterr().err
    assert "[redacted]" in written
    for secret in ("quotes", "QUOTES", "kkkk", "0123456789abcdef", "eyJzdWIi", "bbbb"):
        assert secret not in written


def test_words_that_only_begin_like_a_key_stay(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    conceal(["short"])
    structlog.get_logger().info("request", model="sk-learn", origin="a short bearer")
    assert [(line["model"], line["origin"]) for line in lines(capsys)] == [("sk-learn", "a short bearer")]


@pytest.mark.promise("bounds.log-lines")
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    "fields",
    [
        {"model": "m" * 1_000_000},
        {"model": "\u2028" * 1_000_000},
        {"model": "\U000e0001" * 100_000},
        {"names": ["n" * 100] * 10_000},
        {"names": {f"n{number}": "x" for number in range(10_000)}},
        {f"n{number}": "x" * 3000 for number in range(100)},
        {"exc_info": LookupError("e" * 1_000_000)},
    ],
    ids=["long", "escaped", "tags", "list", "mapping", "many", "traceback"],
)
def test_no_line_is_long_and_each_still_says_what_happened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, fields: dict[str, object]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    configure_logging("info")
    structlog.get_logger().info("request", request_id="mine", **fields)
    written = capsys.readouterr().err
    assert max(len(line.encode()) for line in written.split("\n")) <= (64 if terminal else 16) * 1024
    assert "request" in written
    assert "mine" in written
    if not terminal:
        (line,) = written.splitlines()
        assert json.loads(line)["event"] == "request"


@pytest.mark.promise("bounds.log-lines")
def test_a_line_of_json_is_one_line_for_every_reader_and_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    tricks = "\x1b[2J\x7f\x85\x9b2J\u2028\u2029\u202e\u2066\ufeff\U000e0001\r\n é 漢 😀"
    structlog.get_logger().info("request", model=tricks, **{tricks: "name"})
    logging.getLogger("uvicorn.error").error(tricks)
    written = capsys.readouterr().err
    assert all(line.isprintable() for line in written.split("\n"))
    first, second = (json.loads(line) for line in written.splitlines())
    assert (first["model"], first[tricks], second["event"]) == (tricks, "name", tricks)
    assert "é 漢 😀" in written


def test_whoever_reads_the_log_again_is_told_how_much_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(_: str) -> int:
        raise BlockingIOError

    configure_logging("info")
    log = structlog.get_logger()
    with monkeypatch.context() as nobody_reads:
        nobody_reads.setattr(sys.stderr, "write", unwritable)
        for number in range(3):
            log.info("lost", number=number)
    log.info("seen")
    assert [(line["event"], line.get("lines")) for line in lines(capsys)] == [("seen", None), ("log_lines_lost", 3)]
