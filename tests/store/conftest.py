"""Every test of the store's behaviour runs on SQLite and on a real Postgres."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.store.postgres_server import running_postgres
from turnbridge.store.postgres import SCHEMA
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import SqlStore, open_store


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Return the URL of a Postgres that runs for all tests."""
    with running_postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database that is empty yet."""
    if request.param == "sqlite":
        return store_url(tmp_path)
    server: str = request.getfixturevalue("postgres")
    await empty(server)
    return server


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    """Return an empty store."""
    opened = await open_store(url)
    yield opened
    await opened.aclose()


async def empty(url: str) -> None:
    """Remove the rows that another test left; much quicker than the tables."""
    connection = await asyncpg.connect(url)
    if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{SCHEMA}.claims"):
        data = ("responses", "conversations", "chats", "items", "segments", "keys", "files", "usage")
        for table in (*data, "replicas", "claims"):
            await connection.execute(f"DELETE FROM {SCHEMA}.{table}")
    await connection.close()


async def drop_everything(url: str) -> None:
    """Remove all that the store has in a Postgres."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    await connection.close()
