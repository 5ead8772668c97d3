"""The end of a background response that somebody else than its maker gives it."""

from dataclasses import replace

from turnbridge.api.shared.errors import error_event
from turnbridge.api.shared.sse import named_frames
from turnbridge.engine.records import ResponseRecord
from turnbridge.turn.items import JsonObject

LOST = "The gateway stopped while this response was being made. Send the request again."
LOST_ERROR: JsonObject = {"code": "server_error", "message": LOST}


def lost(record: ResponseRecord) -> ResponseRecord:
    """Return the record of a response whose gateway is gone: failed."""
    return replace(record, status="failed", body={**record.body, "status": "failed", "error": LOST_ERROR})


def last_frames(record: ResponseRecord, number: int) -> bytes:
    """Return the last events of a finished response's stream, from `number` on."""
    if record.status != "failed":
        return named_frames([{"type": "response.incomplete", "sequence_number": number, "response": record.body}])
    known = record.body.get("error")
    error: JsonObject = {"type": "server_error", "param": None, **(known if isinstance(known, dict) else LOST_ERROR)}
    failed: JsonObject = {"type": "response.failed", "sequence_number": number + 1, "response": record.body}
    return named_frames([error_event(error, number=number), failed])
