"""The log as text: for a request one line that fits a terminal, for other events their name and fields."""

import structlog
from structlog.typing import EventDict, ExceptionRenderer, WrappedLogger

RESET, DIM = "\x1b[0m", "\x1b[2m"
# By the first digit of the status; a request without one was not answered.
COLOURS = {"2": "\x1b[32m", "3": "\x1b[32m", "4": "\x1b[33m", "5": "\x1b[31m", "-": "\x1b[31m"}
MS_PER_S = 1000
MS_PER_MINUTE = 60_000
THOUSAND = 1000
# The longest line then has 80 columns, unless a model's name is longer than most.
WIDEST_MODEL = 16


class TerminalForm:
    """Renders an event whose texts are safe for a terminal."""

    def __init__(self, *, colours: bool, exceptions: ExceptionRenderer) -> None:
        self._colours = colours
        self._other = structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=exceptions, pad_event_to=0)

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        if event.get("event") == "request" and "route" in event and "exc_info" not in event:
            return self._request(event)
        return self._other(logger, method, event)

    def _request(self, event: EventDict) -> str:
        status = str(event.get("status") or "---")
        what = f"{event.get('method')} {event['route']}"
        words = [what, *_model(event), *_tokens(event), *_ending(event)]
        line = f"{_duration(event.get('total_ms')):>6} {' '.join(words)}"
        if not self._colours:
            return f"{event['timestamp']} {status} {line}"
        return f"{DIM}{event['timestamp']}{RESET} {COLOURS.get(status[0], '')}{status}{RESET} {line}"


def _model(event: EventDict) -> tuple[str, ...]:
    name = event.get("model")
    if not isinstance(name, str):
        return ()
    return (name if len(name) <= WIDEST_MODEL else f"{name[: WIDEST_MODEL - 1]}…",)


def _tokens(event: EventDict) -> tuple[str, ...]:
    """Return the tokens in and out, and how the request was served."""
    shown = [_count(event.get(f"{kind}_tokens")) for kind in ("input", "output")]
    if None in shown:
        return ()
    served = event.get("served_by")
    return (f"{shown[0]}→{shown[1]}", *((str(served),) if served else ()))


def _count(tokens: object) -> str | None:
    if not isinstance(tokens, int):
        return None
    if tokens < THOUSAND:
        return str(tokens)
    return f"{tokens / THOUSAND:.1f}k" if tokens < 10 * THOUSAND else f"{tokens / THOUSAND:.0f}k"


def _ending(event: EventDict) -> tuple[str, ...]:
    """Return what went wrong."""
    if event.get("error_code"):
        return (str(event["error_code"]),)
    match event.get("outcome"):
        case "client_gone":
            return ("client left",)
        case "failed_mid_stream":
            return ("failed in mid-stream",)
        case _:
            return ()


def _duration(milliseconds: object) -> str:
    if not isinstance(milliseconds, int | float):
        return "-"
    if milliseconds < MS_PER_S:
        return f"{milliseconds:.0f} ms"
    if milliseconds < MS_PER_MINUTE:
        return f"{milliseconds / MS_PER_S:.1f} s"
    return f"{milliseconds // MS_PER_MINUTE:.0f}m{milliseconds % MS_PER_MINUTE / MS_PER_S:02.0f}s"
