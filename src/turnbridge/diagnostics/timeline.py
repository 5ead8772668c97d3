"""One request as a timeline of both protocols, with the deltas of a stream in one row."""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from turnbridge.trace.trace import KEPT_FILES, Line, rotated
from turnbridge.turn.items import Json, JsonObject

# What Codex gives for the turn of items that were injected, and which is none.
NO_TURN = "auto-compact-"

WIRES = {
    ("http_ingress", "inbound"): "client ──▶            ",
    ("client_egress", "outbound"): "client ◀──            ",
    ("backend_submission", "outbound"): "           ──▶ codex  ",
    ("backend_io", "outbound"): "           ──▶ codex  ",
    ("backend_io", "inbound"): "           ◀── codex  ",
}

# The same for a terminal of 80 columns.
NARROW_WIRES = {
    ("http_ingress", "inbound"): "client ▶   ",
    ("client_egress", "outbound"): "client ◀   ",
    ("backend_submission", "outbound"): "  ▶ codex  ",
    ("backend_io", "outbound"): "  ▶ codex  ",
    ("backend_io", "inbound"): "  ◀ codex  ",
}

# How Codex and the Responses API name a delta.
DELTA = re.compile(r"delta$", re.IGNORECASE)
# Longer names push the payload out of sight.
WIDEST_LABEL = 36
# On a terminal that is narrower, the name of the phase is left out, and milliseconds are not named.
WIDE_COLUMNS = 100
# On a narrow terminal lines wrap.
NARROWEST_TEXT = 24
# Shown once at the top.
KNOWN_BY_NOW = ("threadId", "turnId")
TELLING = {
    "request": ("body",),
    "response": ("headers",),
    "sse": ("choices", "item", "part", "response"),
    "body": ("error", "choices", "output"),
    "rpc_request": ("params",),
    "rpc_notification": ("params",),
    "rpc_response": ("result",),
    "rpc_error": ("error",),
}
"""The field of a payload that is shown: the first of these that it has."""

# The fields of a chat chunk that may have text.
CHAT_TEXTS = ("reasoning_content", "content", "refusal")
KILO = 1000


@dataclass(slots=True, kw_only=True)
class Row:
    """One line, or a stream of deltas that is folded into one."""

    lines: list[Line]
    label: str
    text: str
    is_delta: bool

    @property
    def first(self) -> Line:
        """Return its first line."""
        return self.lines[0]

    @property
    def failed(self) -> bool:
        """Tell whether this is an error."""
        return self.first.kind in ("rpc_error", "aborted", "disconnect", "unreadable")


def lines_of(path: Path, request_id: str) -> list[Line]:
    """Return the lines of a request, oldest first, from rotated files too; broken lines are skipped."""
    decoder = msgspec.json.Decoder(Line)
    mark = msgspec.json.encode(request_id)
    found: list[Line] = []
    for age in range(KEPT_FILES, -1, -1):
        file = rotated(path, age)
        if not file.exists():
            continue
        with file.open("rb") as raw_lines:
            for raw in raw_lines:
                # Most lines are somebody else's, and reading a line as JSON is many times as slow.
                if mark not in raw:
                    continue
                try:
                    line = decoder.decode(raw)
                except msgspec.MsgspecError:
                    continue
                if line.request_id == request_id:
                    found.append(line)
    return found


def advice(path: Path) -> str:
    """Return advice for a request that is not found."""
    if any(rotated(path, age).exists() for age in range(KEPT_FILES + 1)):
        return "Take the `x-request-id` of its answer; old lines are dropped as the trace grows."
    return "There is no such file: run the gateway with PROXY_LOG_PROTO=true, or name another with --file."


def rows(lines: Iterable[Line], *, full: bool = False) -> list[Row]:
    """Return the rows. Deltas of both protocols alternate: each stream is one row until another message comes."""
    shown: list[Row] = []
    streams: dict[tuple[str, str], Row] = {}
    for line in lines:
        row = _row(line)
        stream = (line.phase, row.label)
        if not row.is_delta or full:
            streams.clear()
            shown.append(row)
        elif stream in streams:
            streams[stream].lines.append(line)
            streams[stream].text += row.text
        else:
            streams[stream] = row
            shown.append(row)
    return shown


def heading(lines: Sequence[Line]) -> list[str]:
    """Return the client, the time, and the app-server."""
    places = {
        "worker": [str(line.worker_pid) for line in lines if line.worker_pid is not None],
        "thread": [line.thread_id for line in lines if line.thread_id is not None],
        "turn": [line.turn_id for line in lines if line.turn_id and not line.turn_id.startswith(NO_TURN)],
    }
    where = [f"{name} {', '.join(dict.fromkeys(ids))}" for name, ids in places.items() if ids]
    return [f"{lines[0].request_id}  {lines[0].time}", *where]


def told(shown: Sequence[Row], *, width: int, full: bool = False) -> Iterator[tuple[Row, str]]:
    """Yield each row as text of this width; `full` adds the whole payload below."""
    labels = min(max((len(row.label) for row in shown), default=0), WIDEST_LABEL)
    began = shown[0].first.ms if shown else 0.0
    for row in shown:
        if row.first.kind == "request":
            # A client may use its id again: each time has a beginning of its own.
            began = row.first.ms
        after, wire = row.first.ms - began, (row.first.phase, row.first.direction)
        if width >= WIDE_COLUMNS:
            start = f"{after:10.1f} ms  {WIRES[wire]}{row.first.phase:18}  "
        else:
            start = f"{after:8.1f}  {NARROW_WIRES[wire]}"
        start += f"{row.label:{labels}}  "
        room = max(width - len(start), NARROWEST_TEXT)
        yield row, f"{start}{cropped(_folded(row), room)}".rstrip()
        if full:
            yield row, _whole(row.first)


def _row(line: Line) -> Row:
    payload: Json = msgspec.json.decode(line.payload)
    delta = _delta(line, payload) if isinstance(payload, dict) else None
    name, text = delta or (_label(line, payload), _short(line, payload))
    return Row(lines=[line], label=harmless(name), text=text, is_delta=delta is not None)


def _label(line: Line, payload: Json) -> str:
    """Return the kind of a message, as its protocol names it."""
    name = line.method
    if name is None and isinstance(payload, dict):
        known = (payload.get(key) for key in ("status", "type", "object"))
        name = next((str(value) for value in known if value is not None), None)
    match line.kind:
        case "rpc_response":
            return f"{name} (result)"
        case "rpc_error":
            return f"{name} (error)"
        case "request" | "response" | "rpc_request" | "rpc_notification" | "sse":
            return name or line.kind
        case "body" | "aborted" | "disconnect" | "unreadable":
            return line.kind


def _delta(line: Line, payload: JsonObject) -> tuple[str, str] | None:
    """Return the name of a delta and its text; nothing if it is none."""
    if line.kind == "rpc_notification" and line.method is not None and DELTA.search(line.method):
        params = payload.get("params")
        return line.method, _text_in(params, "delta") or _text_in(_inner(params, "msg"), "delta")
    if line.kind != "sse":
        return None
    kind = payload.get("type")
    if isinstance(kind, str):
        return (kind, _text_in(payload, "delta")) if DELTA.search(kind) else None
    choices = payload.get("choices")
    if not isinstance(choices, list) or not choices:
        return None
    if any(_inner(choice, "finish_reason") is not None for choice in choices):
        return None
    return _chat_delta(_inner(choices[0], "delta"))


def _chat_delta(delta: Json) -> tuple[str, str]:
    """Return what a chunk adds to, and its text: of the answer, of a thought, or of a call's arguments."""
    calls = _inner(delta, "tool_calls")
    if isinstance(calls, list):
        functions = [_inner(call, "function") for call in calls]
        return "delta.tool_calls", "".join(_text_in(each, "name") + _text_in(each, "arguments") for each in functions)
    texts = {name: _text_in(delta, name) for name in CHAT_TEXTS}
    return next(((f"delta.{name}", text) for name, text in texts.items() if text), ("delta.content", ""))


def _short(line: Line, payload: Json) -> str:
    """Return the field of a payload that is shown."""
    subject = payload
    if isinstance(payload, dict):
        subject = next((payload[name] for name in TELLING.get(line.kind, ()) if payload.get(name)), payload)
        subject = None if subject is payload and line.kind not in ("sse", "body") else subject
    if isinstance(subject, dict):
        subject = {key: value for key, value in subject.items() if key not in KNOWN_BY_NOW}
    if subject in (None, {}):
        return ""
    text = subject if isinstance(subject, str) else msgspec.json.encode(subject).decode()
    return f"(the beginning of {_bytes(line.size or 0)}) {text}" if line.cut else text


def _folded(row: Row) -> str:
    if len(row.lines) == 1:
        return row.text
    size = sum(line.size or 0 for line in row.lines)
    took = row.lines[-1].ms - row.first.ms
    return f"+{len(row.lines)} deltas, {_bytes(size)}, {took:.0f} ms: {row.text}"


def _whole(line: Line) -> str:
    pretty = msgspec.json.format(bytes(line.payload), indent=2).decode()
    return "\n".join(f"    {harmless(each)}" for each in pretty.split("\n"))


def cropped(text: str, room: int) -> str:
    text = harmless(" ".join(text.split()))
    return text if len(text) <= room else text[: room - 1] + "…"


def harmless(text: str) -> str:
    """Return a text without terminal control: control and invisible characters are escaped as in JSON."""
    if text.isprintable():
        return text
    return "".join(json.dumps(each)[1:-1] if unicodedata.category(each).startswith("C") else each for each in text)


def _bytes(size: int) -> str:
    return f"{size} B" if size < KILO else f"{size / KILO:.1f} kB"


def _inner(value: Json, name: str) -> Json:
    return value.get(name) if isinstance(value, dict) else None


def _text_in(value: Json, name: str) -> str:
    text = _inner(value, name)
    return text if isinstance(text, str) else ""
