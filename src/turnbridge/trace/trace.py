"""Where both layers write to, and how a message on one wire is known to belong to a request on the other."""

import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from turnbridge.trace.record import Direction, Kind, Line, Payload, Phase, Redaction
from turnbridge.trace.writer import TraceFile

NOTHING = Payload(raw=msgspec.Raw(b"null"))

serving: ContextVar[Callable[[], str] | None] = ContextVar("serving", default=None)
"""Tells the id of the request that is being served. Asked late: it is only known once the request is let in."""


class Moment(NamedTuple):
    """A time on both clocks."""

    time: str
    ms: float


def moment() -> Moment:
    """Return the time now."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return Moment(f"{now}Z", round(time.monotonic() * 1000, 3))


class Trace:
    """Writes lines."""

    def __init__(self, file: TraceFile, redaction: Redaction, *, clock: Callable[[], Moment] = moment) -> None:
        self._encoder = msgspec.json.Encoder()
        self.file = file
        self.redaction = redaction
        self.clock = clock

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
        """Write a line; `at` is for what happened before it could be told."""
        time, ms = at or self.clock()
        line = Line(
            time=time,
            ms=ms,
            phase=phase,
            direction=direction,
            kind=kind,
            request_id=request_id,
            worker_pid=worker_pid,
            thread_id=thread_id,
            turn_id=turn_id,
            method=None if method is None else self.redaction.text(method),
            size=size,
            cut=payload.cut,
            payload=payload.raw,
        )
        self.file.write(self._encoder.encode(line))
