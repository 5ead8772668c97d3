"""The events on a WebSocket: what clients send, and the frames of a stream as messages. Pure.

A message is the data of a server-sent event, without its name. The `stream_id` of a named lane is added to each.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from turnbridge.api.responses.lanes import Lane
from turnbridge.api.shared.errors import error_headers, error_object, status_of
from turnbridge.api.shared.sse import END_OF_FRAME
from turnbridge.turn.errors import GatewayError, InvalidRequest
from turnbridge.turn.items import Json, JsonObject

CREATE = "response.create"
STEER = "response.steer"

# What belongs to a message, and not to the body of `POST /v1/responses`.
FRAMING = ("type", "stream_id", "generate")
# The headers of an error that a client can use; the others are about HTTP.
TOLD_HEADERS = ("retry-after", "x-should-retry", "x-request-id")
TOLD_PREFIX = "x-ratelimit-"

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_encoder = msgspec.json.Encoder()


class ClientEvent(msgspec.Struct):
    """What of a message decides where it goes."""

    type: Json = None
    stream_id: Json = None
    previous_response_id: Json = None


_decoder = msgspec.json.Decoder(ClientEvent)


def read_event(message: bytes) -> ClientEvent:
    """Return what a message is; raises `InvalidRequest` if it is no JSON object."""
    try:
        return _decoder.decode(message)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        raise InvalidRequest(
            "We could not parse the message. The API expects one JSON object in UTF-8.", code="invalid_json"
        ) from None


def unsupported_event(kind: Json) -> InvalidRequest:
    """Return the error of a message whose type is not known."""
    shown = f"'{kind}'" if isinstance(kind, str) else "no type"
    return InvalidRequest(
        f"Unsupported event type: {shown}. Send '{CREATE}'.", code="unsupported_event_type", param="type"
    )


def request_body(message: JsonObject) -> tuple[JsonObject, bool]:
    """Return a `response.create` as the body of `POST /v1/responses`, and whether the model is to be asked."""
    if message.get("background"):
        raise InvalidRequest(
            "A response on a WebSocket cannot run in the background. Create it by POST /v1/responses.",
            code="unsupported_parameter",
            param="background",
        )
    generate = message.get("generate")
    if generate is not None and not isinstance(generate, bool):
        raise InvalidRequest("Invalid type for 'generate': expected a boolean.", code="invalid_type", param="generate")
    body = {name: value for name, value in message.items() if name not in FRAMING}
    # Codex sends `stream`; there is no other way here.
    return {**body, "stream": True}, generate is not False


def messages(frames: bytes, lane: Lane) -> tuple[list[bytes], list[bytes]]:
    """Return whole frames of a stream as messages, and the names of their events."""
    told, names = [], []
    for frame in frames.split(END_OF_FRAME):
        name, _, data = frame.partition(b"\ndata: ")
        if not name.startswith(b"event: "):
            continue  # A comment, or the end.
        name = name.removeprefix(b"event: ")
        names.append(name)
        told.append(on_lane(_nested(data) if name == b"error" else data, lane))
    return told, names


def error_message(status: int, error: JsonObject, headers: Mapping[str, str], lane: Lane) -> bytes:
    """Return an error that comes before any event of a response.

    The SDKs read headers inside the error, Codex beside it.
    """
    told: dict[str, Json] = dict(headers)
    event: JsonObject = {"type": "error", "status": status, "error": {**error, "headers": told}, "headers": told}
    return on_lane(_encoder.encode(event), lane)


def refusal(error: GatewayError, lane: Lane) -> bytes:
    """Return the error of a message that was not served."""
    headers = {name: value for name, value in error_headers(error).items() if name in TOLD_HEADERS}
    return error_message(status_of(error), error_object(error), headers, lane)


def told_headers(headers: Headers) -> dict[str, str]:
    """Return of an HTTP answer's headers those that an error on a WebSocket has."""
    decoded = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)
    return {name: value for name, value in decoded if name in TOLD_HEADERS or name.startswith(TOLD_PREFIX)}


def _nested(data: bytes) -> bytes:
    """Return the error event of a stream without the flat fields that it has on HTTP."""
    event: JsonObject = msgspec.json.decode(data)
    return _encoder.encode({name: event[name] for name in ("type", "sequence_number", "error")})


def on_lane(data: bytes, lane: Lane) -> bytes:
    """Return an event with the name of its lane."""
    # Every event is an object with a type.
    return data if lane is None else b'%b,"stream_id":"%b"}' % (data[:-1], lane.encode())
