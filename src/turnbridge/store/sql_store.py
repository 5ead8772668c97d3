"""The store in a SQL database: responses and conversations; the modules of the other kinds have the rest.

A response or conversation points at the last segment of its history. A running response is leased by the gateway that
runs it.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from turnbridge.engine.records import (
    CANCELLED,
    NO_LEGS,
    ConversationRecord,
    History,
    ItemPage,
    ItemQuery,
    KeptItem,
    Legs,
    ResponseRecord,
)
from turnbridge.store import segments
from turnbridge.store.chats import Chats
from turnbridge.store.database import (
    NOW,
    BreakerTiming,
    Database,
    GuardedDatabase,
    Transaction,
    UnboundedDatabase,
    storable_text,
)
from turnbridge.store.files import Files
from turnbridge.store.keys import ClientKeys
from turnbridge.store.maintenance import IS_RUNNING, Maintenance
from turnbridge.store.replicas import Replicas
from turnbridge.store.schema import open_database
from turnbridge.store.shared_runs import FORGET_LEGS, SharedRunTables
from turnbridge.store.usage import UsageTable
from turnbridge.turn.errors import NotFound
from turnbridge.turn.items import JsonObject

T = TypeVar("T")

RESPONSE = "SELECT id, owner, created_at, status, background, body FROM responses"
SEGMENT = "SELECT segment FROM responses WHERE id = $1 AND owner = $2"
ADD_RESPONSE = f"""
    INSERT INTO responses (id, owner, created_at, status, background, segment, lease_until, size, body, maker)
    VALUES ($1, $2, $3, $4, $5, $6, {NOW} + $7, $8, $9, $10)
"""
FINISH = f"""
    UPDATE responses SET status = $3, body = $4, events = $5, size = $6, lease_until = NULL
    WHERE id = $1 AND owner = $2 AND {IS_RUNNING} AND (CAST($7 AS TEXT) IS NULL OR maker = $7)
    RETURNING segment
"""
TAKE_OVER = f"""
    UPDATE responses SET maker = $3, lease_until = {NOW} + $4
    WHERE id = $1 AND owner = $2 AND {IS_RUNNING} AND lease_until < {NOW} RETURNING id
"""
EXTEND_LEASES = f"""
    UPDATE responses SET lease_until = {NOW} + $2
    WHERE id = ANY($1) AND {IS_RUNNING} AND (CAST($3 AS TEXT) IS NULL OR maker = $3) RETURNING id
"""
HIDE_RESPONSE = f"UPDATE responses SET owner = '', created_at = 0, status = '{CANCELLED}'"

ADD_CONVERSATION = """
    INSERT INTO conversations (id, owner, created_at, changed_at, head, size, metadata)
    VALUES ($1, $2, $3, $3, $4, $5, $6)
"""
UPDATE_CONVERSATION = """
    UPDATE conversations SET metadata = $3, size = $4, changed_at = $5 WHERE id = $1 AND owner = $2 RETURNING id
"""
HEAD = "SELECT head FROM conversations WHERE id = $1 AND owner = $2"
# Before a conversation is extended: the UPDATE locks its row, so that concurrent appends are serialised.
TOUCH = "UPDATE conversations SET changed_at = $3 WHERE id = $1 AND owner = $2 RETURNING head"
SET_HEAD = "UPDATE conversations SET head = $2 WHERE id = $1"
HIDE_CONVERSATION = "UPDATE conversations SET owner = '', changed_at = 0"
DELETE_ITEM = f"""
    {segments.CHAIN}
    DELETE FROM items WHERE id = $2 AND segment IN (SELECT id FROM chain)
    RETURNING segment, length(body) + coalesce(length(seen), 0)
"""
DELETE_LEGS = "DELETE FROM response_legs WHERE segment = $1 RETURNING length(body)"


class SqlStore(Chats, Files, ClientKeys, UsageTable, Replicas, SharedRunTables, Maintenance):
    """The engine's stores, and their maintenance."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        super().__init__(database)
        self._now = now

    def for_maintenance(self) -> "SqlStore":
        """Return the same store without the timeout of requests."""
        guarded = self._database
        return SqlStore(UnboundedDatabase(guarded), self._now) if isinstance(guarded, GuardedDatabase) else self

    async def aclose(self) -> None:
        await self._database.aclose()

    async def add_response(
        self,
        record: ResponseRecord,
        *,
        continues: int | None,
        inputs: Sequence[KeptItem],
        outputs: Sequence[KeptItem] = (),
        legs: Legs = NO_LEGS,
        conversation: str | None = None,
        lease_s: float | None = None,
        maker: str | None = None,
    ) -> None:
        body = msgspec.json.encode(record.body)
        columns = (record.id, record.owner, record.created_at, record.status, int(record.background))

        async def add(tx: Transaction) -> None:
            if conversation is None:
                segment = await segments.add_segment(tx, record.owner, continues, inputs, outputs)
            else:
                segment = await self._extend(tx, record.owner, conversation, inputs, outputs)
            if segment is None:
                raise NotFound("What this response continues was deleted meanwhile, so it is not kept.")
            await tx.execute(ADD_RESPONSE, *columns, segment, lease_s, len(body), body, maker)
            await segments.add_legs(tx, record.owner, segment, legs)

        await self._database.write(add)

    async def finish_response(
        self,
        record: ResponseRecord,
        *,
        outputs: Sequence[KeptItem] = (),
        legs: Legs = NO_LEGS,
        events: bytes | None = None,
        conversation: str | None = None,
        maker: str | None = None,
    ) -> bool:
        body = msgspec.json.encode(record.body)
        values = (record.id, record.owner, record.status, body, events, len(body) + len(events or b""), maker)

        async def finish(tx: Transaction) -> bool:
            segment = await tx.row(int, FINISH, *values)
            if segment is None:
                return False
            await segments.add_outputs(tx, record.owner, segment, outputs)
            await segments.add_legs(tx, record.owner, segment, legs)
            if conversation is None:
                return True
            head = await tx.row(int, TOUCH, conversation, record.owner, int(self._now()))
            # A conversation only grows at its end: the segment's old parent is part of it, and no cycle can arise.
            if head is not None:
                await tx.execute("UPDATE segments SET parent = $2 WHERE id = $1", segment, head)
                await tx.execute(SET_HEAD, conversation, segment)
            return True

        return await self._database.write(finish)

    async def take_over(self, record: ResponseRecord, maker: str, lease_s: float) -> bool:
        values = (record.id, record.owner, maker, lease_s)
        return await self._database.write(lambda tx: tx.row(str, TAKE_OVER, *values)) is not None

    async def response(self, owner: str, response_id: str) -> ResponseRecord | None:
        sql = f"{RESPONSE} WHERE id = $1 AND owner = $2"
        return await self._database.read(lambda tx: tx.row(_response, sql, response_id, owner))

    async def response_events(self, owner: str, response_id: str) -> bytes | None:
        sql = "SELECT events FROM responses WHERE id = $1 AND owner = $2 AND events IS NOT NULL"
        return await self._database.read(lambda tx: tx.row(bytes, sql, response_id, owner))

    async def delete_response(self, owner: str, response_id: str) -> bool:
        return await self._delete("response", HIDE_RESPONSE, response_id, owner)

    async def response_history(self, owner: str, response_id: str) -> History | None:
        return await self._read_segment(SEGMENT, response_id, owner, segments.history)

    async def response_inputs(self, owner: str, response_id: str, query: ItemQuery) -> ItemPage | None:
        page = partial(segments.items_page, owner=owner, query=query, which=segments.INPUTS)
        return await self._read_segment(SEGMENT, response_id, owner, page)

    async def response_outputs(self, owner: str, response_id: str) -> Sequence[KeptItem]:
        return await self._read_segment(SEGMENT, response_id, owner, segments.outputs_of) or []

    async def items(self, owner: str, ids: Sequence[str]) -> Mapping[str, KeptItem]:
        sql = "SELECT id, body, seen FROM items WHERE owner = $1 AND id = ANY($2) ORDER BY segment, position"

        def by_id(item_id: str, *columns: bytes) -> tuple[str, KeptItem]:
            return item_id, segments.kept_item(item_id, *columns)

        found = dict(await self._database.read(lambda tx: tx.rows(by_id, sql, owner, ids)))
        return {item_id: found[storable_text(item_id)] for item_id in ids if storable_text(item_id) in found}

    async def keep_seen(self, owner: str, items: Sequence[KeptItem]) -> None:
        async def add(tx: Transaction) -> None:
            for item in items:
                await segments.add_seen(tx, owner, item)

        await self._database.write(add)

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
        return [*map(tuple, answers.values()), *await self._legs(owner, call_ids)]

    async def extend_leases(self, ids: Sequence[str], lease_s: float, maker: str | None = None) -> set[str]:
        return set(await self._database.write(lambda tx: tx.rows(str, EXTEND_LEASES, ids, lease_s, maker)))

    async def lost_responses(self) -> Sequence[ResponseRecord]:
        sql = f"{RESPONSE} WHERE lease_until < {NOW} AND {IS_RUNNING} ORDER BY created_at, id"
        return await self._database.read(lambda tx: tx.rows(_response, sql))

    async def add_conversation(self, record: ConversationRecord, items: Sequence[KeptItem]) -> None:
        metadata = msgspec.json.encode(record.metadata)
        columns = (record.id, record.owner, record.created_at)

        async def add(tx: Transaction) -> None:
            head = await segments.add_segment(tx, record.owner, None, items)
            await tx.execute(ADD_CONVERSATION, *columns, head, len(metadata), metadata)

        await self._database.write(add)

    async def conversation(self, owner: str, conversation_id: str) -> ConversationRecord | None:
        sql = "SELECT id, owner, created_at, metadata FROM conversations WHERE id = $1 AND owner = $2"
        return await self._database.read(lambda tx: tx.row(_conversation, sql, conversation_id, owner))

    async def update_conversation(self, owner: str, conversation_id: str, metadata: JsonObject) -> bool:
        body = msgspec.json.encode(metadata)
        values = (conversation_id, owner, body, len(body), int(self._now()))
        return await self._database.write(lambda tx: tx.row(str, UPDATE_CONVERSATION, *values)) is not None

    async def delete_conversation(self, owner: str, conversation_id: str) -> bool:
        return await self._delete("conversation", HIDE_CONVERSATION, conversation_id, owner)

    async def conversation_history(self, owner: str, conversation_id: str) -> History | None:
        found = await self._read_segment(HEAD, conversation_id, owner, segments.history)
        return found and History(segment=found.segment, inputs=found.inputs + found.outputs)

    async def conversation_items(self, owner: str, conversation_id: str, query: ItemQuery) -> ItemPage | None:
        page = partial(segments.items_page, owner=owner, query=query)
        return await self._read_segment(HEAD, conversation_id, owner, page)

    async def conversation_item(self, owner: str, conversation_id: str, item_id: str) -> KeptItem | None:
        latest = partial(segments.latest_item, owner=owner, item_id=item_id)
        return await self._read_segment(HEAD, conversation_id, owner, latest)

    async def append_items(self, owner: str, conversation_id: str, items: Sequence[KeptItem]) -> bool:
        extend = partial(self._extend, owner=owner, conversation_id=conversation_id, inputs=items)
        return await self._database.write(extend) is not None

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        async def delete(tx: Transaction) -> bool:
            head = await tx.row(int, f"{HEAD} FOR UPDATE", conversation_id, owner)
            removed = [] if head is None else await tx.rows(lambda *row: row, DELETE_ITEM, head, item_id)
            for segment, size in removed:
                # What was said around a call may hold the item, too.
                dropped = await tx.rows(int, DELETE_LEGS, segment)
                await tx.execute(segments.GROW, segment, -size - sum(dropped))
            if removed:
                await tx.execute(TOUCH, conversation_id, owner, int(self._now()))
            return bool(removed)

        return await self._database.write(delete)

    async def _read_segment(
        self, pointer: str, row_id: str, owner: str, read: Callable[[Transaction, int], Awaitable[T]]
    ) -> T | None:
        """Return what `read` makes of the segment that a row points at; None if the row does not exist."""

        async def work(tx: Transaction) -> T | None:
            segment = await tx.row(int, pointer, row_id, owner)
            return None if segment is None else await read(tx, segment)

        return await self._database.read(work)

    async def _extend(
        self,
        tx: Transaction,
        owner: str,
        conversation_id: str,
        inputs: Sequence[KeptItem],
        outputs: Sequence[KeptItem] = (),
    ) -> int | None:
        """Append a segment to a conversation and return it; None if the conversation does not exist."""
        head = await tx.row(int, TOUCH, conversation_id, owner, int(self._now()))
        if head is None:
            return None
        added = await segments.add_segment(tx, owner, head, inputs, outputs)
        await tx.execute(SET_HEAD, conversation_id, added)
        return added

    async def _delete(self, kind: str, hide: str, row_id: str, owner: str) -> bool:
        """Delete a row and the segments that only it refers to; False if it does not exist.

        The first transaction hides it: it belongs to nobody and is very old. The rest takes as many transactions as
        its size requires; if the process ends meanwhile, the next pruning deletes what is left.
        """

        async def begin(tx: Transaction) -> int | None:
            if kind == "response":
                await tx.execute(FORGET_LEGS, row_id, owner)
            found = await tx.row(str, f"{hide} WHERE id = $1 AND owner = $2 RETURNING id", row_id, owner)
            return None if found is None else (await segments.remove_step(tx, kind, row_id))[0]

        removed = await self._database.write(begin)
        while removed == 0:
            removed, _ = await self._database.write(lambda tx: segments.remove_step(tx, kind, row_id))
        return removed is not None


def guarded_store(url: str, *, timing: BreakerTiming | None = None) -> SqlStore:
    """Return the store behind a URL for a gateway: opened on first use, behind a circuit breaker."""
    return SqlStore(GuardedDatabase(partial(open_database, url), timing or BreakerTiming()))


async def open_store(url: str, *, now: Callable[[], float] = time.time) -> SqlStore:
    """Open the store behind a URL; raises `BackendUnavailable` if it cannot be opened."""
    return SqlStore(await open_database(url), now)


def _response(
    response_id: str, owner: str, created_at: int, status: str, background: int, body: bytes
) -> ResponseRecord:
    return ResponseRecord(
        id=response_id,
        owner=owner,
        created_at=created_at,
        status=status,
        background=background == 1,
        body=segments.decoded(body),
    )


def _conversation(conversation_id: str, owner: str, created_at: int, body: bytes) -> ConversationRecord:
    metadata = segments.decoded(body)
    return ConversationRecord(id=conversation_id, owner=owner, created_at=created_at, metadata=metadata)


def _with_body(key: str | int, body: bytes) -> tuple[str | int, JsonObject]:
    return key, segments.decoded(body)
