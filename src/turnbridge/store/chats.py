"""Stored chat completions."""

from collections.abc import Mapping, Sequence

import msgspec

from turnbridge.engine.records import ChatQuery, ChatRecord
from turnbridge.store.database import Database, Transaction, Value
from turnbridge.store.segments import decoded
from turnbridge.store.shared_runs import FORGET_LEGS_OF_CHAT
from turnbridge.turn.items import JsonObject

RECORD = "id, owner, created_at, model, metadata, body, messages"
INSERT = """
    INSERT INTO chats (id, owner, created_at, model, size, metadata, body, messages)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING number
"""
UPDATE = """
    UPDATE chats SET metadata = $3, body = $4, size = $5 + length(messages)
        + (SELECT COALESCE(sum(length(body)), 0) FROM chat_legs WHERE chat = chats.number)
    WHERE id = $1 AND owner = $2 RETURNING number
"""


class Chats:
    """The methods of `Store` for chat completions."""

    _database: Database

    async def add_chat(self, record: ChatRecord, legs: Mapping[str, Sequence[JsonObject]] | None = None) -> None:
        bodies = [msgspec.json.encode(body) for body in (record.metadata, record.body, record.messages)]
        said = {call_id: msgspec.json.encode(items) for call_id, items in (legs or {}).items()}
        size = sum(map(len, (*bodies, *said.values())))
        values: list[Value] = [record.id, record.owner, record.created_at, record.model, size, *bodies]

        async def add(tx: Transaction) -> None:
            number = await tx.row(int, INSERT, *values)
            await _add_metadata(tx, number, record.metadata)
            if said:
                rows = [(number, record.owner, call_id, body) for call_id, body in said.items()]
                await tx.execute_each(
                    "INSERT INTO chat_legs (chat, owner, call_id, body) VALUES ($1, $2, $3, $4)", rows
                )

        await self._database.write(add)

    async def chat(self, owner: str, chat_id: str) -> ChatRecord | None:
        sql = f"SELECT {RECORD} FROM chats WHERE id = $1 AND owner = $2"
        return await self._database.read(lambda tx: tx.row(_record, sql, chat_id, owner))

    async def chats(self, owner: str, query: ChatQuery) -> tuple[Sequence[ChatRecord], bool]:
        sql, values = _page(owner, query)
        found = await self._database.read(lambda tx: tx.rows(_record, sql, *values))
        return found[: query.limit], len(found) > query.limit

    async def update_chat(self, record: ChatRecord) -> bool:
        bodies = [msgspec.json.encode(body) for body in (record.metadata, record.body)]

        async def update(tx: Transaction) -> bool:
            number = await tx.row(int, UPDATE, record.id, record.owner, *bodies, sum(map(len, bodies)))
            if number is None:
                return False
            await tx.execute("DELETE FROM chat_metadata WHERE chat = $1", number)
            await _add_metadata(tx, number, record.metadata)
            return True

        return await self._database.write(update)

    async def _legs(self, owner: str, call_ids: Sequence[str]) -> list[tuple[JsonObject, ...]]:
        """Return what the model said around these calls in stored completions and responses."""
        wanted = "WHERE owner = $1 AND call_id = ANY($2)"
        sql = f"""
            SELECT body FROM (
                SELECT 0 AS kind, chat AS place, call_id, body FROM chat_legs {wanted}
                UNION ALL SELECT 1, segment, call_id, body FROM response_legs {wanted}
            ) AS legs ORDER BY kind, place, call_id
        """
        bodies = await self._database.read(lambda tx: tx.rows(bytes, sql, owner, call_ids))
        return [tuple(msgspec.json.decode(body, type=list[JsonObject])) for body in bodies]

    async def delete_chat(self, owner: str, chat_id: str) -> bool:
        async def delete(tx: Transaction) -> bool:
            await tx.execute(FORGET_LEGS_OF_CHAT, chat_id, owner)
            sql = "DELETE FROM chats WHERE id = $1 AND owner = $2 RETURNING number"
            return await tx.row(int, sql, chat_id, owner) is not None

        return await self._database.write(delete)


async def _add_metadata(tx: Transaction, number: int | None, metadata: Mapping[str, str]) -> None:
    if metadata:
        rows = [(number, name, value) for name, value in metadata.items()]
        await tx.execute_each("INSERT INTO chat_metadata (chat, name, value) VALUES ($1, $2, $3)", rows)


def _page(owner: str, query: ChatQuery) -> tuple[str, list[Value]]:
    """Return the statement and its values for a page and one row more, which tells whether there is another page."""
    values: list[Value] = [owner]

    def parameter(value: Value) -> str:
        values.append(value)
        return f"${len(values)}"

    conditions = ["owner = $1"]
    if query.model is not None:
        conditions.append(f"model = {parameter(query.model)}")
    for name, value in query.metadata.items():
        conditions.append(
            "EXISTS (SELECT 1 FROM chat_metadata WHERE chat = chats.number "
            f"AND name = {parameter(name)} AND value = {parameter(value)})"
        )
    if query.after is not None:
        comparison = "<" if query.newest_first else ">"
        last = f"(SELECT number FROM chats WHERE owner = $1 AND id = {parameter(query.after)})"
        conditions.append(f"number {comparison} {last}")
    order = "DESC" if query.newest_first else "ASC"
    limit = parameter(query.limit + 1)
    return f"SELECT {RECORD} FROM chats WHERE {' AND '.join(conditions)} ORDER BY number {order} LIMIT {limit}", values


def _record(
    chat_id: str, owner: str, created_at: int, model: str, metadata: bytes, body: bytes, messages: bytes
) -> ChatRecord:
    return ChatRecord(
        id=chat_id,
        owner=owner,
        created_at=created_at,
        model=model,
        metadata=msgspec.json.decode(metadata, type=dict[str, str]),
        body=decoded(body),
        messages=tuple(msgspec.json.decode(messages, type=list[JsonObject])),
    )
