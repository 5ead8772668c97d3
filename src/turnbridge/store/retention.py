"""Upkeep: how much is kept, and what is removed for its age or size.

Removing goes in batches, each a transaction of its own: a store with a million rows goes on to serve meanwhile. What is
too much is taken from whoever has most, so that nobody's answers make room for another's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from turnbridge.store.database import Transaction
from turnbridge.store.responses import IS_RUNNING
from turnbridge.store.segments import STEP_BYTES, Part, remove_step

# What is removed in one transaction, if it is not too large: some 20 ms, for which requests that write are held up.
BATCH = 200
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
BYTES_EACH = f"""
    SELECT owner, CAST(sum(size) AS BIGINT)
    FROM ({" UNION ALL ".join(f"SELECT owner, size FROM {table}" for table in _SIZED)}) AS kept
    GROUP BY owner
"""


def _oldest(which: str) -> str:
    """Return the statement for a batch of the oldest: each kind by its own index, by the column that is its age."""
    kinds = (
        ("response", "responses", "created_at", f"AND NOT {IS_RUNNING}"),
        # A conversation is as old as its last change.
        ("conversation", "conversations", "changed_at", ""),
        ("chat", "chats", "created_at", ""),
    )
    batches = " UNION ALL ".join(
        f"""
        SELECT * FROM (
            SELECT '{kind}' AS kind, id, {age} AS age FROM {table}
            WHERE {which.format(age=age)} {besides} ORDER BY {age} LIMIT {BATCH}
        ) AS {kind}
        """
        for kind, table, age, besides in kinds
    )
    return f"SELECT kind, id FROM ({batches}) AS oldest ORDER BY age LIMIT {BATCH}"


OLDER = _oldest("{age} < $1")
# Written so that no index is used for the owner: whoever has most has many, so they are soon found by age.
OLDEST_OF = _oldest("owner || '' = $1")


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
        """Remove what is too old, then the oldest of whoever has most until the rest fits; running responses stay."""
        removed: Counter[str] = Counter()
        if made_before is not None:
            freed = 1
            while freed:
                batch, freed = await self._database.write(partial(_remove_older, made_before))
                removed += batch
        if most_bytes is not None:
            excess = sum(await self._database.read(lambda tx: tx.rows(int, f"SELECT {BYTES}"))) - most_bytes
            if excess > 0:
                removed += await self._remove_excess(excess)
        return Pruned(responses=removed["response"], conversations=removed["conversation"], chats=removed["chat"])

    async def _remove_excess(self, excess: int) -> Counter[str]:
        """Remove the oldest of whoever has most until so many bytes are free; return how many of each kind."""
        sizes = dict(await self._database.read(lambda tx: tx.rows(_owner_and_size, BYTES_EACH)))
        removed: Counter[str] = Counter()
        while excess > 0 and sizes:
            richest, *others = sorted(sizes, key=sizes.__getitem__, reverse=True)
            # Down to the next one; where several have much, each gives its part at a time.
            lead = sizes[richest] - (sizes[others[0]] if others else 0)
            wanted = min(excess, max(lead, excess // len(sizes), 1))
            # Read by itself: writers do not wait for the search.
            oldest = await self._database.read(partial(_oldest_of, richest))
            batch, freed = await self._database.write(partial(_remove_some, oldest, min(wanted, STEP_BYTES)))
            if not freed:
                # What is left of it still runs.
                del sizes[richest]
                continue
            removed += batch
            excess -= freed
            sizes[richest] -= freed
        return removed

    async def vacuum(self) -> None:
        """Give the room of removed rows back to the system; writers wait meanwhile, in Postgres readers too."""
        await self._database.vacuum()


async def _remove_older(made_before: int, tx: Transaction) -> tuple[Counter[str], int]:
    """Remove a batch of what is too old; return how many of each kind, and the bytes."""
    return await _remove_some(await tx.rows(_kind_and_id, OLDER, made_before), STEP_BYTES, tx)


async def _oldest_of(owner: str, tx: Transaction) -> Sequence[tuple[str, str]]:
    return await tx.rows(_kind_and_id, OLDEST_OF, owner)


async def _remove_some(oldest: Sequence[tuple[str, str]], most: int, tx: Transaction) -> tuple[Counter[str], int]:
    """Remove these until so many bytes are free; return how many of each kind, and the bytes."""
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


def _owner_and_size(owner: str, size: int) -> tuple[str, int]:
    return owner, size


def _kind_and_id(kind: str, found: str) -> tuple[str, str]:
    return kind, found
