"""The frames of background responses that replicas share: rows in Postgres, if there is no Redis."""

from turnbridge.engine.sharing import FramesSoFar, SharedChunk, SharedRunStore


class StoredFrames:
    """`SharedFrames` in the store. Whoever takes a response over, or ends it, seals its frames by that."""

    interval_s = 0.25

    def __init__(self, store: SharedRunStore, replica: str) -> None:
        self._store = store
        self._replica = replica

    async def add(self, response_id: str, *, after: int, chunk: SharedChunk) -> int | None:
        return await self._store.add_frames(response_id, self._replica, after=after, chunk=chunk)

    async def after(self, response_id: str, position: int) -> FramesSoFar:
        return await self._store.frames_after(response_id, position)

    async def count(self, response_id: str) -> int:
        return await self._store.count_frames(response_id)

    async def seal(self, response_id: str) -> FramesSoFar:
        return await self._store.frames_after(response_id, 0)

    async def drop(self, response_id: str) -> None:
        await self._store.drop_frames(response_id)
