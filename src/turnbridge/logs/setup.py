"""How the gateway logs: one JSON object a line on stderr, or a readable form for a person at a terminal.

Our own events come through structlog; what libraries log comes through the standard library's root logger.
Both end in the same form. Secrets are removed by the name they are logged under and by their looks, lines have a
bounded length and hold no control characters, and tracebacks never show local variables.
"""

import io
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TextIO

import msgspec
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from turnbridge.logs.output import LogOutput
from turnbridge.logs.redaction import REDACTED, SECRET_NAME, OwnKeys, one_line, shortened

FLAT = frozenset({str, int, float, bool, type(None)})
"""Types of values that hold no names of their own."""

REMEMBERED_NAMES = 1024
"""Log fields are few and always the same; the bound is for names that come from data."""

MOST_LINE_BYTES = 16 * 1024
"""What no line is longer than; ordinary ones have 600."""

MOST_VALUE_CHARACTERS = 2048
"""Of each value in a line that would be too long."""

MOST_TRACEBACK_CHARACTERS = 6 * 1024
"""The same for a traceback: where it began and where it ended tells most."""

ESSENTIAL = ("event", "level", "timestamp", "logger", "request_id")
"""Fields that stay when a line is too long even with short values."""

_encoder = msgspec.json.Encoder(enc_hook=repr)

SERVER_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.asgi")

_keys = OwnKeys()


def conceal(keys: Iterable[str]) -> None:
    """Let these keys appear in no line from now on, wherever a client has put them."""
    global _keys  # noqa: PLW0603 - There is one log.
    _keys = OwnKeys(keys)


def configure_logging(level: str) -> None:
    """Send all logs to stderr from `level` up, as JSON unless stderr is a terminal.

    Give uvicorn `log_config=None`, or it puts its own handlers back.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    form: list[Processor] = _readable_form() if sys.stderr.isatty() else [_line]
    output = LogOutput(sys.stderr)
    structlog.configure(
        processors=form,
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: _LineLogger(output),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *form],
    )
    _route_standard_logging(logging.StreamHandler(output), formatter, threshold)


class _LineLogger:
    """Writes lines, and says in the log how many were lost before."""

    def __init__(self, output: LogOutput) -> None:
        self._output = output

    def msg(self, message: str) -> None:
        if self._output.write(f"{message}\n") and self._output.lost:
            lost, self._output.lost = self._output.lost, 0
            structlog.get_logger().warning("log_lines_lost", lines=lost)

    debug = info = warning = error = critical = msg


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace the value of every field, at any depth, whose name says that it is a secret."""
    # Nearly every event is flat and harmless; to look at its fields one by one took half of what a line costs.
    if FLAT.issuperset(map(type, event.values())) and not _any_secret(tuple(event)):
        return event
    return {name: _redacted(name, value) for name, value in event.items()}


def _redacted(name: str, value: object) -> object:
    return REDACTED if value is not None and _names_a_secret(name) else _clean(value)


def _clean(value: object) -> object:
    # Asking an abstract class is slow.
    if type(value) in FLAT:
        return value
    if isinstance(value, Mapping):
        return {key: _redacted(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    if isinstance(value, tuple):
        # Still a tuple, for one of them is `exc_info`.
        return tuple(_clean(inner) for inner in value)
    return value


@lru_cache(maxsize=REMEMBERED_NAMES)
def _names_a_secret(name: str) -> bool:
    return SECRET_NAME.search(name) is not None


@lru_cache(maxsize=REMEMBERED_NAMES)
def _any_secret(names: tuple[str, ...]) -> bool:
    return any(map(_names_a_secret, names))


def _readable_form() -> list[Processor]:
    console = structlog.dev.ConsoleRenderer(exception_formatter=_write_traceback)
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    return [structlog.processors.add_log_level, stamp, redact, _printable_values, console]


def _without_keys(event: EventDict) -> EventDict:
    """Return an event without keys in its texts, at any depth."""
    return {name: _keyless(value) for name, value in event.items()}


def _keyless(value: object) -> object:
    match value:
        case str():
            return _keys.removed_from(value)
        case Mapping():
            return {_keyless(key): _keyless(inner) for key, inner in value.items()}
        case list():
            return [_keyless(inner) for inner in value]
        case tuple():
            return tuple(_keyless(inner) for inner in value)
        case _:
            return value


def _short(value: object) -> object:
    """Return a value that is not long; what is no text is shown as one then. An exception is shown by itself."""
    if isinstance(value, int | float | BaseException):
        return value
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= MOST_VALUE_CHARACTERS else shortened(text, MOST_VALUE_CHARACTERS)


def _printable_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Keep the words of clients from steering the terminal; other values than texts are shown by their `repr`."""
    values: EventDict = {
        name: value if name == "exc_info" else _short(value) for name, value in _without_keys(event).items()
    }
    if sum(len(repr(value)) for name, value in values.items() if name != "exc_info") > MOST_LINE_BYTES:
        values = _essence(values)
    return {name: _printable(value) if isinstance(value, str) else value for name, value in values.items()}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _write_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    # The console's default traceback prints local variables, which hold prompts and keys.
    plain = io.StringIO()
    structlog.dev.plain_traceback(plain, exc_info)
    text = shortened(_keys.removed_from(plain.getvalue()), MOST_TRACEBACK_CHARACTERS)
    out.write("\n".join(map(_printable, text.split("\n"))))


def _line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """Return an event as JSON.

    In one step: beside a busy Codex, structlog's own five took half of the 120 µs that a line cost.
    """
    event = redact(logger, method, event)
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, method, event)
    event["level"] = method
    event["timestamp"] = datetime.now(UTC)
    line = _encoded(event)
    if _keys.may_be_in(line):
        event = _without_keys(event)
        line = _encoded(event)
    line = one_line(line)
    return line if _fits(line) else one_line(_encoded(_cut(event)))


def _fits(line: str) -> bool:
    # A character has at most four bytes.
    return len(line) <= MOST_LINE_BYTES // 4 or len(line.encode(errors="replace")) <= MOST_LINE_BYTES


def _encoded(event: EventDict) -> str:
    try:
        return _encoder.encode(event).decode()
    except (TypeError, ValueError):
        # Half a character, a number too large, a key that is none: whatever was logged must be seen.
        return json.dumps({**event, "timestamp": msgspec.to_builtins(event["timestamp"])}, default=repr)


def _cut(event: EventDict) -> EventDict:
    """Return an event whose values are short; if there are too many of them, only what every event has."""
    most = {"exception": MOST_TRACEBACK_CHARACTERS}
    values = {
        name: shortened(value, most.get(name, MOST_VALUE_CHARACTERS)) if isinstance(value, str) else _short(value)
        for name, value in event.items()
    }
    if _fits(one_line(_encoded(values))):
        return values
    return _essence(values)


def _essence(event: EventDict) -> EventDict:
    """Return what every event has, of one that has far too much."""
    return {**{name: shortened(str(event[name]), 256) for name in ESSENTIAL if name in event}, "cut": True}


def _route_standard_logging(handler: logging.Handler, formatter: logging.Formatter, threshold: int) -> None:
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    # Below warnings, HTTP libraries log whole URLs and headers, which may carry secrets.
    root.setLevel(max(threshold, logging.WARNING))
    for name in SERVER_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
        logger.setLevel(threshold)
    # The gateway writes its own access lines; without a handler uvicorn does not even format its own.
    access = logging.getLogger("uvicorn.access")
    access.handlers = []
    access.propagate = False
