"""Moving a store: all rows, in both directions, resumed after an interruption, and never over another's entries."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.store.conftest import drop_everything
from tests.store.samples import PLENTY, chat, conversation, file, items, say
from turnbridge.cli.main import app
from turnbridge.store import copying
from turnbridge.store.copying import MARK, NOT_COPIED, copy, tables
from turnbridge.store.database import Database, Transaction, Value
from turnbridge.store.schema import open_database, sqlite_file, store_url
from turnbridge.store.sql_store import open_store
from turnbridge.turn.errors import BackendUnavailable

NAME = "/somewhere/store.db"
Rows = dict[str, list[tuple[Value, ...]]]


@pytest.fixture
async def filled(tmp_path: Path) -> str:
    """Return the URL of a store with everything in it."""
    url = store_url(tmp_path / "filled")
    store = await open_store(url)
    for number in range(copying.PAGE + 5):
        await say(store, f"r{number}", [f"in{number}"], [f"out{number}"], after=f"r{number - 1}" if number else None)
    await store.add_conversation(conversation("c"), items("kept"))
    await store.add_chat(chat("one", topic="ü“"))
    content = bytes(range(256)) * 5000
    await store.add_file(file("f", size=len(content)), content, PLENTY)
    await store.aclose()
    return url


@pytest.fixture
async def elsewhere(postgres: str) -> AsyncIterator[str]:
    """Return the URL of an empty Postgres."""
    await drop_everything(postgres)
    yield postgres
    await drop_everything(postgres)


async def rows(url: str) -> Rows:
    """Return all rows of a store."""

    async def read(tx: Transaction) -> Rows:
        sql = "SELECT {} FROM {} ORDER BY {}"
        return {
            each.name: await tx.rows(_whole, sql.format(", ".join(each.columns), each.name, ", ".join(each.key)))
            for each in tables()
        }

    database = await open_database(url)
    try:
        return await database.read(read)
    finally:
        await database.aclose()


def _whole(*row: Value) -> tuple[Value, ...]:
    return row


async def copied(source: str, target: str) -> dict[str, int]:
    databases: list[Database] = [await open_database(source), await open_database(target)]
    try:
        return await copy(*databases, name=NAME)
    finally:
        for database in databases:
            await database.aclose()


@pytest.mark.anyio
@pytest.mark.promise("deploy.store-copy")
async def test_every_table_and_column_of_the_schema_is_copied(tmp_path: Path) -> None:
    database = await open_database(store_url(tmp_path))

    async def described(tx: Transaction) -> dict[str, set[str]]:
        names = await tx.rows(str, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return {name: set(await tx.rows(str, f"SELECT name FROM pragma_table_info('{name}')")) for name in names}

    found = await database.read(described)
    await database.aclose()
    copied_tables = {table.name: set(table.columns) for table in tables()}
    assert copied_tables == {name: each for name, each in found.items() if name not in {"schema_version", *NOT_COPIED}}
    assert all(table.key for table in tables())


@pytest.mark.anyio
@pytest.mark.promise("deploy.store-copy")
async def test_a_store_comes_back_from_postgres_as_it_was(filled: str, elsewhere: str, tmp_path: Path) -> None:
    before, back = await rows(filled), store_url(tmp_path / "back")
    assert await copied(filled, elsewhere) == {name: len(each) for name, each in before.items()}
    assert await rows(elsewhere) == before
    await copied(elsewhere, back)
    assert await rows(back) == before
    for url in (elsewhere, back):
        store = await open_store(url)
        await say(store, "next", ["more"], ["said"], after="r3")
        await store.add_chat(chat("two"))
        await store.aclose()
        assert len((await rows(url))["chats"]) == 2


@pytest.mark.anyio
@pytest.mark.promise("deploy.store-copy")
async def test_an_interrupted_copy_is_resumed(filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = store_url(tmp_path / "target")
    write, pages = copying._write, iter(range(4))

    async def interrupted(table: copying.Table, some: list[tuple[Value, ...]], tx: Transaction) -> None:
        if next(pages, None) is None:
            raise KeyboardInterrupt
        await write(table, some, tx)

    monkeypatch.setattr(copying, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        await copied(filled, target)
    monkeypatch.undo()
    assert await rows(target) != await rows(filled)
    await copied(filled, target)
    assert await rows(target) == await rows(filled)
    assert await _tables_named(target, MARK) == []


@pytest.mark.anyio
@pytest.mark.promise("deploy.store-copy")
async def test_a_store_with_entries_of_its_own_is_not_written_to(filled: str, tmp_path: Path) -> None:
    target = store_url(tmp_path / "target")
    store = await open_store(target)
    await store.add_chat(chat("mine"))
    await store.aclose()
    before = await rows(target)
    with pytest.raises(BackendUnavailable, match="entries of its own"):
        await copied(filled, target)
    assert await rows(target) == before


async def _tables_named(url: str, name: str) -> list[str]:
    database = await open_database(url)
    try:
        return await database.read(lambda tx: tx.rows(str, "SELECT name FROM sqlite_master WHERE name = $1", name))
    finally:
        await database.aclose()


@pytest.mark.promise("deploy.store-copy")
def test_the_commands_copy_and_import_and_say_how_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    url = store_url(tmp_path / "one")

    async def fill() -> None:
        store = await open_store(url)
        await say(store, "r", ["a"], ["b"])
        await store.aclose()

    asyncio.run(fill())
    run = CliRunner().invoke
    monkeypatch.setenv("PROXY_DATA_DIR", str(tmp_path / "one"))
    done = run(app, ["store", "copy", "--to", str(tmp_path / "two.db")])
    assert (done.exit_code, "responses: 1\n" in done.output) == (0, True), done.output
    assert done.output.endswith(f"from {sqlite_file(url)} to {tmp_path / 'two.db'}.\n")
    again = run(app, ["store", "copy", "--to", str(tmp_path / "two.db")])
    assert (again.exit_code, "Copy to an empty one" in again.output) == (69, True)
    monkeypatch.setenv("PROXY_DATA_DIR", str(tmp_path / "three"))
    assert run(app, ["store", "import", str(tmp_path / "two.db")]).exit_code == 0
    assert asyncio.run(rows(store_url(tmp_path / "three"))) == asyncio.run(rows(url))
    missing = run(app, ["store", "import", str(tmp_path / "none.db")])
    assert (missing.exit_code, "There is no file" in missing.output) == (78, True)
    assert run(app, ["store", "copy", "--to", str(tmp_path / "three" / "store.db")]).exit_code == 78
