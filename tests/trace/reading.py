"""Traces as tests read them."""

import json
from pathlib import Path
from typing import Any

from turnbridge.trace.redaction import Redaction
from turnbridge.trace.trace import Moment, Trace, TraceFile

TIME = "2026-01-02T03:04:05.678Z"


def lines(path: Path) -> list[dict[str, Any]]:
    """Return every line of a trace; one that is not JSON fails the test."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def trace_to(path: Path, *, limit: int = 0) -> Trace:
    """Return a trace on which every line is a millisecond after the one before."""
    ticks = iter(range(1_000_000))
    return Trace(TraceFile(path), Redaction(limit=limit), clock=lambda: Moment(TIME, float(next(ticks))))
