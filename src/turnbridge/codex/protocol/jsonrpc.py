"""JSON-RPC as app-server speaks it: one JSON object a line, without the `jsonrpc` field."""

from collections.abc import Mapping
from functools import cache
from typing import Generic, Protocol, TypeAlias, TypeVar, Union

import msgspec

from turnbridge.turn.items import Json

RequestId: TypeAlias = int | str

T = TypeVar("T")
Shape_co = TypeVar("Shape_co", covariant=True)

# The longest line is the echo of a request: the client's body, the stored conversation before it, and fetched media,
# which `engine.media_items` limits to half of this.
LONGEST_LINE_BYTES = 256 * 1024 * 1024

# The code of an error that is not the caller's fault.
INTERNAL_ERROR = -32603


class RpcError(msgspec.Struct, frozen=True):
    """The error of a refused call."""

    code: int
    message: str


class Incoming(msgspec.Struct, frozen=True):
    """Any line from Codex: a response has `result` or `error`, a request `id` and `method`, a notification `method`."""

    id: RequestId | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: RpcError | None = None


_decoder = msgspec.json.Decoder(Incoming)
_encoder = msgspec.json.Encoder()


def decode_line(line: bytes) -> Incoming:
    """Return the message of one line; raises `msgspec.MsgspecError` if it is none."""
    try:
        return _decoder.decode(line)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


def decode_as(shape: type[T], raw: msgspec.Raw) -> T:
    """Return a part of a message; raises `msgspec.MsgspecError` if it does not have this shape."""
    try:
        decoder: msgspec.json.Decoder[T] = _decoder_of(shape)  # type: ignore[arg-type]  # A type has a hash.
        return decoder.decode(raw)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


@cache
def _decoder_of(shape: type[T]) -> "msgspec.json.Decoder[T]":
    return msgspec.json.Decoder(shape)


def is_utf8(data: bytes) -> bool:
    """Tell whether data is UTF-8: msgspec does not validate what it does not decode."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Notified(Protocol[Shape_co]):
    @property
    def params(self) -> Shape_co: ...


class Notifications(Generic[Shape_co]):
    """Decodes lines that are all notifications of known methods, in one pass.

    Nearly every line is one. Decoding them one by one, and each in two steps, takes three times as long.
    """

    def __init__(self, shapes: Mapping[str, type[Shape_co]]) -> None:
        lines = [
            msgspec.defstruct(f"Notified{shape.__name__}", [("params", shape)], tag_field="method", tag=method)
            for method, shape in shapes.items()
        ]
        self._decoder: msgspec.json.Decoder[_Notified[Shape_co]] = msgspec.json.Decoder(Union[tuple(lines)])  # noqa: UP007 - It is dynamic.

    def read(self, lines: bytes) -> list[Shape_co] | None:
        """Return the parameters of all lines; None if one of them is something else, or broken."""
        if not is_utf8(lines):
            return None
        try:
            return [notified.params for notified in self._decoder.decode_lines(lines)]
        except (msgspec.MsgspecError, RecursionError):
            return None


def encode_request(request_id: RequestId, method: str, params: Json) -> bytes:
    """Return the line of a request."""
    return _encoder.encode({"id": request_id, "method": method, "params": params}) + b"\n"


def encode_notification(method: str) -> bytes:
    """Return the line of a notification."""
    return _encoder.encode({"method": method}) + b"\n"


def encode_result(request_id: RequestId, result: Json) -> bytes:
    """Return the line of an answer."""
    return _encoder.encode({"id": request_id, "result": result}) + b"\n"


def encode_refusal(request_id: RequestId, message: str) -> bytes:
    """Return the line of an error answer."""
    method_not_found = -32601
    return _encoder.encode({"id": request_id, "error": {"code": method_not_found, "message": message}}) + b"\n"


class LineSplitter:
    """Splits a byte stream into lines; stops at a line that is too long."""

    longest_bytes = LONGEST_LINE_BYTES

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0
        self.endless = False
        """Whether a line was too long; nothing more is read then."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their newlines and without blank ones."""
        return [line for line in self.whole(data).split(b"\n") if line]

    def whole(self, data: bytes) -> bytes:
        """Return the same lines unsplit."""
        if self.endless:
            return b""
        end = data.rfind(b"\n") + 1
        lines, rest = data[:end], data[end:]
        if lines and self._pieces:
            lines = b"".join((*self._pieces, lines))
            self._drop()
        if rest:
            self._pieces.append(rest)
            self._held += len(rest)
        if self._held > self.longest_bytes:
            self.endless = True
            self._drop()
        return lines

    def _drop(self) -> None:
        self._pieces.clear()
        self._held = 0
