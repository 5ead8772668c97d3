"""One log of a stream's frames, and any number of readers, each with a place of its own in it.

Readers take bounded pieces, so one that does not read holds a piece of the stream and not a copy of it.
"""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from weakref import WeakValueDictionary

from starlette.types import Receive, Scope, Send

from turnbridge.api.shared import sse
from turnbridge.web.disconnect import Client
from turnbridge.web.http import encoded, wants_no_keepalive
from turnbridge.web.middleware.access_log import context_of
from turnbridge.web.turns import STREAM_HEADERS

# What is on its way to one reader. The connection has buffers of the same size, and the system larger ones.
PIECE_BYTES = 64 * 1024
# How much of a packed stream is unpacked at a time. zlib copies what it has not used yet.
PACKED_PIECE_BYTES = 16 * 1024


class FrameLog:
    """A stream as it grows: event number `n` is `frames[n]`."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.ended = False
        self._changed = asyncio.Event()

    def add(self, frames: Sequence[bytes]) -> None:
        """Let the readers have more."""
        self.frames += frames
        self._tell()

    def end(self) -> None:
        """Let the readers know that nothing more will come."""
        self.ended = True
        self._tell()

    async def read(self, position: int) -> AsyncIterator[bytes]:
        """Yield the stream from a frame on, as it grows, to its end."""
        while True:
            changed, ended = self._changed, self.ended
            while position < len(self.frames):
                if len(frame := self.frames[position]) > PIECE_BYTES:
                    position += 1
                    for piece in _pieces(frame):
                        yield piece
                else:
                    first, position = position, self._end_of_piece(position)
                    yield b"".join(self.frames[first:position])
            if ended:
                return
            await changed.wait()

    def _end_of_piece(self, position: int) -> int:
        """Return up to where frames make one piece."""
        size = 0
        while position < len(self.frames) and (size := size + len(self.frames[position])) <= PIECE_BYTES:
            position += 1
        return position

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class PackedStream:
    """The stream of a response that has ended, as it is kept."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    async def read(self, position: int) -> AsyncIterator[bytes]:
        """Yield the stream from a frame on."""
        before = b""
        for piece in self._unpacked():
            unread = before + piece
            start = 0
            while position and (end := unread.find(sse.END_OF_FRAME, start)) >= 0:
                start, position = end + len(sse.END_OF_FRAME), position - 1
            if position:
                # The end of a frame may be cut in two.
                before = unread[max(start, len(unread) - len(sse.END_OF_FRAME) + 1) :]
                # A long way to its place must not hold up others.
                await asyncio.sleep(0)
                continue
            before = b""
            for rest in _pieces(unread[start:]):
                yield rest

    def _unpacked(self) -> Iterator[bytes]:
        unpacking = zlib.decompressobj()
        for packed in _pieces(self.packed, PACKED_PIECE_BYTES):
            yield unpacking.decompress(packed, PIECE_BYTES)
            while rest := unpacking.unconsumed_tail:
                yield unpacking.decompress(rest, PIECE_BYTES)
        yield unpacking.flush()


class PackedStreams:
    """The packed streams that are being read: one copy of each, for all of its readers."""

    def __init__(self) -> None:
        self._read: WeakValueDictionary[str, PackedStream] = WeakValueDictionary()

    def find(self, response_id: str) -> PackedStream | None:
        """Return a stream that somebody reads."""
        return self._read.get(response_id)

    def share(self, response_id: str, packed: bytes) -> PackedStream:
        """Return a stream for all who will read it while somebody does."""
        return self._read.setdefault(response_id, PackedStream(packed))


async def pack(frames: Sequence[bytes]) -> bytes:
    """Return a whole stream as it is kept. One of 28 MB takes half a second, so a thread does it."""
    return await asyncio.to_thread(lambda: zlib.compress(b"".join(frames)))


def _pieces(data: bytes, size: int = PIECE_BYTES) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


class EventStream:
    """An ASGI response of frames that somebody else makes: the client may leave, and they are made all the same."""

    def __init__(self, frames: AsyncIterator[bytes], *, headers: Mapping[str, str], keepalive_s: float | None) -> None:
        self._frames = frames
        self._headers = encoded({**STREAM_HEADERS, **headers})
        self._keepalive_s = keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames until they end or the client leaves."""
        context_of(scope).stream = True
        keepalive_s = None if wants_no_keepalive(scope) else self._keepalive_s
        await Client(receive).served(self._send(send, keepalive_s))

    async def _send(self, send: Send, keepalive_s: float | None) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        frames = aiter(self._frames)
        coming = asyncio.ensure_future(anext(frames, None))
        try:
            while True:
                # A frame that comes in several pieces has no keepalive inside: the next piece is always there.
                done, _ = await asyncio.wait((coming,), timeout=keepalive_s)
                frame = coming.result() if done else sse.comment("keepalive")
                if frame is None:
                    break
                await send({"type": "http.response.body", "body": frame, "more_body": True})
                if done:
                    coming = asyncio.ensure_future(anext(frames, None))
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await coming
        await send({"type": "http.response.body", "body": b""})
