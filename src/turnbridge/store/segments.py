"""Segments and their items: adding them, reading a history, and deleting unreferenced segments."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from turnbridge.engine.records import History, ItemPage, ItemQuery, KeptItem, Legs
from turnbridge.store.database import Transaction, Value, storable_text
from turnbridge.turn.items import JsonObject

CHAIN = """
    WITH RECURSIVE chain (id, parent, depth) AS (
        SELECT id, parent, 0 FROM segments WHERE id = $1
        UNION ALL
        SELECT s.id, s.parent, chain.depth + 1 FROM segments s JOIN chain ON s.id = chain.parent
    )
"""
CHAIN_ITEMS = "chain JOIN items ON items.segment = chain.id"
HAS_ID = "items.owner = $2 AND items.id = $3"
# The items that were the input of the response at the end of a history.
INPUTS = "(chain.depth > 0 OR items.is_output = 0)"
OLDEST_FIRST = "chain.depth DESC, items.position"
NEWEST_FIRST = "chain.depth, items.position DESC"
ADD_ITEM = """
    INSERT INTO items (segment, position, is_output, owner, id, call_id, body, seen)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
# An id may occur more than once, for different items.
ADD_SEEN = """
    UPDATE items SET seen = $4 WHERE owner = $1 AND id = $2 AND body = $3 AND seen IS NULL RETURNING segment
"""
ADD_LEG = "INSERT INTO response_legs (segment, owner, call_id, body) VALUES ($1, $2, $3, $4)"
GROW = "UPDATE segments SET size = size + $2 WHERE id = $1"
# Nothing can refer to a segment while its row is locked, so it stays unreferenced until it is deleted.
LOCK = "SELECT id FROM segments WHERE id = ANY($1) ORDER BY id FOR UPDATE"
DELETE_UNREFERENCED = """
    DELETE FROM segments
    WHERE id = ANY($1)
        AND NOT EXISTS (SELECT 1 FROM segments child WHERE child.parent = segments.id)
        AND NOT EXISTS (SELECT 1 FROM responses WHERE responses.segment = segments.id)
        AND NOT EXISTS (SELECT 1 FROM conversations WHERE conversations.head = segments.id)
    RETURNING size
"""
# The parent of a segment that exactly one row refers to.
PARENT_IF_UNSHARED = """
    SELECT parent FROM segments
    WHERE id = $1
        AND NOT EXISTS (SELECT 1 FROM segments child WHERE child.parent = segments.id)
        AND (SELECT count(*) FROM responses WHERE responses.segment = segments.id)
            + (SELECT count(*) FROM conversations WHERE conversations.head = segments.id) = 1
"""
# SQLite takes up to 30 ms to delete a MB, since it overwrites it, and blocks all writers meanwhile.
STEP_BYTES = 4 * 1024 * 1024
# The column of each kind of row that refers to its history; a chat completion has none.
POINTERS = {"response": ("responses", "segment"), "conversation": ("conversations", "head"), "chat": ("chats", "NULL")}


def decoded(body: bytes) -> JsonObject:
    """Return a stored JSON object."""
    return msgspec.json.decode(body, type=JsonObject)


def kept_item(item_id: str, body: bytes, seen: bytes | None = None) -> KeptItem:
    """Return a stored item. An id that `storable_text` has changed is read from the item itself."""
    item = decoded(body)
    own = item.get("id")
    return KeptItem(
        id=own if isinstance(own, str) and storable_text(own) == item_id else item_id,
        body=item,
        seen=None if seen is None else decoded(seen),
    )


async def add_segment(
    tx: Transaction, owner: str, parent: int | None, inputs: Sequence[KeptItem], outputs: Sequence[KeptItem] = ()
) -> int | None:
    """Add a segment and return its id; None if this owner has no such parent."""
    items = _rows(owner, inputs, 0, 0) + _rows(owner, outputs, len(inputs), 1)
    size = sum(map(_size, items))
    if parent is None:
        added = await tx.row(int, "INSERT INTO segments (owner, size) VALUES ($1, $2) RETURNING id", owner, size)
    else:
        sql = """
            INSERT INTO segments (parent, owner, size)
            SELECT id, owner, $3 FROM segments WHERE id = $1 AND owner = $2 RETURNING id
        """
        added = await tx.row(int, sql, parent, owner, size)
    if added is not None and items:
        await tx.execute_each(ADD_ITEM, [(added, *row) for row in items])
    return added


async def add_outputs(tx: Transaction, owner: str, segment: int, outputs: Sequence[KeptItem]) -> None:
    """Add output items to a segment that holds the inputs."""
    if not outputs:
        return
    count = await tx.row(int, "SELECT coalesce(max(position) + 1, 0) FROM items WHERE segment = $1", segment)
    rows = _rows(owner, outputs, count or 0, 1)
    await tx.execute_each(ADD_ITEM, [(segment, *row) for row in rows])
    await tx.execute(GROW, segment, sum(map(_size, rows)))


async def add_legs(tx: Transaction, owner: str, segment: int, legs: Legs) -> None:
    """Add what the model said around calls, where the outputs of the segment do not tell it."""
    bodies = {call_id: msgspec.json.encode(said) for call_id, said in legs.items()}
    if bodies:
        await tx.execute_each(ADD_LEG, [(segment, owner, call_id, body) for call_id, body in bodies.items()])
        await tx.execute(GROW, segment, sum(map(len, bodies.values())))


async def add_seen(tx: Transaction, owner: str, item: KeptItem) -> None:
    """Add what the model saw to the stored items with the same id and body."""
    body, seen = msgspec.json.encode(item.body), msgspec.json.encode(item.seen)
    for segment in await tx.rows(int, ADD_SEEN, owner, item.id, body, seen):
        await tx.execute(GROW, segment, len(seen))


async def history(tx: Transaction, segment: int) -> History:
    """Return the items up to the end of a segment; `outputs` are those of this segment only."""
    columns = "chain.depth = 0 AND items.is_output = 1, items.id, items.body, items.seen"
    sql = f"{CHAIN} SELECT {columns} FROM {CHAIN_ITEMS} ORDER BY {OLDEST_FIRST}"
    inputs: list[KeptItem] = []
    outputs: list[KeptItem] = []
    for is_last_output, *item in await tx.rows(lambda *row: row, sql, segment):
        (outputs if is_last_output else inputs).append(kept_item(*item))
    return History(segment=segment, inputs=tuple(inputs), outputs=tuple(outputs))


async def items_page(tx: Transaction, segment: int, owner: str, query: ItemQuery, *, which: str = "TRUE") -> ItemPage:
    """Return a page of the items up to the end of a segment; the bodies of other items are not read."""
    order, reverse = (NEWEST_FIRST, OLDEST_FIRST) if query.newest_first else (OLDEST_FIRST, NEWEST_FIRST)
    values: list[Value] = [segment, query.limit + 1]
    if query.after is not None:
        # Where an id occurs more than once, the page starts after the last occurrence.
        sql = f"{CHAIN} SELECT chain.depth, items.position FROM {CHAIN_ITEMS} WHERE {HAS_ID} AND {which}"
        cursor = await tx.row(lambda *row: row, f"{sql} ORDER BY {reverse} LIMIT 1", segment, owner, query.after)
        if cursor is None:
            return ItemPage(knows_after=False)
        further, later = (">", "<") if query.newest_first else ("<", ">")
        which += f" AND (chain.depth {further} $3 OR chain.depth = $3 AND items.position {later} $4)"
        values += cursor
    places = f"""
        SELECT chain.depth, items.segment, items.position
        FROM {CHAIN_ITEMS} WHERE {which} ORDER BY {order} LIMIT $2
    """
    sql = f"""
        {CHAIN}
        SELECT items.id, items.body
        FROM ({places}) AS chain JOIN items ON items.segment = chain.segment AND items.position = chain.position
        ORDER BY {order}
    """
    found = await tx.rows(kept_item, sql, *values)
    return ItemPage(items=tuple(found[: query.limit]), has_more=len(found) > query.limit)


async def latest_item(tx: Transaction, segment: int, owner: str, item_id: str) -> KeptItem | None:
    """Return the latest item with that id up to the end of a segment."""
    sql = f"{CHAIN} SELECT items.id, items.body FROM {CHAIN_ITEMS} WHERE {HAS_ID} ORDER BY {NEWEST_FIRST} LIMIT 1"
    return await tx.row(kept_item, sql, segment, owner, item_id)


async def outputs_of(tx: Transaction, segment: int) -> list[KeptItem]:
    sql = "SELECT id, body FROM items WHERE segment = $1 AND is_output = 1 ORDER BY position"
    return await tx.rows(kept_item, sql, segment)


async def remove_step(tx: Transaction, kind: str, row_id: str) -> tuple[int, int]:
    """Delete a row and, from the end of its history, the segments that nothing else refers to.

    Returns the number of deleted rows and of bytes. A long history takes several steps: until the last one, no row is
    deleted, and the row points at the rest of its history.
    """
    table, column = POINTERS[kind]
    segment: int | None = await tx.row(
        lambda value: value, f"SELECT {column} FROM {table} WHERE id = $1 FOR UPDATE", row_id
    )
    freed = 0
    while segment is not None:
        if freed >= STEP_BYTES:
            return 0, freed
        await tx.execute(LOCK, [segment])
        parent: int | None = await tx.row(lambda value: value, PARENT_IF_UNSHARED, segment)
        if parent is None:
            break
        # The UPDATE takes a share lock on it; two transactions that hold one could not both lock it for deletion.
        await tx.execute(LOCK, [parent])
        await tx.execute(f"UPDATE {table} SET {column} = $2 WHERE id = $1", row_id, parent)
        freed += sum(await tx.rows(int, DELETE_UNREFERENCED, [segment]))
        segment = parent
    sizes = await tx.rows(int, f"DELETE FROM {table} WHERE id = $1 RETURNING size", row_id)
    if segment is not None:
        freed += sum(await tx.rows(int, DELETE_UNREFERENCED, [segment]))
    return len(sizes), freed + sum(sizes)


ItemRow: TypeAlias = tuple[int, int, str, str, str | None, bytes, bytes | None]


def _rows(owner: str, items: Sequence[KeptItem], first: int, is_output: int) -> list[ItemRow]:
    return [
        (
            position,
            is_output,
            owner,
            item.id,
            _call_id(item),
            msgspec.json.encode(item.body),
            None if item.seen is None else msgspec.json.encode(item.seen),
        )
        for position, item in enumerate(items, first)
    ]


def _size(row: ItemRow) -> int:
    *_, body, seen = row
    return len(body) + len(seen or b"")


def _call_id(item: KeptItem) -> str | None:
    call_id = item.body.get("call_id")
    return call_id if isinstance(call_id, str) else None
