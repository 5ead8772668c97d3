"""The frames of a background response for readers at other replicas: published by its maker, followed elsewhere.

Only frames before the end are shared. The end is in the store, so every reader hears the same one, and a maker that
was taken over cannot tell another. Publishing is compare-and-append: the maker says how many frames it believes to be
there, and goes on from where the shared stream stands. So a lost answer, a restarted Redis or a second attempt leaves
neither a gap nor a repetition.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from turnbridge.engine.frame_log import FrameLog, frame_count, without_frames
from turnbridge.engine.sharing import FramesSoFar, SharedChunk, SharedFrames, SharedStateAway
from turnbridge.turn.errors import GatewayError

# One entry of a shared stream.
MOST_BATCH_BYTES = 256 * 1024
# What is shared of one response; readers elsewhere get the rest when it has ended.
MOST_SHARED_BYTES = 16 * 1024 * 1024
RETRY_S = 1.0
# How often a reader elsewhere looks for more while none comes, and asks the store for the end.
SLOWEST_POLL_S = 0.5
END_POLL_S = 1.0


class Publisher:
    """Shares the frames of a log as it grows."""

    def __init__(self, log: FrameLog, response_id: str, shared: SharedFrames, alone: Callable[[], bool]) -> None:
        """`alone` tells whether there is no other replica to share with."""
        self._log = log
        self._response_id = response_id
        self._shared = shared
        self._alone = alone
        self._taken = 0
        """How many chunks are shared, as far as is known."""
        self._position = 0
        """How many frames these have."""
        self._size = 0
        """How many bytes they have."""

    async def run(self) -> None:
        """Share frames until the log ends, is sealed, or is too large."""
        while await self._log.grown(self._taken):
            try:
                pause = RETRY_S if self._alone() else await self.step()
            except (GatewayError, SharedStateAway):
                pause = RETRY_S
            if pause is None:
                return
            await asyncio.sleep(pause)

    async def step(self) -> float | None:
        """Share some of what is not shared yet; return when to go on, or None if nothing more can be shared."""
        chunks = _batch(self._log.chunks, self._taken)
        chunk = SharedChunk(self._position + frame_count(chunks), b"".join(chunks))
        if self._size + len(chunk.body) > MOST_SHARED_BYTES:
            return None
        standing = await self._shared.add(self._response_id, after=self._position, chunk=chunk)
        if standing is None:
            return None
        if standing == chunk.frames:
            self._taken, self._position = self._taken + len(chunks), standing
            self._size += len(chunk.body)
        else:
            self._taken, self._position = _place(self._log.chunks, standing)
            self._size = sum(map(len, self._log.chunks[: self._taken]))
        return self._shared.interval_s


def _batch(chunks: Sequence[bytes], start: int) -> Sequence[bytes]:
    """Return the chunks for one entry; at least one."""
    end, size = start + 1, len(chunks[start])
    while end < len(chunks) and (size := size + len(chunks[end])) <= MOST_BATCH_BYTES:
        end += 1
    return chunks[start:end]


def _place(chunks: Sequence[bytes], frames: int) -> tuple[int, int]:
    """Return how many chunks make up at most so many frames, and how many frames these are."""
    position = 0
    for taken, chunk in enumerate(chunks):
        end = position + frame_count([chunk])
        if end > frames:
            return taken, position
        position = end
    return len(chunks), position


class Follower:
    """Fills a log with the frames that another replica makes."""

    def __init__(
        self, log: FrameLog, response_id: str, shared: SharedFrames, end: Callable[[int], Awaitable[bytes | None]]
    ) -> None:
        """`end` returns what the store has beyond so many frames, with the end, or None while the response runs."""
        self._log = log
        self._response_id = response_id
        self._shared = shared
        self._end = end
        self.position = 0
        """How many frames the log has."""

    async def run(self) -> None:
        """Fill the log to its end."""
        loop = asyncio.get_running_loop()
        pause, asked_at = self._shared.interval_s, loop.time()
        while True:
            found = await self.take()
            if found.sealed or loop.time() - asked_at >= END_POLL_S:
                if await self.ended():
                    return
                asked_at = loop.time()
            news = bool(found.chunks)
            pause = self._shared.interval_s if news else min(pause * 1.5, SLOWEST_POLL_S)
            await asyncio.sleep(pause)

    async def take(self) -> FramesSoFar:
        """Add what is shared and not in the log yet."""
        try:
            found = await self._shared.after(self._response_id, self.position)
        except (GatewayError, SharedStateAway):
            # While it is away, the store still tells the end.
            return FramesSoFar()
        for chunk in found.chunks:
            first = chunk.frames - frame_count([chunk.body])
            if first > self.position:
                # Somebody has trimmed the stream in Redis. The store has all of it in the end.
                break
            body, _ = without_frames(chunk.body, self.position - first)
            self._log.add(body)
            self.position = max(chunk.frames, self.position)
        return found

    async def ended(self) -> bool:
        """End the log if the store has the end."""
        try:
            rest = await self._end(self.position)
        except (GatewayError, SharedStateAway):
            return False
        if rest is None:
            return False
        self._log.add(rest)
        self._log.end()
        return True
