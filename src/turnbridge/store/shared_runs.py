"""What replicas on one Postgres share of turns and background responses that run: legs, frames, and who makes what.

All of it is short-lived. A leg expires by the database's clock; the frames of a response are deleted with its end.
"""

from collections.abc import Sequence

import msgspec

from turnbridge.engine.sharing import FramesSoFar, LegLimits, LegRecord, SharedChunk
from turnbridge.store.database import NOW, Database, Transaction
from turnbridge.store.maintenance import IS_RUNNING
from turnbridge.turn.items import JsonObject

# In one order everywhere, so that two replicas do not wait for each other's rows.
KEEP_LEG = f"""
    INSERT INTO parked_legs (owner, call_id, holder, expires_at, body) VALUES ($1, $2, $3, {NOW} + $4, $5)
    ON CONFLICT (owner, call_id) DO UPDATE SET
        holder = excluded.holder, expires_at = excluded.expires_at, body = excluded.body
"""
LEGS = f"""
    SELECT owner, call_id, holder, body FROM parked_legs
    WHERE owner = $1 AND call_id = ANY($2) AND expires_at > {NOW} ORDER BY call_id
"""
# The newest ones stay.
TRIM_LEGS = """
    DELETE FROM parked_legs WHERE owner = $1 AND call_id IN (
        SELECT call_id FROM (
            SELECT call_id,
                row_number() OVER newest_first AS number,
                sum(length(body)) OVER newest_first AS bytes
            FROM parked_legs WHERE owner = $1
            WINDOW newest_first AS (ORDER BY expires_at DESC, call_id)
        ) AS aged WHERE number > $2 OR bytes > $3
    )
"""
# What was deleted must not be left here.
FORGET_LEGS = """
    DELETE FROM parked_legs WHERE owner = $2 AND call_id IN (
        SELECT call_id FROM items
        WHERE segment = (SELECT segment FROM responses WHERE id = $1 AND owner = $2)
            AND is_output = 1 AND call_id IS NOT NULL
    )
"""
FORGET_LEGS_OF_CHAT = """
    DELETE FROM parked_legs WHERE owner = $2 AND call_id IN (
        SELECT call_id FROM chat_legs WHERE chat = (SELECT number FROM chats WHERE id = $1 AND owner = $2)
    )
"""
# The row of the response is locked: its end and its frames come one after another, and nothing is added after its end.
LOCK_RUNNING = f"SELECT id FROM responses WHERE id = $1 AND maker = $2 AND {IS_RUNNING} FOR UPDATE"
FRAMES = "SELECT coalesce(max(frames), 0) FROM response_frames WHERE response = $1"
ADD_FRAMES = "INSERT INTO response_frames (response, frames, body) VALUES ($1, $2, $3)"


class SharedRunTables:
    """The store's `SharedRunStore`."""

    _database: Database

    async def keep_legs(self, legs: Sequence[LegRecord], lifetime_s: float) -> None:
        rows = [(leg.owner, leg.call_id, leg.holder, lifetime_s, msgspec.json.encode(leg.items)) for leg in legs]
        await self._database.write(lambda tx: tx.execute_each(KEEP_LEG, sorted(rows)))

    async def trim_legs(self, owner: str, limits: LegLimits) -> None:
        await self._database.write(lambda tx: tx.execute(TRIM_LEGS, owner, limits.legs, limits.size))

    async def parked_legs(self, owner: str, call_ids: Sequence[str]) -> Sequence[LegRecord]:
        return await self._database.read(lambda tx: tx.rows(_leg, LEGS, owner, call_ids))

    async def maker(self, owner: str, response_id: str) -> str | None:
        sql = "SELECT coalesce(maker, '') FROM responses WHERE id = $1 AND owner = $2"
        return await self._database.read(lambda tx: tx.row(str, sql, response_id, owner)) or None

    async def add_frames(self, response_id: str, maker: str, *, after: int, chunk: SharedChunk) -> int | None:
        async def add(tx: Transaction) -> int | None:
            if await tx.row(str, LOCK_RUNNING, response_id, maker) is None:
                return None
            frames = await tx.row(int, FRAMES, response_id) or 0
            if frames != after:
                return frames
            await tx.execute(ADD_FRAMES, response_id, *chunk)
            return chunk.frames

        return await self._database.write(add)

    async def frames_after(self, response_id: str, position: int) -> FramesSoFar:
        async def read(tx: Transaction) -> FramesSoFar:
            sql = "SELECT frames, body FROM response_frames WHERE response = $1 AND frames > $2 ORDER BY frames"
            found = await tx.rows(SharedChunk, sql, response_id, position)
            running = await tx.row(str, f"SELECT id FROM responses WHERE id = $1 AND {IS_RUNNING}", response_id)
            return FramesSoFar(chunks=tuple(found), sealed=running is None)

        return await self._database.read(read)

    async def count_frames(self, response_id: str) -> int:
        return await self._database.read(lambda tx: tx.row(int, FRAMES, response_id)) or 0

    async def drop_frames(self, response_id: str) -> None:
        await self._database.write(
            lambda tx: tx.execute("DELETE FROM response_frames WHERE response = $1", response_id)
        )


def _leg(owner: str, call_id: str, holder: str, body: bytes) -> LegRecord:
    items = tuple(msgspec.json.decode(body, type=list[JsonObject]))
    return LegRecord(owner=owner, call_id=call_id, holder=holder, items=items)
