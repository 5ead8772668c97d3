"""Background responses that other replicas make: read as they are made, cancelled, and ended if their maker is gone.

Readers here share one log for each response. It is filled from the frames that the maker shares; its end is the one
that the store has.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

import structlog

from turnbridge.api.responses.endings import last_frames
from turnbridge.engine.frame_log import FrameLog, PackedStream, frame_count, pack
from turnbridge.engine.records import CANCELLED, IN_PROGRESS, QUEUED, RUNNING, ResponseRecord, Store
from turnbridge.engine.shared_frames import Follower
from turnbridge.engine.sharing import Peers, SharedFrames, SharedRunStore, SharedStateAway
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import JsonObject

log = structlog.get_logger(__name__)

# How long a cancellation waits for the maker, which stores what it had made by then.
CANCEL_WAIT_S = 0.7
CANCEL_POLL_S = 0.02
# `response.created` and `response.queued`.
FRAMES_OF_QUEUED = 2

CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a replica shares with others."""

    peers: Peers
    frames: SharedFrames
    store: SharedRunStore
    alone: Callable[[], bool]
    """Tells whether there is no other replica."""


@dataclass(eq=False, slots=True)
class _Followed:
    log: FrameLog
    filling: "asyncio.Task[None]"


class MadeElsewhere:
    """The responses that other replicas make, for clients of this one."""

    def __init__(self, store: Store, shared: Shared) -> None:
        self._store = store
        self._shared = shared
        self._followed: dict[str, _Followed] = {}

    def __len__(self) -> int:
        """Return how many responses of other replicas are read here."""
        return len(self._followed)

    async def read(self, record: ResponseRecord, *, after: int) -> AsyncGenerator[bytes, None]:
        """Yield the stream of a response without its first `after` frames, as it is made, to its end."""
        followed = self._followed.get(record.id)
        if followed is None:
            frames = FrameLog()
            follower = Follower(frames, record.id, self._shared.frames, partial(self._rest, record))
            filling = asyncio.create_task(follower.run())
            filling.add_done_callback(partial(_filled, frames))
            followed = self._followed[record.id] = _Followed(frames, filling)
        try:
            async with aclosing(followed.log.read(after=after)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            if not followed.log.is_read:
                followed.filling.cancel()
                self._followed.pop(record.id, None)

    async def _rest(self, record: ResponseRecord, position: int) -> bytes | None:
        """Return what the store has beyond so many frames, and the end; None while the response runs."""
        found = await self._store.response(record.owner, record.id)
        if found is not None and found.status in RUNNING:
            return None
        if found is None:
            # Deleted, which ends it first.
            return last_frames(replace(record, status=CANCELLED, body={**record.body, "status": CANCELLED}), position)
        events = await self._store.response_events(record.owner, record.id)
        if events is not None:
            rest = b"".join([piece async for piece in PackedStream(events).read(after=position)])
            if rest:
                return rest
        return last_frames(found, position)

    async def standing(self, record: ResponseRecord) -> JsonObject:
        """Return a response as it stands: the store is told of its beginning and its end only."""
        if record.status != QUEUED:
            return record.body
        try:
            has_begun = await self._shared.frames.count(record.id) > FRAMES_OF_QUEUED
        except (GatewayError, SharedStateAway):
            return record.body
        return {**record.body, "status": IN_PROGRESS} if has_begun else record.body

    async def cancel(self, record: ResponseRecord) -> None:
        """Let the maker cancel a response; if it does not within a moment, store that it is cancelled."""
        maker = await self._shared.store.maker(record.owner, record.id)
        if maker is not None:
            self._shared.peers.tell(maker, (CANCEL, record.id))
        loop = asyncio.get_running_loop()
        until = loop.time() + CANCEL_WAIT_S
        while loop.time() < until:
            found = await self._store.response(record.owner, record.id)
            if found is None or found.status not in RUNNING:
                return
            await asyncio.sleep(CANCEL_POLL_S)
        cancelled = replace(record, status=CANCELLED, body={**record.body, "status": CANCELLED})
        # Its maker notices when it renews its lease.
        await self._store.finish_response(cancelled, events=await self.stream_so_far(cancelled))

    async def stream_so_far(self, record: ResponseRecord) -> bytes | None:
        """Seal what is shared of a response, and return it packed, with this end; None if nothing was shared."""
        try:
            found = await self._shared.frames.seal(record.id)
        except (GatewayError, SharedStateAway) as error:
            log.warning("shared_frames_lost", response=record.id, reason=str(error))
            return None
        chunks = [chunk.body for chunk in found.chunks]
        count = frame_count(chunks)
        # Without its beginning, which somebody may have trimmed, it is of no use.
        return await pack([*chunks, last_frames(record, count)]) if count and found.chunks[-1].frames == count else None

    async def over(self, response_id: str) -> None:
        """Delete what is shared of a response whose end is stored."""
        try:
            await self._shared.frames.drop(response_id)
        except (GatewayError, SharedStateAway) as error:
            # It expires.
            log.debug("shared_frames_left", response=response_id, reason=str(error))


def _filled(frames: FrameLog, filling: "asyncio.Task[None]") -> None:
    """Cut readers off if the log cannot be filled to its end, which only a defect of ours prevents."""
    if not filling.cancelled() and (error := filling.exception()) is not None:
        log.error("unexpected_fault", exc_info=error)
        frames.end()
