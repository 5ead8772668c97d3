"""The latest requests in the wire trace, found from its end without reading whole payloads."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from turnbridge.trace.trace import KEPT_FILES, Line, rotated

# How many of the latest requests are listed.
MOST_LISTED = 20
# Beginnings and ends of requests; other lines are not even decoded.
MARKS = (b'"kind":"request"', b'"kind":"response"')
# What machines ask every few seconds.
POLLED = ("/healthz", "/livez", "/readyz", "/metrics")


@dataclass(slots=True)
class TracedRequest:
    """One request, as far as the trace tells how it began and ended."""

    request_id: str
    time: str
    method: str
    began_ms: float
    status: str = ""
    first_byte_ms: float | None = None

    @property
    def asks_model(self) -> bool:
        return self.method.startswith("POST ")


@dataclass(frozen=True, slots=True)
class _Answer:
    request_id: str
    status: str
    ms: float


def recent_requests(path: Path) -> list[TracedRequest]:
    """Return the latest requests except for probes, the oldest first."""
    events: list[TracedRequest | _Answer] = []
    for age in range(KEPT_FILES + 1):
        events = [*_events_in(rotated(path, age)), *events]
        if sum(isinstance(event, TracedRequest) for event in events) >= MOST_LISTED:
            break
    # A client may use its id again: an answer belongs to the latest request that had it.
    by_id: dict[str, TracedRequest] = {}
    found: list[TracedRequest] = []
    for event in events:
        if isinstance(event, TracedRequest):
            by_id[event.request_id] = event
            found.append(event)
        elif (request := by_id.get(event.request_id)) is not None:
            request.status, request.first_byte_ms = event.status, event.ms - request.began_ms
    return found[-MOST_LISTED:]


def _events_in(file: Path) -> list[TracedRequest | _Answer]:
    decoder = msgspec.json.Decoder(Line)
    found: list[TracedRequest | _Answer] = []
    try:
        with file.open("rb") as lines:
            for raw in lines:
                if any(mark in raw for mark in MARKS) and (event := _event(raw, decoder)) is not None:
                    found.append(event)
    except FileNotFoundError:
        return []
    return found


def _event(raw: bytes, decoder: "msgspec.json.Decoder[Line]") -> TracedRequest | _Answer | None:
    try:
        line = decoder.decode(raw)
    except msgspec.MsgspecError:  # Cut off by a full disk.
        return None
    name, method = line.request_id, line.method or ""
    if name is None:
        return None
    if line.kind == "request" and not method.endswith(POLLED):
        return TracedRequest(name, line.time, method, line.ms)
    if line.kind == "response":
        payload: object = msgspec.json.decode(line.payload)
        status = payload.get("status") if isinstance(payload, dict) else None
        return _Answer(name, str(status or ""), line.ms)
    return None
