"""How the gateway logs: one JSON object a line on stderr, or a readable form for a person at a terminal.

Our own events come through structlog; what libraries log comes through the standard library's root logger.
Both end in the same form. Secrets are removed by the name they are logged under, and tracebacks never show
local variables.
"""

import io
import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TextIO

import msgspec
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from turnbridge.log_output import LogOutput

SECRET_NAME = re.compile(
    r"authorization|api[-_]?key|secret|passw(?:or)?d|cookie|credential|private[-_]?key|bearer|token$",
    re.IGNORECASE,
)
"""Names whose values are secrets. `token` only at the end: `input_tokens` is a count."""

REDACTED = "[redacted]"

FLAT = frozenset({str, int, float, bool, type(None)})
"""Types of values that hold no names of their own."""

REMEMBERED_NAMES = 1024
"""Log fields are few and always the same; the bound is for names that come from data."""

_encoder = msgspec.json.Encoder(enc_hook=repr)

SERVER_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.asgi")


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


def _printable_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Keep the words of clients from steering the terminal; other values than texts are shown by their `repr`."""
    return {name: _printable(value) if isinstance(value, str) else value for name, value in event.items()}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _write_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    # The console's default traceback prints local variables, which hold prompts and keys.
    plain = io.StringIO()
    structlog.dev.plain_traceback(plain, exc_info)
    out.write("\n".join(map(_printable, plain.getvalue().split("\n"))))


def _line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """Return an event as JSON.

    In one step: beside a busy Codex, structlog's own five took half of the 120 µs that a line cost.
    """
    event = redact(logger, method, event)
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, method, event)
    event["level"] = method
    event["timestamp"] = now = datetime.now(UTC)
    try:
        return _encoder.encode(event).decode()
    except (TypeError, ValueError):
        # Half a character, a number too large, a key that is none: whatever was logged must be seen.
        return json.dumps({**event, "timestamp": msgspec.to_builtins(now)}, default=repr)


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
