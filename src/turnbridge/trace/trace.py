"""Where both layers write to, and how a message on one wire is known to belong to a request on the other."""

import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from turnbridge.logs.redaction import one_line, shortened
from turnbridge.trace.backlog import Backlog
from turnbridge.trace.record import Direction, Kind, Line, Payload, Phase, Redaction
from turnbridge.trace.writer import TraceFile

NOTHING = Payload(raw=msgspec.Raw(b"null"))

serving: ContextVar[Callable[[], str] | None] = ContextVar("serving", default=None)
"""Tells the id of the request that is being served. Asked late: it is only known once the request is let in."""

MOST_METHOD_CHARACTERS = 512
"""A path is as long as its client likes, up to the bound on request heads."""


class Moment(NamedTuple):
    """A time on both clocks."""

    time: str
    ms: float


def moment() -> Moment:
    """Return the time now."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return Moment(f"{now}Z", round(time.monotonic() * 1000, 3))


class Trace:
    """Writes lines, in a thread of its own: to read a large message and remove its secrets takes seconds."""

    def __init__(self, file: TraceFile, redaction: Redaction, *, clock: Callable[[], Moment] = moment) -> None:
        self._encoder = msgspec.json.Encoder()
        self._backlog = Backlog("trace")
        self._file = file
        self._told_lost = 0
        self.redaction = redaction
        self.clock = clock

    @property
    def lost(self) -> int:
        """Return how many lines could not be written, or waited for with too many others."""
        return self._file.lost + self._backlog.dropped

    def later(self, work: Callable[[], None], size: int = 0) -> None:
        """Let work that notes a message of this size be done in the thread, after all that came before it."""
        self._backlog.add(work, size)

    def close(self) -> None:
        """Write what waits, if that does not take too long, and close the file."""
        self._backlog.add(self._file.close, 0)
        self._backlog.close()

    def note(
        self,
        phase: Phase,
        direction: Direction,
        kind: Kind,
        payload: Payload = NOTHING,
        *,
        at: Moment | None = None,
        request_id: str | None = None,
        worker_pid: int | None = None,
        thread_id: str | None = None,
        turn_id: str | None = None,
        method: str | None = None,
        size: int | None = None,
    ) -> None:
        """Write a line at once; `at` is for what happened before it could be told."""
        time, ms = at or self.clock()
        lost = self.lost
        line = Line(
            time=time,
            ms=ms,
            phase=phase,
            direction=direction,
            kind=kind,
            request_id=None if request_id is None else self.redaction.text(request_id),
            worker_pid=worker_pid,
            thread_id=thread_id,
            turn_id=turn_id,
            method=None if method is None else shortened(self.redaction.text(method), MOST_METHOD_CHARACTERS),
            size=size,
            cut=payload.cut,
            lost=lost - self._told_lost,
            payload=payload.raw,
        )
        data = self._encoder.encode(line)
        if not data.isascii() or b"\x7f" in data:
            # Whoever follows the file on a terminal must not be steered by it, and a line has to stay one.
            data = one_line(data.decode()).encode()
        if self._file.write(data):
            self._told_lost = lost
