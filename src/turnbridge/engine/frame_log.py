"""One log of an answer's frames, and any number of readers, each at a position of its own.

Readers take bounded pieces, so one that does not read holds a piece of the stream and not a copy of it.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

END_OF_FRAME = b"\n\n"
# What is on its way to one reader. The connection has buffers of the same size, and the system larger ones.
PIECE_BYTES = 64 * 1024


@dataclass(eq=False, slots=True)
class Reader:
    """A position in a log."""

    position: int = 0
    """How many chunks were taken."""
    skip: int = 0
    """How many frames are yet to be left out."""


class FrameLog:
    """The frames of an answer as it grows, in chunks of whole frames."""

    piece_bytes = PIECE_BYTES

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size = 0
        """The bytes of all chunks, of those too that were dropped."""
        self.ended = False
        self._dropped: int | None = None
        """How many chunks were dropped; None while all are kept."""
        self._readers: set[Reader] = set()
        self._changed = asyncio.Event()

    @property
    def is_read(self) -> bool:
        """Tell whether the log has a reader."""
        return bool(self._readers)

    @property
    def is_whole(self) -> bool:
        """Tell whether everything is kept."""
        return self._dropped is None

    def add(self, chunk: bytes) -> None:
        """Append whole frames."""
        if chunk:
            self.chunks.append(chunk)
            self.size += len(chunk)
            self._notify()

    def end(self) -> None:
        """Let readers know that nothing more will come."""
        self.ended = True
        self._notify()

    async def grown(self, count: int) -> bool:
        """Wait until there are more than `count` chunks; False once it has ended."""
        while not self.ended and len(self.chunks) <= count:
            await self._changed.wait()
        return not self.ended

    def keep_nothing(self) -> None:
        """Drop from here on what all readers have taken."""
        if self._dropped is None:
            self._dropped = 0

    async def taken(self) -> None:
        """Wait until every reader has taken what there is, and drop it: backpressure, if nothing is kept."""
        if self._dropped is None:
            return
        end = self._dropped + len(self.chunks)
        while any(reader.position < end for reader in self._readers):
            await self._changed.wait()
        # A keepalive, which does not wait here, may have added or dropped a chunk meanwhile.
        del self.chunks[: max(end - self._dropped, 0)]
        self._dropped = max(end, self._dropped)

    def enter(self) -> "Reader":
        """Return a reader at the beginning; what it has not read is held until it leaves, even if nothing is kept."""
        reader = Reader()
        self._readers.add(reader)
        return reader

    def leave(self, reader: "Reader") -> None:
        """Remove a reader."""
        self._readers.discard(reader)
        self._notify()

    async def read(self, *, after: int = 0) -> AsyncGenerator[bytes, None]:
        """Yield the stream, without its first `after` frames, as it grows, to its end."""
        reader = self.enter()
        reader.skip = after
        try:
            async for piece in self.pieces(reader):
                yield piece
        finally:
            self.leave(reader)

    async def pieces(self, reader: "Reader") -> AsyncGenerator[bytes, None]:
        """Yield what a reader has not taken yet in bounded pieces, as it grows, to its end."""
        while True:
            changed, ended = self._changed, self.ended
            while (begin := reader.position - (self._dropped or 0)) < len(self.chunks):
                end = self._end_of_piece(begin)
                chunk, reader.skip = without_frames(b"".join(self.chunks[begin:end]), reader.skip)
                for piece in pieces(chunk, self.piece_bytes):
                    yield piece
                reader.position += end - begin
                self._notify()
            if ended:
                return
            await changed.wait()

    def _end_of_piece(self, begin: int) -> int:
        """Return up to where chunks make one piece; at least one chunk."""
        end, size = begin + 1, len(self.chunks[begin])
        while end < len(self.chunks) and (size := size + len(self.chunks[end])) <= self.piece_bytes:
            end += 1
        return end

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class PackedStream:
    """The stream of a response that has ended, as it is stored."""

    piece_bytes = PIECE_BYTES
    # How much is unpacked at a time. zlib copies what it has not used yet.
    packed_piece_bytes = 16 * 1024

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    async def read(self, *, after: int = 0) -> AsyncGenerator[bytes, None]:
        """Yield the stream without its first `after` frames."""
        before = b""
        for piece in self._unpacked():
            rest, after = without_frames(before + piece, after)
            if after:
                # The end of a frame may be cut in two.
                before = rest[-len(END_OF_FRAME) + 1 :]
                # Skipping a long way must not block others.
                await asyncio.sleep(0)
                continue
            before = b""
            for part in pieces(rest, self.piece_bytes):
                yield part

    def _unpacked(self) -> Iterator[bytes]:
        unpacking = zlib.decompressobj()
        for packed in pieces(self.packed, self.packed_piece_bytes):
            yield unpacking.decompress(packed, self.piece_bytes)
            while rest := unpacking.unconsumed_tail:
                yield unpacking.decompress(rest, self.piece_bytes)
        yield unpacking.flush()


class PackedStreams:
    """The packed streams that are being read: one copy of each for all of its readers."""

    def __init__(self) -> None:
        self._read: WeakValueDictionary[str, PackedStream] = WeakValueDictionary()

    def find(self, response_id: str) -> PackedStream | None:
        """Return a stream that has a reader."""
        return self._read.get(response_id)

    def share(self, response_id: str, packed: bytes) -> PackedStream:
        """Return the stream that all current readers share."""
        return self._read.setdefault(response_id, PackedStream(packed))


async def pack(chunks: Sequence[bytes]) -> bytes:
    """Return a whole stream as it is stored. One of 28 MB takes half a second, so a thread does it."""
    return await asyncio.to_thread(lambda: zlib.compress(b"".join(chunks)))


def frame_count(chunks: Sequence[bytes]) -> int:
    """Return how many frames there are in chunks."""
    return sum(chunk.count(END_OF_FRAME) for chunk in chunks)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Yield data in bounded pieces."""
    return (data[start : start + size] for start in range(0, len(data), size))


def without_frames(data: bytes, count: int) -> tuple[bytes, int]:
    """Return data without its first `count` frames, and how many of these it did not have."""
    start = 0
    while count and (end := data.find(END_OF_FRAME, start)) >= 0:
        start, count = end + len(END_OF_FRAME), count - 1
    return data[start:], count
