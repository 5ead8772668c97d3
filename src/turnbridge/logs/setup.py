"""Logging: one JSON object per line on stderr, or text, as on a terminal.

The gateway logs through structlog, libraries through the standard library's root logger; both end in the same form.
Secrets are redacted by the names of their fields and by their looks, lines have a bounded length and contain no control
characters, and tracebacks never show local variables.
"""

import io
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from turnbridge.logs.output import LogOutput, may_colour
from turnbridge.logs.redaction import REDACTED, SECRET_NAME, OwnKeys, one_line, shortened
from turnbridge.logs.terminal import TerminalForm

# Types of values without names of their own.
FLAT = frozenset({str, int, float, bool, type(None)})
# The names of log fields are few; the bound is for names that come from data.
CACHED_NAMES = 1024
# Maximum length of a line; ordinary ones have 600 bytes.
MOST_LINE_BYTES = 16 * 1024
# Maximum length of each value in a line that would be too long.
MOST_VALUE_CHARACTERS = 2048
# The same for a traceback, whose beginning and end are kept.
MOST_TRACEBACK_CHARACTERS = 6 * 1024
# Fields that remain of a line that is too long even with short values.
ESSENTIAL = ("event", "level", "timestamp", "logger", "request_id")

_encoder = msgspec.json.Encoder(enc_hook=repr)
_keys = OwnKeys()


def conceal(keys: Iterable[str]) -> None:
    """Redact these keys in every line from now on."""
    global _keys  # noqa: PLW0603 - There is one log.
    _keys = OwnKeys(keys)


def configure_logging(level: str, form: Literal["json", "text"] | None = None) -> None:
    """Send all logs to stderr from `level` up, in a form; without one, as text to a terminal and as JSON elsewhere.

    uvicorn needs `log_config=None`, or it restores its own handlers.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    as_text = sys.stderr.isatty() if form is None else form == "text"
    steps: list[Processor] = _text_form() if as_text else [_line]
    output = LogOutput(sys.stderr)
    structlog.configure(
        processors=steps,
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: _LineLogger(output),
        # A command that logs nothing may be followed by a server in the same process, whose loggers must be heard.
        cache_logger_on_first_use=threshold < logging.CRITICAL,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *steps],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    # Below warnings, HTTP libraries log whole URLs and headers, which may contain secrets.
    root.setLevel(max(threshold, logging.WARNING))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers = []
        # The gateway has its own access log; without a handler, uvicorn does not even format its lines.
        logger.propagate = name != "uvicorn.access"
        # That it started is in the banner.
        logger.setLevel(max(threshold, logging.WARNING) if as_text else threshold)


class _LineLogger:
    """Writes lines, and logs how many were lost before."""

    def __init__(self, output: LogOutput) -> None:
        self._output = output

    def msg(self, message: str) -> None:
        if self._output.write(f"{message}\n") and self._output.lost:
            lost, self._output.lost = self._output.lost, 0
            structlog.get_logger().warning("log_lines_lost", lines=lost)

    debug = info = warning = error = critical = msg


def _line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """Return an event as JSON.

    In one step: beside a busy Codex, structlog's own five processors took half of the 120 µs that a line cost.
    """
    # Nearly every event is flat and without secret names; checking each field took half of the time of a line.
    if not FLAT.issuperset(map(type, event.values())) or _any_secret(tuple(event)):
        event = _redacted_event(event)
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, method, event)
    event["level"] = method
    event["timestamp"] = datetime.now(UTC)
    line = _encoded(event)
    if _keys.may_be_in(line):
        event = _redacted_event(event)
        line = _encoded(event)
    line = one_line(line)
    return line if _fits(line) else one_line(_encoded(_cut(event)))


def _redacted_event(event: EventDict) -> EventDict:
    """Redact keys in texts, and the values of fields whose name is that of a secret, at any depth."""
    return {name: _redacted_field(name, value) for name, value in event.items()}


def _redacted_field(name: str, value: object) -> object:
    return REDACTED if value is not None and _is_secret(name) else _redacted(value)


def _redacted(value: object) -> object:
    match value:
        case str():
            return _keys.removed_from(value)
        case Mapping():
            return {_redacted(name): _redacted_field(str(name), inner) for name, inner in value.items()}
        case list():
            return [_redacted(inner) for inner in value]
        case tuple():
            # Still a tuple, since `exc_info` may be one.
            return tuple(_redacted(inner) for inner in value)
        case _:
            return value


@lru_cache(maxsize=CACHED_NAMES)
def _is_secret(name: str) -> bool:
    return SECRET_NAME.search(name) is not None


@lru_cache(maxsize=CACHED_NAMES)
def _any_secret(names: tuple[str, ...]) -> bool:
    return any(map(_is_secret, names))


def _fits(line: str) -> bool:
    # A character has at most four bytes.
    return len(line) <= MOST_LINE_BYTES // 4 or len(line.encode(errors="replace")) <= MOST_LINE_BYTES


def _encoded(event: EventDict) -> str:
    try:
        return _encoder.encode(event).decode()
    except (TypeError, ValueError):
        # A lone surrogate, a huge number, a key that is no string: the event must be logged all the same.
        return json.dumps({**event, "timestamp": msgspec.to_builtins(event["timestamp"])}, default=repr)


def _cut(event: EventDict) -> EventDict:
    """Return an event with short values; only the essential fields if there are too many."""
    values = {
        name: shortened(value, MOST_TRACEBACK_CHARACTERS)
        if name == "exception" and isinstance(value, str)
        else _short(value)
        for name, value in event.items()
    }
    return values if _fits(one_line(_encoded(values))) else _essence(values)


def _short(value: object) -> object:
    """Return a value, or its shortened text. An exception is formatted by itself."""
    if isinstance(value, int | float | BaseException):
        return value
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= MOST_VALUE_CHARACTERS else shortened(text, MOST_VALUE_CHARACTERS)


def _essence(event: EventDict) -> EventDict:
    return {**{name: shortened(str(event[name]), 256) for name in ESSENTIAL if name in event}, "cut": True}


def _text_form() -> list[Processor]:
    # At a terminal the day is known; in a file it is not.
    time = "%H:%M:%S" if sys.stderr.isatty() else "%Y-%m-%d %H:%M:%S"
    stamp = structlog.processors.TimeStamper(fmt=time, utc=False)
    text = TerminalForm(colours=may_colour(sys.stderr), exceptions=_write_traceback)
    return [structlog.processors.add_log_level, stamp, _printable_values, text]


def _printable_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Redact and escape texts, so that clients cannot send escape sequences to the terminal."""
    event = _redacted_event(event)
    values: EventDict = {name: value if name == "exc_info" else _short(value) for name, value in event.items()}
    if sum(len(repr(value)) for name, value in values.items() if name != "exc_info") > MOST_LINE_BYTES:
        values = _essence(values)
    # The console shows other values than strings by their `repr`, which escapes.
    return {name: _printable(value) if isinstance(value, str) else value for name, value in values.items()}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _write_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    # The console's default traceback prints local variables, which contain prompts and keys.
    plain = io.StringIO()
    structlog.dev.plain_traceback(plain, exc_info)
    text = shortened(_keys.removed_from(plain.getvalue()), MOST_TRACEBACK_CHARACTERS)
    out.write("\n".join(map(_printable, text.split("\n"))))
