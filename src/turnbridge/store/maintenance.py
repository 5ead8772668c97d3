"""Maintenance of the store: its size, retention by age and size, and the export of all records.

Deletion runs in batches, each in its own transaction, so that a store with a million rows keeps serving. Eviction by
size takes from the owner with the most bytes, so that no owner's answers are evicted for another's.
"""

import base64
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

import msgspec

from turnbridge.engine.records import RUNNING
from turnbridge.store.database import NOW, Database, Transaction, Value
from turnbridge.store.files import PIECES, remove_file_step
from turnbridge.store.segments import STEP_BYTES, remove_step
from turnbridge.turn.items import Json, JsonObject

IS_RUNNING = f"status IN ({', '.join(map(repr, sorted(RUNNING)))})"
# Rows deleted in one transaction, unless they are large: some 20 ms, for which writers wait.
BATCH = 200
_SIZED = ("segments", "responses", "conversations", "chats", "files")
BYTES = f"CAST({' + '.join(f'(SELECT coalesce(sum(size), 0) FROM {table})' for table in _SIZED)} AS BIGINT)"
FIGURES = f"""
    SELECT
        (SELECT count(*) FROM responses),
        (SELECT count(*) FROM conversations),
        (SELECT count(*) FROM chats),
        (SELECT count(*) FROM files),
        (SELECT count(*) FROM items),
        {BYTES},
        (SELECT min(made) FROM (
            SELECT min(created_at) AS made FROM responses
            UNION ALL SELECT min(created_at) FROM conversations
            UNION ALL SELECT min(created_at) FROM chats
            UNION ALL SELECT min(created_at) FROM files
        ) AS oldest)
"""
BYTES_EACH = f"""
    SELECT owner, CAST(sum(size) AS BIGINT)
    FROM ({" UNION ALL ".join(f"SELECT owner, size FROM {table}" for table in _SIZED)}) AS kept
    GROUP BY owner
"""


def _oldest(which: str) -> str:
    """Return the statement for a batch of the oldest rows: each kind by its own index on the column of its age."""
    kinds = (
        ("response", "responses", "created_at", f"AND NOT {IS_RUNNING}"),
        # The age of a conversation counts from its last change.
        ("conversation", "conversations", "changed_at", ""),
        ("chat", "chats", "created_at", ""),
        ("file", "files", "created_at", ""),
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
# `|| ''` keeps the planner from using an index on the owner: this owner has many rows, so the index by age finds them
# sooner.
OLDEST_OF = _oldest("owner || '' = $1")
EXPIRED = f"SELECT 'file', id FROM files WHERE expires_at <= {NOW} ORDER BY expires_at LIMIT {BATCH}"
EXPIRED_LEGS = f"DELETE FROM parked_legs WHERE expires_at <= {NOW}"

# Rows in memory at once; a row may be as large as a request. Of files, which are larger, there is one.
PAGE = 50
# The columns of each kind; its table is the plural of its name.
COLUMNS = {
    "response": ("id", "owner", "created_at", "status", "background", "segment", "body", "events"),
    "conversation": ("id", "owner", "created_at", "head AS segment", "metadata"),
    "chat": ("id", "owner", "created_at", "model", "metadata", "body", "messages"),
    "file": ("id", "owner", "created_at", "expires_at", "purpose", "filename", "mime_type", "bytes"),
    "segment": ("id", "owner", "parent"),
}
DECODE: Mapping[str, Callable[..., Json]] = {
    "background": bool,
    "body": msgspec.json.decode,
    "metadata": msgspec.json.decode,
    "messages": msgspec.json.decode,
    "events": lambda events: None if events is None else base64.b64encode(events).decode(),
}
ITEMS = "SELECT segment, id, is_output, body, seen FROM items WHERE segment = ANY($1) ORDER BY segment, position"


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """How much is stored."""

    responses: int
    conversations: int
    chats: int
    files: int
    items: int
    bytes: int
    """The stored JSON and files, which is what the size limit counts; the files are larger."""
    oldest: int | None
    """When the oldest record was created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many records were deleted."""

    responses: int
    conversations: int
    chats: int
    files: int = 0


class Maintenance:
    """The methods of the store that no request calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def figures(self) -> StoreFigures:
        (found,) = await self._database.read(lambda tx: tx.rows(StoreFigures, FIGURES))
        return found

    async def prune(self, *, made_before: int | None = None, most_bytes: int | None = None) -> Pruned:
        """Delete what has expired or is too old, then evict by size; running responses stay."""
        removed = await self._remove_all(EXPIRED)
        await self._database.write(lambda tx: tx.execute(EXPIRED_LEGS))
        if made_before is not None:
            removed += await self._remove_all(OLDER, made_before)
        if most_bytes is not None:
            excess = sum(await self._database.read(lambda tx: tx.rows(int, f"SELECT {BYTES}"))) - most_bytes
            if excess > 0:
                removed += await self._evict(excess)
        return Pruned(**{field.name: removed[field.name.removesuffix("s")] for field in fields(Pruned)})

    async def _remove_all(self, which: str, *values: Value) -> Counter[str]:
        """Delete everything that a statement finds, a batch at a time."""
        removed: Counter[str] = Counter()
        found = 1
        while found:
            batch, found = await self._database.write(partial(_remove_found, which, values))
            removed += batch
        return removed

    async def _evict(self, excess: int) -> Counter[str]:
        """Delete so many bytes, always the oldest records of the largest owner; return how many of each kind."""
        sizes: dict[str, int] = dict(await self._database.read(lambda tx: tx.rows(lambda *row: row, BYTES_EACH)))
        removed: Counter[str] = Counter()
        while excess > 0 and sizes:
            largest, *others = sorted(sizes, key=sizes.__getitem__, reverse=True)
            # Down to the size of the next owner; among owners of equal size, a share at a time.
            lead = sizes[largest] - (sizes[others[0]] if others else 0)
            wanted = min(excess, max(lead, excess // len(sizes), 1))
            # In a transaction of its own, so that writers do not wait for the search.
            oldest = await self._database.read(partial(_oldest_of, largest))
            batch, freed = await self._database.write(partial(_remove_some, oldest, min(wanted, STEP_BYTES)))
            if not freed:
                # All that is left of it is running.
                del sizes[largest]
                continue
            removed += batch
            excess -= freed
            sizes[largest] -= freed
        return removed

    async def vacuum(self) -> None:
        """Return the space of deleted rows to the operating system; blocks writers, and in Postgres readers too."""
        await self._database.vacuum()

    async def export(self) -> AsyncIterator[JsonObject]:
        """Yield every record with its kind and owner.

        Histories are exported as they are stored: a response or conversation names its last segment, and a segment its
        items and its parent. Each page has its own snapshot, so concurrent changes may be in the export or not.
        """
        for kind in COLUMNS:
            last: str | int = 0 if kind == "segment" else ""
            while page := await self._database.read(partial(_export_page, kind, last)):
                for record in page.values():
                    yield record
                *_, last = page


async def _remove_found(which: str, values: Sequence[Value], tx: Transaction) -> tuple[Counter[str], int]:
    """Delete a batch of what a statement finds; return how many of each kind, and whether it found any."""
    found: list[tuple[str, str]] = await tx.rows(lambda *row: row, which, *values)
    removed, _ = await _remove_some(found, STEP_BYTES, tx)
    return removed, len(found)


async def _oldest_of(owner: str, tx: Transaction) -> Sequence[tuple[str, str]]:
    return await tx.rows(lambda *row: row, OLDEST_OF, owner)


async def _remove_some(oldest: Sequence[tuple[str, str]], most: int, tx: Transaction) -> tuple[Counter[str], int]:
    """Delete these until so many bytes are free; return how many of each kind, and the bytes."""
    removed: Counter[str] = Counter()
    freed = 0
    for kind, row_id in oldest:
        if freed >= most:
            break
        removing = remove_file_step(tx, row_id) if kind == "file" else remove_step(tx, kind, row_id)
        count, size = await removing
        removed[kind] += count
        freed += size
    return removed, freed


async def _export_page(kind: str, last: str | int, tx: Transaction) -> dict[str | int, JsonObject]:
    """Return the next records by their ids."""
    columns = COLUMNS[kind]
    names = [column.rpartition(" ")[2] for column in columns]
    sql = f"SELECT {', '.join(columns)} FROM {kind}s WHERE id > $1 ORDER BY id LIMIT $2"
    page: dict[str | int, JsonObject] = {}
    for row in await tx.rows(lambda *row: row, sql, last, 1 if kind == "file" else PAGE):
        values = {
            name: DECODE[name](value) if name in DECODE else value for name, value in zip(names, row, strict=True)
        }
        page[row[0]] = {"kind": kind, **values}
        if kind == "file":
            content = b"".join(await tx.rows(bytes, PIECES, row[0]))
            page[row[0]]["content"] = base64.b64encode(content).decode()
    if kind == "segment":
        items: dict[str | int, list[Json]] = {}
        for segment, item_id, is_output, body, seen in await tx.rows(lambda *row: row, ITEMS, list(page)):
            item = {"id": item_id, "output": is_output == 1, "body": msgspec.json.decode(body)}
            if seen is not None:
                item["seen"] = msgspec.json.decode(seen)
            items.setdefault(segment, []).append(item)
        return {number: {**record, "items": items.get(number, [])} for number, record in page.items()}
    return page
