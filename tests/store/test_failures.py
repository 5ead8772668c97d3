"""A database that cannot be used: clients are told so in one way, without addresses or passwords."""

import asyncio
import contextlib
import sqlite3
import stat
from pathlib import Path

import asyncpg
import pytest

from tests.store.samples import (
    OWNER,
    chat,
    items,
    names_of,
    response,
    say,
)
from turnbridge.store import sqlite
from turnbridge.store.schema import database_at, migrate, store_url
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.errors import BackendUnavailable

pytestmark = pytest.mark.anyio

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"postgresql://me:{SECRET}@127.0.0.1:1/nothing", "ConnectionRefusedError"),
        (f"postgresql://me:{SECRET}@127.0.0.1:port/nothing", "ValueError"),
        (f"mysql://me:{SECRET}@127.0.0.1/nothing", "ClientConfigurationError"),
        ("sqlite:////dev/null/store.db", "File exists"),
        ("sqlite:////dev", "unable to open database file"),
    ],
)
async def test_a_database_that_is_not_there_is_told_without_secrets(url: str, reason: str) -> None:
    with pytest.raises(BackendUnavailable, match=reason) as failure:
        await open_store(url)
    assert failure.value.error_code == "store_unavailable"
    assert SECRET not in failure.value.message


async def test_a_database_that_the_server_does_not_have_is_told(postgres: str) -> None:
    with pytest.raises(BackendUnavailable, match="InvalidCatalogNameError"):
        await open_store(postgres.replace("/postgres?", "/nothing?"))


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    file.write_bytes(b"Dear diary, " * 100)
    with pytest.raises(BackendUnavailable, match="file is not a database"):
        await open_store(store_url(tmp_path))
    assert file.read_bytes() == b"Dear diary, " * 100


async def test_on_a_full_disk_nothing_is_half_written_and_reading_goes_on(tmp_path: Path) -> None:
    database = await database_at(store_url(tmp_path))
    await database.write(migrate)
    store = SqlStore(database, now=lambda: 0)
    await say(store, "r1", ["a"], ["b"])
    await database.write(lambda tx: tx.execute("PRAGMA max_page_count = 1"))
    large = response("r2", text="x" * 1_000_000)
    with pytest.raises(BackendUnavailable, match="database or disk is full"):
        await store.add_response(large, continues=None, inputs=items("c"))
    assert await store.response(OWNER, "r2") is None
    assert await names_of(store, "r1") == (["a"], ["b"])
    await database.write(lambda tx: tx.execute("PRAGMA max_page_count = 1000000"))
    await store.add_response(large, continues=None, inputs=items("c"))
    assert await names_of(store, "r2") == (["c"], [])
    await store.aclose()


async def test_a_file_that_somebody_else_never_lets_go_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    store = await open_store(store_url(tmp_path))
    with sqlite3.connect(tmp_path / "store.db", isolation_level=None) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable, match="database is locked"):
            await say(store, "r1", ["a"], ["b"])
    stranger.close()
    await say(store, "r1", ["a"], ["b"])
    await store.aclose()


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_postgres_that_cut_all_connections_is_reached_again(url: str, store: SqlStore) -> None:
    await say(store, "r1", ["a"], ["b"])
    operator = await asyncpg.connect(url)
    await operator.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnbridge'"
    )
    await operator.close()
    # One request may find out; the one after it has a connection of its own.
    with contextlib.suppress(BackendUnavailable):
        await names_of(store, "r1")
    assert await names_of(store, "r1") == (["a"], ["b"])


async def test_an_old_sqlite_is_told_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(BackendUnavailable, match=r"it needs SQLite 3\.35 or later"):
        await open_store(store_url(tmp_path))


async def test_our_own_mistakes_are_not_told_as_failures_of_the_database(store: SqlStore) -> None:
    await store.add_chat(chat("c1"))
    with pytest.raises(Exception, match=r"(?i)unique") as mistake:
        await store.add_chat(chat("c1"))
    assert not isinstance(mistake.value, BackendUnavailable)


async def test_work_that_waits_for_something_else_is_a_mistake(tmp_path: Path) -> None:
    database = await database_at(store_url(tmp_path))
    with pytest.raises(RuntimeError, match="awaits nothing"):
        await database.write(lambda _: asyncio.sleep(0))
    await database.aclose()


async def test_the_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    store = await open_store(store_url(directory))
    await say(store, "r1", ["a"], ["b"])
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in (directory, *directory.iterdir())} == {
        "data": 0o700,
        "store.db": 0o600,
        "store.db-shm": 0o600,
        "store.db-wal": 0o600,
    }
    await store.aclose()


async def test_what_was_removed_cannot_be_found_in_the_file(tmp_path: Path) -> None:
    store = await open_store(store_url(tmp_path))
    await store.add_response(response("r1", text=SECRET * 3000), continues=None, inputs=items("a"))
    await store.delete_response(OWNER, "r1")
    await store.aclose()
    assert SECRET.encode() not in (tmp_path / "store.db").read_bytes()
