"""Segments and their items: adding, reading up to the beginning, and removing what nobody needs."""

from collections.abc import Callable, Sequence

import msgspec

from turnbridge.engine.records import History, ItemPage, ItemQuery, KeptItem
from turnbridge.store.database import Database, Transaction, Value, kept_text
from turnbridge.turn.items import JsonObject

CHAIN = """
    WITH RECURSIVE chain (id, parent, depth) AS (
        SELECT id, parent, 0 FROM segments WHERE id = $1
        UNION ALL
        SELECT s.id, s.parent, chain.depth + 1 FROM segments s JOIN chain ON s.id = chain.parent
    )
"""
CHAIN_ITEMS = "chain JOIN items ON items.segment = chain.id"
IS_NAMED = "items.owner = $2 AND items.id = $3"
# What the model was shown for the response that a history ends with.
INPUTS = "(chain.depth > 0 OR items.is_output = 0)"
ALL = "TRUE"
OLDEST_FIRST = "chain.depth DESC, items.position"
NEWEST_FIRST = "chain.depth, items.position DESC"
ADD_ITEM = """
    INSERT INTO items (segment, position, is_output, owner, id, call_id, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
# Nobody adds to a segment while its row is locked, so what is not needed then is not needed at all.
LOCK = "SELECT id FROM segments WHERE id = ANY($1) ORDER BY id FOR UPDATE"
REMOVE_UNNEEDED = """
    DELETE FROM segments
    WHERE id = ANY($1)
        AND NOT EXISTS (SELECT 1 FROM segments child WHERE child.parent = segments.id)
        AND NOT EXISTS (SELECT 1 FROM responses WHERE responses.segment = segments.id)
        AND NOT EXISTS (SELECT 1 FROM conversations WHERE conversations.head = segments.id)
    RETURNING size
"""
# The segment before one that only a single row needs.
PARENT_IF_LAST = """
    SELECT parent FROM segments
    WHERE id = $1
        AND NOT EXISTS (SELECT 1 FROM segments child WHERE child.parent = segments.id)
        AND (SELECT count(*) FROM responses WHERE responses.segment = segments.id)
            + (SELECT count(*) FROM conversations WHERE conversations.head = segments.id) = 1
"""
# To remove a MB takes SQLite up to 30 ms, since it overwrites what it removes, and all who write wait meanwhile.
STEP_BYTES = 4 * 1024 * 1024
# The column by which a row points at its history; a chat completion has none.
POINTERS = {"response": ("responses", "segment"), "conversation": ("conversations", "head"), "chat": ("chats", "NULL")}


def decoded(body: bytes) -> JsonObject:
    """Return an object that was kept."""
    return msgspec.json.decode(body, type=JsonObject)


def _kept_item(item_id: str, body: bytes) -> KeptItem:
    """Return an item that was kept; an id that was not kept as it is, is in the item itself."""
    item = decoded(body)
    own = item.get("id")
    return KeptItem(id=own if isinstance(own, str) and kept_text(own) == item_id else item_id, body=item)


async def add_segment(
    tx: Transaction, owner: str, parent: int | None, inputs: Sequence[KeptItem], outputs: Sequence[KeptItem] = ()
) -> int | None:
    """Add a segment and return its id; None if there is no such parent of this owner's."""
    items = _rows(owner, inputs, 0, 0) + _rows(owner, outputs, len(inputs), 1)
    size = sum(len(row[-1]) for row in items)
    if parent is None:
        added = await tx.row(int, "INSERT INTO segments (owner, size) VALUES ($1, $2) RETURNING id", owner, size)
    else:
        added = await tx.row(
            int,
            """
            INSERT INTO segments (parent, owner, size)
            SELECT id, owner, $3 FROM segments WHERE id = $1 AND owner = $2 RETURNING id
            """,
            parent,
            owner,
            size,
        )
    if added is not None and items:
        await tx.execute_each(ADD_ITEM, [(added, *row) for row in items])
    return added


async def add_outputs(tx: Transaction, owner: str, segment: int, outputs: Sequence[KeptItem]) -> None:
    """Add what the model made to a segment that holds what it was shown."""
    if not outputs:
        return
    count = await tx.row(int, "SELECT coalesce(max(position) + 1, 0) FROM items WHERE segment = $1", segment)
    rows = _rows(owner, outputs, count or 0, 1)
    await tx.execute_each(ADD_ITEM, [(segment, *row) for row in rows])
    size = sum(len(row[-1]) for row in rows)
    await tx.execute("UPDATE segments SET size = size + $2 WHERE id = $1", segment, size)


async def history(tx: Transaction, segment: int) -> History:
    """Return the items from the beginning to the end of a segment; the outputs are this segment's only."""
    found = await tx.rows(
        _placed,
        f"""
        {CHAIN}
        SELECT chain.depth, items.is_output, items.id, items.body FROM {CHAIN_ITEMS} ORDER BY {OLDEST_FIRST}
        """,
        segment,
    )
    return History(
        segment=segment,
        inputs=tuple(item for is_last_output, item in found if not is_last_output),
        outputs=tuple(item for is_last_output, item in found if is_last_output),
    )


async def items_page(tx: Transaction, owner: str, segment: int, query: ItemQuery, *, which: str = ALL) -> ItemPage:
    """Return a page of the items up to the end of a segment; the bodies of other items are not read."""
    order, reverse = (NEWEST_FIRST, OLDEST_FIRST) if query.newest_first else (OLDEST_FIRST, NEWEST_FIRST)
    values: list[Value] = [segment, query.limit + 1]
    if query.after is not None:
        # Where clients have used an id twice, the page begins after the last of them.
        sql = f"{CHAIN} SELECT chain.depth, items.position FROM {CHAIN_ITEMS} WHERE {IS_NAMED} AND {which}"
        place = await tx.row(_place, f"{sql} ORDER BY {reverse} LIMIT 1", segment, owner, query.after)
        if place is None:
            return ItemPage(knows_after=False)
        further, later = (">", "<") if query.newest_first else ("<", ">")
        which += f" AND (chain.depth {further} $3 OR chain.depth = $3 AND items.position {later} $4)"
        values += place
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
    found = await tx.rows(_kept_item, sql, *values)
    return ItemPage(items=tuple(found[: query.limit]), has_more=len(found) > query.limit)


async def item_named(tx: Transaction, owner: str, segment: int, item_id: str) -> KeptItem | None:
    """Return the latest item of that id up to the end of a segment."""
    sql = f"{CHAIN} SELECT items.id, items.body FROM {CHAIN_ITEMS} WHERE {IS_NAMED} ORDER BY {NEWEST_FIRST} LIMIT 1"
    return await tx.row(_kept_item, sql, segment, owner, item_id)


async def outputs_of(tx: Transaction, segment: int) -> list[KeptItem]:
    """Return what the model made in a segment."""
    sql = "SELECT id, body FROM items WHERE segment = $1 AND is_output = 1 ORDER BY position"
    return await tx.rows(_kept_item, sql, segment)


async def remove_step(tx: Transaction, kind: str, row_id: str) -> tuple[int, int]:
    """Remove a row, and from the end of its history what nothing else needs; return how many rows went, and the bytes.

    None, if the history is so long that it goes in several steps: the row then points at what is left of it.
    """
    table, column = POINTERS[kind]
    segment = await tx.row(_or_none, f"SELECT {column} FROM {table} WHERE id = $1 FOR UPDATE", row_id)
    freed = 0
    while segment is not None:
        if freed >= STEP_BYTES:
            return 0, freed
        await tx.execute(LOCK, [segment])
        parent = await tx.row(_or_none, PARENT_IF_LAST, segment)
        if parent is None:
            break
        # To point at it locks it a little: two who do so could not both lock it wholly then.
        await tx.execute(LOCK, [parent])
        await tx.execute(f"UPDATE {table} SET {column} = $2 WHERE id = $1", row_id, parent)
        freed += sum(await tx.rows(int, REMOVE_UNNEEDED, [segment]))
        segment = parent
    sizes = await tx.rows(int, f"DELETE FROM {table} WHERE id = $1 RETURNING size", row_id)
    if segment is not None:
        freed += sum(await tx.rows(int, REMOVE_UNNEEDED, [segment]))
    return len(sizes), freed + sum(sizes)


def segment_and_size(segment: int | None, size: int) -> tuple[int | None, int]:
    """Return the columns of a row as they are."""
    return segment, size


def _rows(
    owner: str, items: Sequence[KeptItem], first: int, is_output: int
) -> list[tuple[int, int, str, str, str | None, bytes]]:
    return [
        (position, is_output, owner, item.id, _call_id(item), msgspec.json.encode(item.body))
        for position, item in enumerate(items, first)
    ]


def _call_id(item: KeptItem) -> str | None:
    call_id = item.body.get("call_id")
    return call_id if isinstance(call_id, str) else None


def _or_none(value: int | None) -> int | None:
    return value


def _place(depth: int, position: int) -> tuple[int, int]:
    return depth, position


def _placed(depth: int, is_output: int, item_id: str, body: bytes) -> tuple[bool, KeptItem]:
    return depth == 0 and is_output == 1, _kept_item(item_id, body)


class Part:
    """A part of the store: a database, and what time it is."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    async def _remove(self, kind: str, hide: str, row_id: str, owner: str) -> bool:
        """Remove a row and what only it needs; False if there is none.

        It is hidden at first, as something very old that belongs to nobody. The rest takes as many transactions as it
        takes; if the process ends meanwhile, the next pruning goes on with it.
        """

        async def begin(tx: Transaction) -> int | None:
            found = await tx.row(str, f"{hide} WHERE id = $1 AND owner = $2 RETURNING id", row_id, owner)
            return None if found is None else (await remove_step(tx, kind, row_id))[0]

        removed = await self._database.write(begin)
        while removed == 0:
            removed, _ = await self._database.write(lambda tx: remove_step(tx, kind, row_id))
        return removed is not None
