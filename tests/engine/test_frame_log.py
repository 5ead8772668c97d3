"""One log of a stream, and its readers: all read the same, and none holds more than a piece of it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from turnbridge.api.shared.sse import named_frames
from turnbridge.engine import frame_log
from turnbridge.engine.frame_log import FrameLog, PackedStream, PackedStreams, pack
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.anyio

BOUND_S = 25


def frame(number: int, size: int = 0) -> bytes:
    # Blank lines inside of a text must not be taken for the end of a frame.
    delta: JsonObject = {"type": "delta", "sequence_number": number, "delta": "a\n\nb" + "x" * size}
    return named_frames([delta])


def frames(*numbers: int) -> bytes:
    return b"".join(map(frame, numbers))


async def collected(source: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(BOUND_S):
        return b"".join([piece async for piece in source])


@pytest.fixture
def written() -> FrameLog:
    """Return a log in which nothing stands yet."""
    return FrameLog()


async def test_its_size_is_the_bytes_of_all_chunks(written: FrameLog) -> None:
    assert written.size == 0
    written.add(frame(0))
    written.add(b"")
    written.add(frame(1))
    assert (written.size, written.chunks) == (len(frames(0, 1)), [frame(0), frame(1)])


@pytest.mark.parametrize("position", range(6))
async def test_a_reader_that_joins_after_the_end_reads_from_any_event_on(written: FrameLog, position: int) -> None:
    written.add(frames(*range(4)))
    written.end()
    assert await collected(written.read(after=position)) == frames(*range(position, 4))


async def test_a_reader_that_joins_early_reads_as_it_is_written(written: FrameLog) -> None:
    written.add(frame(0))
    reader = written.read()
    assert await anext(reader) == frames(0)
    for number in (1, 2):
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        assert not waiting.done()
        written.add(frame(number))
        assert await waiting == frames(number)
    written.add(frame(3))
    written.end()
    assert await collected(reader) == frames(3)


async def test_many_readers_at_different_places_read_the_same(written: FrameLog) -> None:
    readers = [asyncio.ensure_future(collected(written.read(after=position))) for position in (0, 2, 5)]
    for number in range(6):
        written.add(frame(number))
        await asyncio.sleep(0)
    written.end()
    assert await asyncio.gather(*readers) == [frames(*range(6)), frames(*range(2, 6)), frames(5)]


async def of_the_log(whole: list[bytes]) -> Callable[[int], AsyncIterator[bytes]]:
    log = FrameLog()
    for one in whole:
        log.add(one)
    log.end()
    return lambda after: log.read(after=after)


async def of_what_was_kept(whole: list[bytes]) -> Callable[[int], AsyncIterator[bytes]]:
    kept = PackedStream(await pack(whole))
    return lambda after: kept.read(after=after)


@pytest.mark.parametrize("stream", [of_the_log, of_what_was_kept])
@pytest.mark.parametrize("piece", [1, 7, 100, 1_000_000])
async def test_a_stream_is_the_same_in_pieces_of_any_size(
    monkeypatch: pytest.MonkeyPatch,
    stream: Callable[[list[bytes]], Awaitable[Callable[[int], AsyncIterator[bytes]]]],
    piece: int,
) -> None:
    monkeypatch.setattr(FrameLog, "piece_bytes", piece)
    monkeypatch.setattr(PackedStream, "piece_bytes", piece)
    monkeypatch.setattr(PackedStream, "packed_piece_bytes", piece)
    whole = [frame(number, size) for number, size in enumerate((0, 40, 400, 3, 0))]
    read = await stream(whole)
    for position in range(7):
        pieces = [each async for each in read(position)]
        assert b"".join(pieces) == b"".join(whole[position:])


@pytest.mark.parametrize("stream", [of_the_log, of_what_was_kept])
async def test_a_reader_has_no_more_than_a_piece_of_the_stream_at_once(
    stream: Callable[[list[bytes]], Awaitable[Callable[[int], AsyncIterator[bytes]]]],
) -> None:
    read = await stream([frame(number, size) for number in range(50) for size in (10, 100, 200_000)])
    sizes = [len(piece) async for piece in read(0)]
    assert max(sizes) <= frame_log.PIECE_BYTES
    # And not in crumbs, each of which is a write of its own.
    assert sum(sizes) / len(sizes) > frame_log.PIECE_BYTES / 3


async def test_a_reader_that_comes_late_is_given_no_copy_of_all_there_is(written: FrameLog) -> None:
    for number in range(10):
        written.add(frame(number, frame_log.PIECE_BYTES - 1000))
    reader = written.enter()
    async with aclosing(written.pieces(reader)) as pieces:
        for _ in range(3):
            await anext(pieces)
    assert reader.position == 2


async def test_whoever_has_taken_all_chunks_waits_for_another_or_the_end(written: FrameLog) -> None:
    written.add(frame(0))
    for more in (True, False):
        waiting = asyncio.ensure_future(written.grown(len(written.chunks)))
        await asyncio.sleep(0)
        assert not waiting.done()
        if more:
            written.add(frame(1))
        else:
            written.end()
        assert await waiting is more


async def test_readers_of_a_kept_stream_share_it_while_one_of_them_reads() -> None:
    streams, packed = PackedStreams(), await pack([frame(0), frame(1)])
    assert streams.find("resp_1") is None
    readers = [streams.share("resp_1", packed).read()]
    shared = streams.find("resp_1")
    assert shared is not None
    readers.append(shared.read(after=1))
    assert streams.share("resp_1", bytes(packed)) is shared
    del shared
    assert [await collected(reader) for reader in readers] == [frames(0, 1), frames(1)]
    readers.clear()
    gc.collect()
    assert streams.find("resp_1") is None


async def test_what_is_not_kept_is_dropped_when_every_reader_has_it(written: FrameLog) -> None:
    slow, quick = written.enter(), written.enter()
    written.keep_nothing()
    written.add(frame(0))
    dropping = asyncio.ensure_future(written.taken())
    reading, waiting = written.pieces(quick), written.pieces(slow)
    assert await anext(reading) == frames(0)
    following = asyncio.ensure_future(anext(reading))
    await asyncio.sleep(0)
    assert (dropping.done(), written.chunks) == (False, [frame(0)])
    assert await anext(waiting) == frames(0)
    written.leave(slow)
    await asyncio.wait_for(dropping, BOUND_S)
    assert written.chunks == []
    written.add(frame(1))
    assert await asyncio.wait_for(following, BOUND_S) == frames(1)
    written.leave(quick)
    assert not written.is_read
