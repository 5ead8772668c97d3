"""Upkeep: how much is kept, and what is removed for its age or size.

Removing goes in batches, each a transaction of its own: a store with a million rows goes on to serve meanwhile.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from turnbridge.store.database import Transaction
from turnbridge.store.part import Part
from turnbridge.store.responses import IS_RUNNING
from turnbridge.store.segments import STEP_BYTES, remove_step

# What is removed in one transaction, if it is not too large: some 20 ms, for which requests that write are held up.
BATCH = 200
# After the end of everything that is kept: nothing is too young to be removed for its size.
ANY_AGE = 2**62

_SIZED = ("segments", "responses", "conversations", "chats")
BYTES = f"CAST({' + '.join(f'(SELECT coalesce(sum(size), 0) FROM {table})' for table in _SIZED)} AS BIGINT)"
FIGURES = f"""
    SELECT
        (SELECT count(*) FROM responses),
        (SELECT count(*) FROM conversations),
        (SELECT count(*) FROM chats),
        (SELECT count(*) FROM items),
        {BYTES},
        (SELECT min(made) FROM (
            SELECT min(created_at) AS made FROM responses
            UNION ALL SELECT min(created_at) FROM conversations
            UNION ALL SELECT min(created_at) FROM chats
        ) AS oldest)
"""
# Each kind by its own index; a conversation is as old as its last change.
OLDEST = f"""
    SELECT kind, id FROM (
        SELECT * FROM (
            SELECT 'response' AS kind, id, created_at AS age FROM responses
            WHERE created_at < $1 AND NOT {IS_RUNNING} ORDER BY created_at LIMIT {BATCH}
        ) AS response
        UNION ALL
        SELECT * FROM (
            SELECT 'conversation', id, changed_at FROM conversations
            WHERE changed_at < $1 ORDER BY changed_at LIMIT {BATCH}
        ) AS conversation
        UNION ALL
        SELECT * FROM (
            SELECT 'chat', id, created_at FROM chats WHERE created_at < $1 ORDER BY created_at LIMIT {BATCH}
        ) AS chat
    ) AS oldest ORDER BY age LIMIT {BATCH}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFigures:
    """How much is kept."""

    responses: int
    conversations: int
    chats: int
    items: int
    bytes: int
    """The JSON that is kept, which is what the bound counts; the files around it are larger."""
    oldest: int | None
    """When the oldest of it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed."""

    responses: int
    conversations: int
    chats: int


class Upkeep(Part):
    """The upkeep of a database."""

    async def figures(self) -> StoreFigures:
        """Return how much is kept."""
        (found,) = await self._database.read(lambda tx: tx.rows(_figures, FIGURES))
        return found

    async def prune(self, *, made_before: int | None = None, most_bytes: int | None = None) -> Pruned:
        """Remove what is too old, then the oldest until the rest fits; running responses stay."""
        removed: Counter[str] = Counter()
        if made_before is not None:
            freed = 1
            while freed:
                batch, freed = await self._database.write(partial(_remove_older, made_before))
                removed += batch
        if most_bytes is not None:
            excess = sum(await self._database.read(lambda tx: tx.rows(int, f"SELECT {BYTES}"))) - most_bytes
            while excess > 0:
                batch, freed = await self._database.write(partial(_remove_excess, excess))
                if not freed:
                    break
                removed += batch
                excess -= freed
        return Pruned(responses=removed["response"], conversations=removed["conversation"], chats=removed["chat"])

    async def vacuum(self) -> None:
        """Give the room of removed rows back to the system; writers wait meanwhile, in Postgres readers too."""
        await self._database.vacuum()


async def _remove_older(made_before: int, tx: Transaction) -> tuple[Counter[str], int]:
    """Remove a batch of what is too old; return how many of each kind, and the bytes."""
    return await _remove_some(await tx.rows(_kind_and_id, OLDEST, made_before), STEP_BYTES, tx)


async def _remove_excess(excess: int, tx: Transaction) -> tuple[Counter[str], int]:
    """Remove the oldest until so many bytes are free, or the batch is done; return how many, and the bytes."""
    return await _remove_some(await tx.rows(_kind_and_id, OLDEST, ANY_AGE), min(excess, STEP_BYTES), tx)


async def _remove_some(oldest: Sequence[tuple[str, str]], most: int, tx: Transaction) -> tuple[Counter[str], int]:
    removed: Counter[str] = Counter()
    freed = 0
    for kind, found in oldest:
        if freed >= most:
            break
        count, size = await remove_step(tx, kind, found)
        removed[kind] += count
        freed += size
    return removed, freed


def _figures(responses: int, conversations: int, chats: int, items: int, size: int, oldest: int | None) -> StoreFigures:
    return StoreFigures(
        responses=responses, conversations=conversations, chats=chats, items=items, bytes=size, oldest=oldest
    )


def _kind_and_id(kind: str, found: str) -> tuple[str, str]:
    return kind, found
