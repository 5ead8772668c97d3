"""Everything that is kept, as JSON."""

import base64
from collections.abc import AsyncIterator, Callable
from functools import partial

import msgspec

from turnbridge.store.database import Transaction
from turnbridge.store.segments import Part, decoded
from turnbridge.turn.items import Json, JsonObject

# Rows that are in memory at once; a row may be as large as a request.
PAGE = 50

RESPONSES = """
    SELECT id, owner, created_at, status, background, segment, body, events FROM responses
    WHERE id > $1 ORDER BY id LIMIT $2
"""
CONVERSATIONS = """
    SELECT id, owner, created_at, head, metadata FROM conversations WHERE id > $1 ORDER BY id LIMIT $2
"""
CHATS = """
    SELECT id, owner, created_at, model, metadata, body, messages FROM chats WHERE id > $1 ORDER BY id LIMIT $2
"""
SEGMENTS = "SELECT id, parent, owner FROM segments WHERE id > $1 ORDER BY id LIMIT $2"
ITEMS = "SELECT segment, id, is_output, body FROM items WHERE segment = ANY($1) ORDER BY segment, position"


class Export(Part):
    """The rows of a database, to be read elsewhere."""

    async def export(self) -> AsyncIterator[JsonObject]:
        """Yield everything, one object at a time, each with its kind and owner.

        Histories are as they are kept: a response or a conversation names its last segment, and each segment its
        items and the segment before it. Pages are read one by one, so changes made meanwhile may be in it or not.
        """
        for make, sql in ((_response, RESPONSES), (_conversation, CONVERSATIONS), (_chat, CHATS)):
            async for line in self._lines(make, sql):
                yield line
        last = 0
        while segments := await self._database.read(partial(_segments, last)):
            for number, line in segments.items():
                yield line
                last = number

    async def _lines(self, make: Callable[..., JsonObject], sql: str) -> AsyncIterator[JsonObject]:
        last = ""
        while page := await self._database.read(partial(_page, make, sql, last)):
            for line in page:
                yield line
                last = str(line["id"])


async def _page(make: Callable[..., JsonObject], sql: str, last: str, tx: Transaction) -> list[JsonObject]:
    return await tx.rows(make, sql, last, PAGE)


async def _segments(last: int, tx: Transaction) -> dict[int, JsonObject]:
    """Return the segments after the last one, by id, with their items."""
    found = {number: (line, items) for number, line, items in await tx.rows(_segment, SEGMENTS, last, PAGE)}
    for number, item in await tx.rows(_item, ITEMS, list(found)):
        found[number][1].append(item)
    return {number: line for number, (line, _) in found.items()}


def _segment(number: int, parent: int | None, owner: str) -> tuple[int, JsonObject, list[Json]]:
    items: list[Json] = []
    return number, {"kind": "segment", "id": number, "owner": owner, "parent": parent, "items": items}, items


def _item(segment: int, item_id: str, is_output: int, body: bytes) -> tuple[int, JsonObject]:
    return segment, {"id": item_id, "output": is_output == 1, "body": decoded(body)}


def _response(
    response_id: str,
    owner: str,
    created_at: int,
    status: str,
    background: int,
    segment: int,
    body: bytes,
    events: bytes | None,
) -> JsonObject:
    return {
        "kind": "response",
        "id": response_id,
        "owner": owner,
        "created_at": created_at,
        "status": status,
        "background": background == 1,
        "segment": segment,
        "body": decoded(body),
        "events": None if events is None else base64.b64encode(events).decode(),
    }


def _conversation(conversation_id: str, owner: str, created_at: int, head: int, metadata: bytes) -> JsonObject:
    return {
        "kind": "conversation",
        "id": conversation_id,
        "owner": owner,
        "created_at": created_at,
        "segment": head,
        "metadata": decoded(metadata),
    }


def _chat(
    chat_id: str, owner: str, created_at: int, model: str, metadata: bytes, body: bytes, messages: bytes
) -> JsonObject:
    return {
        "kind": "chat",
        "id": chat_id,
        "owner": owner,
        "created_at": created_at,
        "model": model,
        "metadata": decoded(metadata),
        "body": decoded(body),
        "messages": msgspec.json.decode(messages),
    }
