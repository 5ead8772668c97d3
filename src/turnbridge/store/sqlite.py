"""SQLite: a file of the user's own.

Each connection has a thread, and a piece of work runs on it from its begin to its commit: one change of threads instead
of one for every statement, and no cancelled request can leave a transaction open. One connection writes, so writers
wait for one another in a queue here; other processes wait in SQLite itself. Readers see the state before the write.
"""

import asyncio
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import msgspec

from turnbridge.store.database import Dialect, Transaction, Value, Work, bound, failures_told

T = TypeVar("T")

# Reading is quick; more readers would only compete with the event loop for the interpreter.
READERS = 3
# Another process may be writing. The longest that it does is a vacuum, which takes seconds for a full store.
BUSY_TIMEOUT_S = 60
# The first with `RETURNING`.
OLDEST_SQLITE = (3, 35, 0)
# Statements that stay prepared for each connection; the store has about fifty.
PREPARED_STATEMENTS = 128
# A database in WAL mode survives a killed process with these; only a power cut may lose the last moments.
# What is deleted is overwritten, since who deletes an answer does not expect to find it in the file.
PRAGMAS = ("synchronous = NORMAL", "foreign_keys = ON", "secure_delete = ON")

FAILURES = (sqlite3.DatabaseError, OSError)
MISTAKES = (sqlite3.IntegrityError, sqlite3.ProgrammingError)

VACUUM = ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
DIALECT = Dialect(
    # A key that was used once is not given again: a stale reference must not lead to somebody else's segment.
    names={"key": "INTEGER PRIMARY KEY AUTOINCREMENT", "bytes": "BLOB"},
)


# To translate a statement takes 3 to 8 µs, and to run a small one 10.
@lru_cache(maxsize=PREPARED_STATEMENTS)
def sqlite_text(sql: str) -> str:
    """Return a statement in SQLite's words."""
    return re.sub(r"= ANY\((\$\d+)\)", r"IN (SELECT value FROM json_each(\1))", sql).replace(" FOR UPDATE", "")


class SqliteTransaction(Transaction):
    """Statements on a connection; none of them ever waits for the event loop."""

    dialect = DIALECT

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, sql: str, values: Sequence[Value]) -> Sequence[Sequence[object]]:
        """Run a statement and return its rows."""
        return self._connection.execute(sqlite_text(sql), _named(map(_handed, values))).fetchall()

    async def execute_each(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each of the rows."""
        self._connection.executemany(sqlite_text(sql), [_named(map(bound, row)) for row in rows])


class SqliteDatabase:
    """A SQLite file."""

    def __init__(self, path: Path) -> None:
        self._writer, *readers = self._lanes = [_Lane(path) for _ in range(1 + READERS)]
        # The last one used is used again, so that a quiet gateway has one reader.
        self._readers: asyncio.LifoQueue[_Lane] = asyncio.LifoQueue()
        for lane in readers:
            self._readers.put_nowait(lane)

    async def write(self, work: Work[T]) -> T:
        """Do a piece of work that changes something."""
        return await self._writer.run(partial(_transacted, "BEGIN IMMEDIATE", work))

    async def read(self, work: Work[T]) -> T:
        """Do a piece of work that changes nothing."""
        lane = await self._readers.get()
        try:
            return await lane.run(partial(_transacted, "BEGIN", work))
        finally:
            self._readers.put_nowait(lane)

    async def vacuum(self) -> None:
        """Give the room of removed rows back to the system."""

        def run(connection: sqlite3.Connection) -> None:
            for statement in VACUUM:
                connection.execute(statement).fetchall()

        await self._writer.run(run)

    async def aclose(self) -> None:
        """Finish what was begun, and close the file."""
        for lane in self._lanes:
            await lane.close()


class _Lane:
    """A connection and its thread; both begin when they are first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with failures_told(FAILURES, but=MISTAKES, describe=_described):
            if self._connection is None:
                self._connection = _connected(self._path)
            return work(self._connection)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _described(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _connected(path: Path) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise sqlite3.NotSupportedError(f"it needs SQLite 3.35 or later, and this Python has {sqlite3.sqlite_version}")
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The files that SQLite puts beside it take over its mode.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, cached_statements=PREPARED_STATEMENTS
    )
    try:
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            connection.execute("PRAGMA journal_mode = WAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _transacted(begin: str, work: Work[T], connection: sqlite3.Connection) -> T:
    connection.execute(begin)
    try:
        result = _finished(work(SqliteTransaction(connection)))
        connection.execute("COMMIT")
    except BaseException:
        # Some failures, such as a full disk, have ended the transaction already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _finished(work: Awaitable[T]) -> T:
    """Return the result of work that never waits: it is a plain function, written so that Postgres can run it too."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # What a generator returns has no type.
    raise RuntimeError("Work on the store waits for nothing but its statements.")


def _named(values: Iterable[Value]) -> dict[str, Value]:
    """Return values under the names that SQLite sees in `$1`, `$2` and so on: to it they are names like any other."""
    return {str(number): value for number, value in enumerate(values, start=1)}


def _handed(value: Value) -> Value:
    """Return a value as SQLite takes it: a list is JSON there."""
    given = bound(value)
    return msgspec.json.encode(given).decode() if isinstance(given, list) else given
