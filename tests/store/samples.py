"""Things to keep, and a look at the rows that are there."""

from collections.abc import Sequence

import msgspec

from turnbridge.engine.records import (
    ChatRecord,
    ConversationRecord,
    FileLimits,
    FileRecord,
    History,
    KeptItem,
    ResponseRecord,
)
from turnbridge.store.schema import database_at
from turnbridge.store.sql_store import SqlStore
from turnbridge.turn.items import JsonObject

OWNER = "someone"
STRANGER = "somebody else"
TABLES = (
    "segments",
    "items",
    "responses",
    "conversations",
    "chats",
    "chat_metadata",
    "chat_legs",
    "response_legs",
    "files",
    "file_pieces",
)
EMPTY = dict.fromkeys(TABLES, 0)


def items(*names: str) -> list[KeptItem]:
    """Return messages with these ids."""
    return [KeptItem(id=name, body={"type": "message", "content": f"I am {name} “ü”"}) for name in names]


def call(name: str, call_id: str) -> KeptItem:
    """Return a call that the model made."""
    return KeptItem(id=name, body={"type": "function_call", "call_id": call_id})


def response(name: str, *, status: str = "completed", created_at: int = 1000, **body: int | str) -> ResponseRecord:
    """Return a response."""
    return ResponseRecord(
        id=name,
        owner=OWNER,
        created_at=created_at,
        status=status,
        background=status != "completed",
        body={"id": name, "status": status, **body},
    )


def conversation(name: str, *, created_at: int = 1000) -> ConversationRecord:
    """Return a conversation."""
    return ConversationRecord(id=name, owner=OWNER, created_at=created_at, metadata={"topic": name})


PLENTY = FileLimits(files=1000, size=2**30)


def file(
    name: str,
    *,
    size: int,
    owner: str = OWNER,
    created_at: int = 1000,
    expires_at: int = 2**40,
    purpose: str = "vision",
) -> FileRecord:
    """Return a file."""
    return FileRecord(
        id=name,
        owner=owner,
        created_at=created_at,
        expires_at=expires_at,
        purpose=purpose,
        filename=f"{name}.txt",
        mime_type=None,
        size=size,
    )


def chat(name: str, *, model: str = "gpt-5.5", created_at: int = 1000, **metadata: str) -> ChatRecord:
    """Return a chat completion."""
    return ChatRecord(
        id=name,
        owner=OWNER,
        created_at=created_at,
        model=model,
        metadata=metadata,
        body={"id": name, "choices": [{"index": 0}]},
        messages=({"role": "user", "content": "Hi"}, {"role": "user", "content": [{"type": "text", "text": name}]}),
    )


async def say(
    store: SqlStore, name: str, inputs: Sequence[str], outputs: Sequence[str], *, after: str | None = None
) -> None:
    """Keep a response with these items, after another one."""
    continues = None if after is None else (await told(store, after)).segment
    await store.add_response(response(name), continues=continues, inputs=items(*inputs), outputs=items(*outputs))


async def told(store: SqlStore, name: str) -> History:
    """Return the history of a response that is there."""
    history = await store.response_history(OWNER, name)
    assert history is not None
    return history


async def names_of(store: SqlStore, name: str) -> tuple[list[str], list[str]]:
    """Return the ids of the inputs and outputs of a response."""
    history = await told(store, name)
    return [item.id for item in history.inputs], [item.id for item in history.outputs]


async def names_in(store: SqlStore, name: str) -> list[str]:
    """Return the ids of the items of a conversation."""
    history = await store.conversation_history(OWNER, name)
    assert history is not None
    assert history.outputs == ()
    return [item.id for item in history.inputs]


async def exported(store: SqlStore) -> list[JsonObject]:
    """Return everything that is kept."""
    return [line async for line in store.export()]


async def rows(url: str) -> dict[str, int]:
    """Return how many rows each table has."""
    counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in EMPTY)
    database = await database_at(url)
    try:
        (found,) = await database.read(lambda tx: tx.fetch(f"SELECT {counts}", []))
        return {table: msgspec.convert(count, int) for table, count in zip(EMPTY, found, strict=True)}
    finally:
        await database.aclose()
