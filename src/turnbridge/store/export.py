"""Export of all records as JSON."""

import base64
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

import msgspec

from turnbridge.store.database import Transaction
from turnbridge.store.segments import Part
from turnbridge.turn.items import Json, JsonObject

# Rows in memory at once; a row may be as large as a request.
PAGE = 50

# The columns of each kind; its table is the plural of its name.
COLUMNS = {
    "response": ("id", "owner", "created_at", "status", "background", "segment", "body", "events"),
    "conversation": ("id", "owner", "created_at", "head AS segment", "metadata"),
    "chat": ("id", "owner", "created_at", "model", "metadata", "body", "messages"),
    "segment": ("id", "owner", "parent"),
}
DECODE: Mapping[str, Callable[..., Json]] = {
    "background": bool,
    "body": msgspec.json.decode,
    "metadata": msgspec.json.decode,
    "messages": msgspec.json.decode,
    "events": lambda events: None if events is None else base64.b64encode(events).decode(),
}
ITEMS = "SELECT segment, id, is_output, body FROM items WHERE segment = ANY($1) ORDER BY segment, position"


class Export(Part):
    """The method for exporting everything."""

    async def export(self) -> AsyncIterator[JsonObject]:
        """Yield every record with its kind and owner.

        Histories are exported as they are stored: a response or conversation names its last segment, and a segment its
        items and its parent. Each page has its own snapshot, so concurrent changes may be in the export or not.
        """
        for kind in COLUMNS:
            last: str | int = 0 if kind == "segment" else ""
            while page := await self._database.read(partial(_page, kind, last)):
                for record in page.values():
                    yield record
                *_, last = page


async def _page(kind: str, last: str | int, tx: Transaction) -> dict[str | int, JsonObject]:
    """Return the next records by their ids."""
    columns = COLUMNS[kind]
    names = [column.rpartition(" ")[2] for column in columns]
    sql = f"SELECT {', '.join(columns)} FROM {kind}s WHERE id > $1 ORDER BY id LIMIT $2"
    page: dict[str | int, JsonObject] = {}
    for row in await tx.rows(lambda *row: row, sql, last, PAGE):
        values = {
            name: DECODE[name](value) if name in DECODE else value for name, value in zip(names, row, strict=True)
        }
        page[row[0]] = {"kind": kind, **values}
    if kind == "segment":
        items: dict[str | int, list[Json]] = {}
        for segment, item_id, is_output, body in await tx.rows(lambda *row: row, ITEMS, list(page)):
            item = {"id": item_id, "output": is_output == 1, "body": msgspec.json.decode(body)}
            items.setdefault(segment, []).append(item)
        return {number: {**record, "items": items.get(number, [])} for number, record in page.items()}
    return page
