"""Conversations: each one points at the last segment of its history."""

from collections.abc import Sequence

import msgspec

from turnbridge.engine.records import ConversationRecord, History, ItemPage, ItemQuery, KeptItem
from turnbridge.store.database import Transaction
from turnbridge.store.segments import (
    CHAIN,
    Part,
    add_segment,
    decoded,
    history,
    item_named,
    items_page,
    segment_and_size,
)
from turnbridge.turn.items import JsonObject

HEAD = "SELECT head FROM conversations WHERE id = $1 AND owner = $2"
LOCK = f"{HEAD} FOR UPDATE"
HIDE = "UPDATE conversations SET owner = '', changed_at = 0"
TOUCH = "UPDATE conversations SET changed_at = $3 WHERE id = $1 AND owner = $2 RETURNING head"


class Conversations(Part):
    """The conversations of a database."""

    async def add_conversation(self, record: ConversationRecord, items: Sequence[KeptItem]) -> None:
        """Keep a conversation with its first items."""
        metadata = msgspec.json.encode(record.metadata)

        async def add(tx: Transaction) -> None:
            head = await add_segment(tx, record.owner, None, items)
            await tx.execute(
                """
                INSERT INTO conversations (id, owner, created_at, changed_at, head, size, metadata)
                VALUES ($1, $2, $3, $4, $5, $6, $7)
                """,
                record.id,
                record.owner,
                record.created_at,
                record.created_at,
                head,
                len(metadata),
                metadata,
            )

        await self._database.write(add)

    async def conversation(self, owner: str, conversation_id: str) -> ConversationRecord | None:
        """Return a conversation."""
        sql = "SELECT id, owner, created_at, metadata FROM conversations WHERE id = $1 AND owner = $2"
        return await self._database.read(lambda tx: tx.row(_record, sql, conversation_id, owner))

    async def update_conversation(self, owner: str, conversation_id: str, metadata: JsonObject) -> bool:
        """Replace the metadata; False if there is no such conversation."""
        body = msgspec.json.encode(metadata)
        sql = """
            UPDATE conversations SET metadata = $3, size = $4, changed_at = $5
            WHERE id = $1 AND owner = $2 RETURNING id
        """
        now = int(self._now())
        updated = await self._database.write(lambda tx: tx.row(str, sql, conversation_id, owner, body, len(body), now))
        return updated is not None

    async def delete_conversation(self, owner: str, conversation_id: str) -> bool:
        """Remove a conversation, and those of its items that no response needs; False if there is none."""
        return await self._remove("conversation", HIDE, conversation_id, owner)

    async def conversation_history(self, owner: str, conversation_id: str) -> History | None:
        """Return all items of a conversation, as inputs."""

        async def read(tx: Transaction) -> History | None:
            head = await tx.row(int, HEAD, conversation_id, owner)
            return None if head is None else await history(tx, head)

        found = await self._database.read(read)
        return found and History(segment=found.segment, inputs=found.inputs + found.outputs)

    async def conversation_items(self, owner: str, conversation_id: str, query: ItemQuery) -> ItemPage | None:
        """Return a page of a conversation's items; None if there is no such conversation."""

        async def read(tx: Transaction) -> ItemPage | None:
            head = await tx.row(int, HEAD, conversation_id, owner)
            return None if head is None else await items_page(tx, owner, head, query)

        return await self._database.read(read)

    async def conversation_item(self, owner: str, conversation_id: str, item_id: str) -> KeptItem | None:
        """Return an item of a conversation; the latest, where clients have used an id twice."""

        async def read(tx: Transaction) -> KeptItem | None:
            head = await tx.row(int, HEAD, conversation_id, owner)
            return None if head is None else await item_named(tx, owner, head, item_id)

        return await self._database.read(read)

    async def append_items(self, owner: str, conversation_id: str, items: Sequence[KeptItem]) -> bool:
        """Add items at the end; False if there is no such conversation."""
        now = int(self._now())
        added = await self._database.write(
            lambda tx: extend_conversation(tx, owner, conversation_id, items, (), now=now)
        )
        return added is not None

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Remove an item from a conversation, and from every history that shares it; False if there is none."""
        now = int(self._now())

        async def delete(tx: Transaction) -> bool:
            head = await tx.row(int, LOCK, conversation_id, owner)
            sql = """
                DELETE FROM items WHERE id = $2 AND segment IN (SELECT id FROM chain)
                RETURNING segment, length(body)
            """
            removed = [] if head is None else await tx.rows(segment_and_size, CHAIN + sql, head, item_id)
            for segment, size in removed:
                await tx.execute("UPDATE segments SET size = size - $2 WHERE id = $1", segment, size)
            if removed:
                await tx.execute(TOUCH, conversation_id, owner, now)
            return bool(removed)

        return await self._database.write(delete)


async def append_segment(tx: Transaction, owner: str, conversation_id: str, segment: int, *, now: int) -> None:
    """Move a segment that stands beside a conversation to its end; leave it alone if there is no such conversation.

    A conversation only grows at its end, so the segment that it stood on stays a part of it, and no ring can close.
    """
    head = await tx.row(int, TOUCH, conversation_id, owner, now)
    if head is not None:
        await tx.execute("UPDATE segments SET parent = $2 WHERE id = $1", segment, head)
        await tx.execute("UPDATE conversations SET head = $2 WHERE id = $1", conversation_id, segment)


async def extend_conversation(
    tx: Transaction,
    owner: str,
    conversation_id: str,
    inputs: Sequence[KeptItem],
    outputs: Sequence[KeptItem],
    *,
    now: int,
) -> int | None:
    """Add a segment at the end of a conversation and return it; None if there is no such conversation.

    The row is changed before its head is followed, so that two who add at once do so one after the other.
    """
    head = await tx.row(int, TOUCH, conversation_id, owner, now)
    if head is None:
        return None
    added = await add_segment(tx, owner, head, inputs, outputs)
    await tx.execute("UPDATE conversations SET head = $2 WHERE id = $1", conversation_id, added)
    return added


def _record(conversation_id: str, owner: str, created_at: int, metadata: bytes) -> ConversationRecord:
    return ConversationRecord(id=conversation_id, owner=owner, created_at=created_at, metadata=decoded(metadata))
