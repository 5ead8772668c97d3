"""Frames of streams, read as a client reads them."""

import json

from turnbridge.turn.items import JsonObject


def parsed(frames: bytes) -> list[JsonObject]:
    """Return the data of whole frames, without comments and `[DONE]`."""
    data = [line for frame in frames.split(b"\n\n") for line in frame.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line.removeprefix(b"data: ")) for line in data if line != b"data: [DONE]"]
