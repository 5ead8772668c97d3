"""Responses. A running one is leased by the gateway that runs it."""

from collections.abc import Mapping, Sequence

import msgspec

from turnbridge.engine.records import CANCELLED, RUNNING, History, ItemPage, ItemQuery, KeptItem, ResponseRecord
from turnbridge.store.conversations import append_segment, extend_conversation
from turnbridge.store.database import NOW, Transaction, storable_text
from turnbridge.store.segments import (
    INPUTS,
    Part,
    add_outputs,
    add_segment,
    decoded,
    history,
    items_page,
    outputs_of,
)
from turnbridge.turn.errors import NotFound
from turnbridge.turn.items import JsonObject

IS_RUNNING = f"status IN ({', '.join(map(repr, sorted(RUNNING)))})"
LEASE_HAS_EXPIRED = f"lease_until < {NOW}"
RECORD = "id, owner, created_at, status, background, body"
SEGMENT = "SELECT segment FROM responses WHERE id = $1 AND owner = $2"
INSERT = f"""
    INSERT INTO responses (id, owner, created_at, status, background, segment, lease_until, size, body)
    VALUES ($1, $2, $3, $4, $5, $6, {NOW} + $7, $8, $9)
"""
FINISH = f"""
    UPDATE responses SET status = $3, body = $4, events = $5, size = $6, lease_until = NULL
    WHERE id = $1 AND owner = $2 AND {IS_RUNNING}
"""
HIDE = f"UPDATE responses SET owner = '', created_at = 0, status = '{CANCELLED}'"


class Responses(Part):
    """The methods of `Store` for responses."""

    async def add_response(
        self,
        record: ResponseRecord,
        *,
        continues: int | None,
        inputs: Sequence[KeptItem],
        outputs: Sequence[KeptItem] = (),
        conversation: str | None = None,
        lease_s: float | None = None,
    ) -> None:
        body = msgspec.json.encode(record.body)
        columns = (record.id, record.owner, record.created_at, record.status, int(record.background))
        now = int(self._now())

        async def add(tx: Transaction) -> None:
            if conversation is None:
                segment = await add_segment(tx, record.owner, continues, inputs, outputs)
            else:
                segment = await extend_conversation(tx, record.owner, conversation, inputs, outputs, now=now)
            if segment is None:
                raise NotFound("What this response continues was deleted meanwhile, so it is not kept.")
            await tx.execute(INSERT, *columns, segment, lease_s, len(body), body)

        await self._database.write(add)

    async def finish_response(
        self,
        record: ResponseRecord,
        *,
        outputs: Sequence[KeptItem] = (),
        events: bytes | None = None,
        conversation: str | None = None,
    ) -> bool:
        body = msgspec.json.encode(record.body)
        values = (record.id, record.owner, record.status, body, events, len(body) + len(events or b""))

        async def finish(tx: Transaction) -> bool:
            segment = await tx.row(int, f"{FINISH} RETURNING segment", *values)
            if segment is None:
                return False
            await add_outputs(tx, record.owner, segment, outputs)
            if conversation is not None:
                await append_segment(tx, record.owner, conversation, segment, now=int(self._now()))
            return True

        return await self._database.write(finish)

    async def end_lost_response(self, record: ResponseRecord) -> bool:
        body = msgspec.json.encode(record.body)
        sql = f"{FINISH} AND {LEASE_HAS_EXPIRED} RETURNING id"
        values = (record.id, record.owner, record.status, body, None, len(body))
        return await self._database.write(lambda tx: tx.row(str, sql, *values)) is not None

    async def response(self, owner: str, response_id: str) -> ResponseRecord | None:
        sql = f"SELECT {RECORD} FROM responses WHERE id = $1 AND owner = $2"
        return await self._database.read(lambda tx: tx.row(_record, sql, response_id, owner))

    async def response_events(self, owner: str, response_id: str) -> bytes | None:
        sql = "SELECT events FROM responses WHERE id = $1 AND owner = $2 AND events IS NOT NULL"
        return await self._database.read(lambda tx: tx.row(bytes, sql, response_id, owner))

    async def delete_response(self, owner: str, response_id: str) -> bool:
        return await self._remove("response", HIDE, response_id, owner)

    async def response_history(self, owner: str, response_id: str) -> History | None:
        return await self._read_segment(SEGMENT, response_id, owner, history)

    async def response_inputs(self, owner: str, response_id: str, query: ItemQuery) -> ItemPage | None:
        return await self._read_segment(
            SEGMENT, response_id, owner, lambda tx, segment: items_page(tx, owner, segment, query, which=INPUTS)
        )

    async def response_outputs(self, owner: str, response_id: str) -> Sequence[KeptItem]:
        return await self._read_segment(SEGMENT, response_id, owner, outputs_of) or []

    async def items(self, owner: str, ids: Sequence[str]) -> Mapping[str, JsonObject]:
        sql = "SELECT id, body FROM items WHERE owner = $1 AND id = ANY($2) ORDER BY segment, position"
        found = dict(await self._database.read(lambda tx: tx.rows(_with_body, sql, owner, ids)))
        return {item_id: found[storable_text(item_id)] for item_id in ids if storable_text(item_id) in found}

    async def answers_with_calls(self, owner: str, call_ids: Sequence[str]) -> Sequence[tuple[JsonObject, ...]]:
        sql = """
            SELECT segment, body FROM items
            WHERE is_output = 1 AND segment IN (
                SELECT segment FROM items
                WHERE owner = $1 AND is_output = 1 AND call_id IS NOT NULL AND call_id = ANY($2)
            )
            ORDER BY segment, position
        """
        answers: dict[int | str, list[JsonObject]] = {}
        for segment, body in await self._database.read(lambda tx: tx.rows(_with_body, sql, owner, call_ids)):
            answers.setdefault(segment, []).append(body)
        return [tuple(items) for items in answers.values()]

    async def extend_leases(self, ids: Sequence[str], lease_s: float) -> set[str]:
        sql = f"UPDATE responses SET lease_until = {NOW} + $2 WHERE id = ANY($1) AND {IS_RUNNING} RETURNING id"
        return set(await self._database.write(lambda tx: tx.rows(str, sql, ids, lease_s)))

    async def lost_responses(self) -> Sequence[ResponseRecord]:
        sql = f"SELECT {RECORD} FROM responses WHERE {LEASE_HAS_EXPIRED} AND {IS_RUNNING} ORDER BY created_at, id"
        return await self._database.read(lambda tx: tx.rows(_record, sql))


def _record(response_id: str, owner: str, created_at: int, status: str, background: int, body: bytes) -> ResponseRecord:
    return ResponseRecord(
        id=response_id,
        owner=owner,
        created_at=created_at,
        status=status,
        background=background == 1,
        body=decoded(body),
    )


def _with_body(key: str | int, body: bytes) -> tuple[str | int, JsonObject]:
    return key, decoded(body)
