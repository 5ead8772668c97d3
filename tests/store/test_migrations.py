"""Databases of every version are opened, by any number at once, and keep what they hold."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.store.conftest import drop_everything
from tests.store.samples import (
    EMPTY,
    OWNER,
    chat,
    conversation,
    names_in,
    names_of,
    response,
    rows,
    say,
)
from turnbridge.engine.records import ChatQuery
from turnbridge.store.database import Transaction
from turnbridge.store.schema import VERSIONS, database_at, migrate, sqlite_file
from turnbridge.store.sql_store import open_store
from turnbridge.turn.errors import BackendUnavailable

pytestmark = pytest.mark.anyio

# What a program of version 1 has written. It stays as it is, whatever the schema becomes.
ROWS_OF_VERSION_1 = (
    "INSERT INTO segments (id, parent, owner, size) VALUES (1, NULL, 'someone', 20)",
    "INSERT INTO segments (id, parent, owner, size) VALUES (2, 1, 'someone', 10)",
    "INSERT INTO items VALUES (1, 0, 0, 'someone', 'a', NULL, {a})",
    "INSERT INTO items VALUES (1, 1, 1, 'someone', 'b', 'call', {b})",
    "INSERT INTO items VALUES (2, 0, 0, 'someone', 'c', NULL, {a})",
    "INSERT INTO responses VALUES ('r1', 'someone', 1000, 'completed', 0, 1, NULL, 10, {r1}, {b})",
    "INSERT INTO responses VALUES ('r2', 'someone', 1000, 'in_progress', 1, 2, 5.5, 10, {r2}, NULL)",
    "INSERT INTO conversations VALUES ('c', 'someone', 1000, 1001, 1, 10, {c})",
    "INSERT INTO chats VALUES (1, 'chat', 'someone', 1000, 'gpt-5.5', 10, {topic}, {chat}, {messages})",
    "INSERT INTO chat_metadata VALUES (1, 'topic', 't')",
)
BODIES_OF_VERSION_1 = {
    "a": '{"n":1}',
    "b": '{"call_id":"call"}',
    "r1": '{"id":"r1","status":"completed"}',
    "r2": '{"id":"r2","status":"in_progress"}',
    "c": '{"topic":"c"}',
    "topic": '{"topic":"t"}',
    "chat": '{"id":"chat","choices":[{"index":0}]}',
    "messages": '[{"role":"user","content":"Hi"},{"role":"user","content":[{"type":"text","text":"chat"}]}]',
}
OPEN = "import asyncio, sys; from turnbridge.store.sql_store import open_store; asyncio.run(open_store(sys.argv[1]))"


@pytest.fixture
async def bare(url: str) -> AsyncIterator[str]:
    """Return the URL of a database without any tables; what it is given is not left for other tests."""
    if sqlite_file(url) is None:
        await drop_everything(url)
    yield url
    if sqlite_file(url) is None:
        await drop_everything(url)


async def made(url: str, versions: int, *statements: str) -> None:
    """Make a database of a version, and run further statements in it."""
    database = await database_at(url)

    async def make(tx: Transaction) -> None:
        await migrate(tx, VERSIONS[:versions])
        for statement in statements:
            await tx.execute(statement)

    await database.write(make)
    await database.aclose()


def written(url: str) -> list[str]:
    """Return the statements of version 1 with the bytes as the database writes them."""
    before = "X'" if sqlite_file(url) else "'\\x"
    bodies = {name: f"{before}{text.encode().hex()}'" for name, text in BODIES_OF_VERSION_1.items()}
    return [statement.format_map(bodies) for statement in ROWS_OF_VERSION_1]


async def test_everything_of_version_1_is_there(bare: str) -> None:
    await made(bare, 1, *written(bare))
    store = await open_store(bare)
    assert await names_of(store, "r1") == (["a"], ["b"])
    assert await names_of(store, "r2") == (["a", "b", "c"], [])
    assert await store.response(OWNER, "r1") == response("r1")
    assert await store.response_events(OWNER, "r1") == b'{"call_id":"call"}'
    assert await store.lost_responses() == [response("r2", status="in_progress")]
    assert await store.conversation(OWNER, "c") == conversation("c")
    assert await names_in(store, "c") == ["a", "b"]
    assert await store.answers_with_calls(OWNER, ["call"]) == [({"call_id": "call"},)]
    assert await store.chats(OWNER, ChatQuery(metadata={"topic": "t"})) == ([chat("chat", topic="t")], False)
    assert (await store.figures()).bytes == 70
    await store.aclose()


async def test_a_later_step_keeps_the_rows_and_runs_once(bare: str) -> None:
    store = await open_store(bare)
    await say(store, "r1", ["a"], ["b"])
    database = await database_at(bare)
    later = (*VERSIONS, ("ALTER TABLE items ADD COLUMN later TEXT", "UPDATE items SET later = 'x'"))
    for _ in range(2):
        await database.write(partial(migrate, versions=later))
    assert await database.read(lambda tx: tx.rows(str, "SELECT later FROM items")) == ["x", "x"]
    assert await names_of(store, "r1") == (["a"], ["b"])
    await database.aclose()
    await store.aclose()


async def test_a_step_that_fails_changes_nothing(bare: str) -> None:
    store = await open_store(bare)
    await say(store, "r1", ["a"], ["b"])
    await store.aclose()
    database = await database_at(bare)
    broken = (
        *VERSIONS,
        ("DELETE FROM items", "ALTER TABLE items ADD COLUMN later TEXT", "SELECT nothing FROM nowhere"),
    )
    with pytest.raises(BackendUnavailable):
        await database.write(partial(migrate, versions=broken))
    await database.aclose()
    again = await open_store(bare)
    assert await names_of(again, "r1") == (["a"], ["b"])
    await again.aclose()


async def test_a_database_of_a_later_program_is_refused_and_left_alone(bare: str) -> None:
    await made(bare, 1, *written(bare))
    await made(bare, len(VERSIONS), "UPDATE schema_version SET version = 99")
    before = await rows(bare)
    with pytest.raises(BackendUnavailable, match="schema is 99, this one knows") as refusal:
        await open_store(bare)
    assert refusal.value.error_code == "store_unavailable"
    assert await rows(bare) == before


async def test_many_open_an_empty_database_at_once(bare: str) -> None:
    stores = await asyncio.gather(*(open_store(bare) for _ in range(8)))
    await asyncio.gather(*(say(store, f"r{number}", ["a"], []) for number, store in enumerate(stores)))
    assert await rows(bare) == {**EMPTY, "segments": 8, "items": 8, "responses": 8}
    for store in stores:
        await store.aclose()


async def test_several_processes_open_an_empty_database_at_once(bare: str) -> None:
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", OPEN, bare, stderr=subprocess.PIPE) for _ in range(3)
    ]
    async with asyncio.timeout(90):
        assert [(await process.communicate())[1] for process in processes] == [b""] * 3
    assert await rows(bare) == EMPTY
