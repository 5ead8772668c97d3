"""One traced request as the page draws it: its rows, and what the client sent, Codex was told and the model saw.

The page compares these. They are bounded, since a trace may have megabytes of each.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from turnbridge.diagnostics.timeline import NO_TURN, rows
from turnbridge.trace.trace import Line
from turnbridge.turn.items import Json, JsonObject

MOST_ROWS = 300
LONGEST_TEXT = 400
# Of what the client sent, Codex was told and the model saw, each: what a person may want to read.
MOST_BYTES = 256 * 1024
# What Codex is told besides does not reach the model.
TELLING = ("thread/start", "thread/inject_items", "turn/start", "item/tool/call")
INPUT_ROLES = ("user", "developer", "system")


def view(lines: Sequence[Line]) -> JsonObject:
    """Return the last request among lines of one id."""
    start = max((at for at, line in enumerate(lines) if line.kind == "request"), default=0)
    lines = lines[start:]
    client, client_cut = _bounded(line for line in lines if line.kind == "request")
    codex, codex_cut = _bounded(line for line in lines if line.direction == "outbound" and line.method in TELLING)
    model, model_cut = _bounded(_echoed(lines))
    shown = rows(lines)
    return {
        "request_id": lines[0].request_id,
        "rows": [_row(lines[0].ms, row.lines, row.label, row.text, failed=row.failed) for row in shown[:MOST_ROWS]],
        "more_rows": max(len(shown) - MOST_ROWS, 0),
        "route": lines[0].method,
        "client": client,
        "codex": codex,
        "model": model,
        "cut": {"client": client_cut, "codex": codex_cut, "model": model_cut},
    }


def _row(began: float, lines: Sequence[Line], label: str, text: str, *, failed: bool) -> JsonObject:
    first = lines[0]
    return {
        "at_ms": round(first.ms - began, 1),
        "took_ms": round(lines[-1].ms - first.ms, 1),
        "count": len(lines),
        "wire": "client" if first.phase in ("http_ingress", "client_egress") else "codex",
        "inbound": first.direction == "inbound",
        "label": label,
        "text": text[:LONGEST_TEXT],
        "failed": failed,
    }


def _echoed(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the items that Codex says it has put before the model, and not those that the model has made."""
    for line in lines:
        if line.method == "turn/interrupt":
            return
        if line.method != "rawResponseItem/completed":
            continue
        item = _inner(_inner(_payload(line), "params"), "item")
        injected = (line.turn_id or "").startswith(NO_TURN)
        output = str(_inner(item, "type")).endswith("_output")
        if injected or output or _inner(item, "role") in INPUT_ROLES:
            yield line


def _bounded(lines: Iterable[Line]) -> tuple[list[Json], bool]:
    """Return the payloads of lines, and whether some of them are missing or cut."""
    found: list[Json] = []
    size, cut = 0, False
    for line in lines:
        size += len(bytes(line.payload))
        cut = cut or line.cut
        if size > MOST_BYTES:
            return found, True
        found.append(_payload(line))
    return found, cut


def _payload(line: Line) -> Json:
    payload: Json = msgspec.json.decode(line.payload)
    return payload


def _inner(value: Json, name: str) -> Json:
    return value.get(name) if isinstance(value, dict) else None
