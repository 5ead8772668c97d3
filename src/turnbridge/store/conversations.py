"""Conversations: each points at the last segment of its history."""

from collections.abc import Sequence

import msgspec

from turnbridge.engine.records import ConversationRecord, History, ItemPage, ItemQuery, KeptItem
from turnbridge.store.database import Transaction
from turnbridge.store.segments import CHAIN, Part, add_segment, decoded, history, items_page, latest_item
from turnbridge.turn.items import JsonObject

HEAD = "SELECT head FROM conversations WHERE id = $1 AND owner = $2"
HIDE = "UPDATE conversations SET owner = '', changed_at = 0"
TOUCH = "UPDATE conversations SET changed_at = $3 WHERE id = $1 AND owner = $2 RETURNING head"
SET_HEAD = "UPDATE conversations SET head = $2 WHERE id = $1"
INSERT = """
    INSERT INTO conversations (id, owner, created_at, changed_at, head, size, metadata)
    VALUES ($1, $2, $3, $3, $4, $5, $6)
"""


class Conversations(Part):
    """The methods of `Store` for conversations."""

    async def add_conversation(self, record: ConversationRecord, items: Sequence[KeptItem]) -> None:
        metadata = msgspec.json.encode(record.metadata)

        async def add(tx: Transaction) -> None:
            head = await add_segment(tx, record.owner, None, items)
            await tx.execute(INSERT, record.id, record.owner, record.created_at, head, len(metadata), metadata)

        await self._database.write(add)

    async def conversation(self, owner: str, conversation_id: str) -> ConversationRecord | None:
        sql = "SELECT id, owner, created_at, metadata FROM conversations WHERE id = $1 AND owner = $2"
        return await self._database.read(lambda tx: tx.row(_record, sql, conversation_id, owner))

    async def update_conversation(self, owner: str, conversation_id: str, metadata: JsonObject) -> bool:
        body = msgspec.json.encode(metadata)
        sql = """
            UPDATE conversations SET metadata = $3, size = $4, changed_at = $5
            WHERE id = $1 AND owner = $2 RETURNING id
        """
        values = (conversation_id, owner, body, len(body), int(self._now()))
        return await self._database.write(lambda tx: tx.row(str, sql, *values)) is not None

    async def delete_conversation(self, owner: str, conversation_id: str) -> bool:
        return await self._remove("conversation", HIDE, conversation_id, owner)

    async def conversation_history(self, owner: str, conversation_id: str) -> History | None:
        found = await self._read_segment(HEAD, conversation_id, owner, history)
        return found and History(segment=found.segment, inputs=found.inputs + found.outputs)

    async def conversation_items(self, owner: str, conversation_id: str, query: ItemQuery) -> ItemPage | None:
        return await self._read_segment(
            HEAD, conversation_id, owner, lambda tx, head: items_page(tx, owner, head, query)
        )

    async def conversation_item(self, owner: str, conversation_id: str, item_id: str) -> KeptItem | None:
        return await self._read_segment(
            HEAD, conversation_id, owner, lambda tx, head: latest_item(tx, owner, head, item_id)
        )

    async def append_items(self, owner: str, conversation_id: str, items: Sequence[KeptItem]) -> bool:
        now = int(self._now())
        added = await self._database.write(
            lambda tx: extend_conversation(tx, owner, conversation_id, items, (), now=now)
        )
        return added is not None

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        now = int(self._now())
        sql = f"""
            {CHAIN}
            DELETE FROM items WHERE id = $2 AND segment IN (SELECT id FROM chain) RETURNING segment, length(body)
        """

        async def delete(tx: Transaction) -> bool:
            head = await tx.row(int, f"{HEAD} FOR UPDATE", conversation_id, owner)
            removed = [] if head is None else await tx.rows(lambda *row: row, sql, head, item_id)
            for segment, size in removed:
                await tx.execute("UPDATE segments SET size = size - $2 WHERE id = $1", segment, size)
            if removed:
                await tx.execute(TOUCH, conversation_id, owner, now)
            return bool(removed)

        return await self._database.write(delete)


async def append_segment(tx: Transaction, owner: str, conversation_id: str, segment: int, *, now: int) -> None:
    """Move the segment of a background response to the end of its conversation, if that still exists.

    A conversation only grows at its end, so the segment's old parent is part of it, and no cycle can arise.
    """
    head = await tx.row(int, TOUCH, conversation_id, owner, now)
    if head is not None:
        await tx.execute("UPDATE segments SET parent = $2 WHERE id = $1", segment, head)
        await tx.execute(SET_HEAD, conversation_id, segment)


async def extend_conversation(
    tx: Transaction,
    owner: str,
    conversation_id: str,
    inputs: Sequence[KeptItem],
    outputs: Sequence[KeptItem],
    *,
    now: int,
) -> int | None:
    """Append a segment to a conversation and return it; None if the conversation does not exist.

    The UPDATE locks the row before its head is read, so that concurrent appends are serialised.
    """
    head = await tx.row(int, TOUCH, conversation_id, owner, now)
    if head is None:
        return None
    added = await add_segment(tx, owner, head, inputs, outputs)
    await tx.execute(SET_HEAD, conversation_id, added)
    return added


def _record(conversation_id: str, owner: str, created_at: int, metadata: bytes) -> ConversationRecord:
    return ConversationRecord(id=conversation_id, owner=owner, created_at=created_at, metadata=decoded(metadata))
