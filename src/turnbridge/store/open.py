"""The store, and how it is opened from a URL."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from turnbridge.store.chats import Chats
from turnbridge.store.circuit_breaker import BreakerTiming, GuardedDatabase, UnboundedDatabase
from turnbridge.store.conversations import Conversations
from turnbridge.store.database import UNAVAILABLE, Database
from turnbridge.store.export import Export
from turnbridge.store.responses import Responses
from turnbridge.store.retention import Retention
from turnbridge.store.schema import migrate
from turnbridge.store.sqlite import SqliteDatabase
from turnbridge.turn.errors import BackendUnavailable

STORE_FILE = "store.db"
SQLITE_SCHEME = "sqlite:///"


class SqlStore(Responses, Conversations, Chats, Retention, Export):
    """The store, in a SQL database."""

    def for_maintenance(self) -> "SqlStore":
        """Return the same store without the timeout of requests."""
        guarded = self._database
        return SqlStore(UnboundedDatabase(guarded), self._now) if isinstance(guarded, GuardedDatabase) else self

    async def aclose(self) -> None:
        await self._database.aclose()


def store_url(data_dir: Path) -> str:
    return f"{SQLITE_SCHEME}{data_dir / STORE_FILE}"


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite URL, or None."""
    return Path(url.removeprefix(SQLITE_SCHEME)) if url.startswith(SQLITE_SCHEME) else None


def guarded_store(url: str, *, timing: BreakerTiming | None = None) -> SqlStore:
    """Return the store behind a URL for a gateway: opened on first use, behind a circuit breaker."""
    return SqlStore(GuardedDatabase(partial(database_at, url), timing or BreakerTiming()), time.time)


async def open_store(url: str, *, now: Callable[[], float] = time.time) -> SqlStore:
    """Open the store behind a URL; raises `BackendUnavailable` if it cannot be opened."""
    database = await database_at(url)
    try:
        await database.write(migrate)
    except BaseException:
        await database.aclose()
        raise
    return SqlStore(database, now)


async def database_at(url: str) -> Database:
    """Open the database behind a URL without migrating it."""
    file = sqlite_file(url)
    if file is not None:
        return SqliteDatabase(file)
    try:
        # An optional extra, imported only by those who use it.
        from turnbridge.store.postgres import PostgresDatabase  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BackendUnavailable(
            "A store in Postgres needs the package asyncpg beside the gateway.", code=UNAVAILABLE
        ) from error
    return await PostgresDatabase.connected(url)
