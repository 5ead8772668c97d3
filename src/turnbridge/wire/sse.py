"""Server-sent events as bytes: whole frames only."""

import msgspec

_encoder = msgspec.json.Encoder()

DONE = b"data: [DONE]\n\n"


def data_frame(value: object) -> bytes:
    """Return a frame without a name, as Chat Completions sends."""
    return b"data: " + _encoder.encode(value) + b"\n\n"


def named_frame(name: str, value: object) -> bytes:
    """Return a frame with a name, as Responses sends."""
    return b"event: " + name.encode() + b"\ndata: " + _encoder.encode(value) + b"\n\n"


def comment(text: str) -> bytes:
    """Return a line that parsers skip and people can read."""
    return b": " + text.encode() + b"\n\n"
