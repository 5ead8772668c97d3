"""Server-sent events as bytes: whole frames only."""

import msgspec

_encoder = msgspec.json.Encoder()

END_OF_FRAME = b"\n\n"
DONE = b"data: [DONE]\n\n"


def data_frame(value: object) -> bytes:
    """Return a frame without a name, as Chat Completions sends."""
    return b"data: " + _encoder.encode(value) + b"\n\n"


def named_frame(name: str, value: object) -> bytes:
    """Return a frame with a name, as Responses sends."""
    return b"event: " + name.encode() + b"\ndata: " + _encoder.encode(value) + b"\n\n"


class Template:
    """A frame of which only some values change: encoded once, it is filled in a third of the time.

    Text deltas are most of what a gateway sends. Encoding each of them anew took 2 of the 7 µs that one costs.
    """

    def __init__(self, frame: bytes, *holes: object) -> None:
        """`frame` holds each of `holes` once, in this order."""
        self._pieces: list[bytes] = []
        for hole in holes:
            before, _, frame = frame.partition(_encoder.encode(hole))
            self._pieces.append(before)
        self._pieces.append(frame)

    def filled(self, *values: object) -> bytes:
        """Return the frame with these values in its holes."""
        first, *rest = self._pieces
        return first + b"".join(_encoder.encode(value) + piece for value, piece in zip(values, rest, strict=True))


def comment(text: str) -> bytes:
    """Return a line that parsers skip and people can read."""
    return b": " + text.encode() + b"\n\n"
