"""SQLite: a file in the data directory.

Each connection has its own thread, and a unit of work runs on it from BEGIN to COMMIT: one change of threads per unit
instead of one per statement, and no cancelled request can leave a transaction open. One connection writes; its queue
serialises the writers of this process, and SQLite's lock those of other processes. Readers see the last commit.
"""

import asyncio
import contextlib
import os
import queue
import re
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec

from turnbridge.store.database import CLOCK, Transaction, Value, Work, bound, translated_errors

T = TypeVar("T")

# Reads are quick; more threads would only compete with the event loop for the interpreter lock.
READERS = 3
# How long to wait for the lock of another process. The longest holder is a vacuum: seconds for a full store.
BUSY_TIMEOUT_S = 60
# The first with `RETURNING`.
OLDEST_SQLITE = (3, 35, 0)
# Prepared statements per connection; the store has about fifty.
PREPARED_STATEMENTS = 128
# In WAL mode these survive a killed process; only a power cut may lose the last commits. Deleted rows are overwritten,
# so that a deleted answer cannot be found in the file.
PRAGMAS = ("synchronous = NORMAL", "foreign_keys = ON", "secure_delete = ON")
FAILURES = (sqlite3.DatabaseError, OSError)
BUGS = (sqlite3.IntegrityError, sqlite3.ProgrammingError)
# `unixepoch` has whole seconds only before SQLite 3.42.
SQLITE_CLOCK = "((julianday('now') - 2440587.5) * 86400.0)"


# Translating a statement takes 3 to 8 µs, running a small one 10.
@lru_cache(maxsize=PREPARED_STATEMENTS)
def sqlite_text(sql: str) -> str:
    """Return a statement in SQLite's SQL."""
    with_lists = re.sub(r"= ANY\((\$\d+)\)", r"IN (SELECT value FROM json_each(\1))", sql)
    return with_lists.replace(" FOR UPDATE", "").replace(CLOCK, SQLITE_CLOCK)


def _ignore() -> None:
    pass


class SqliteTransaction(Transaction):
    """Runs statements on a connection, synchronously."""

    # AUTOINCREMENT never reuses a key: a stale reference must not lead to another owner's segment.
    types: ClassVar = {"key": "INTEGER PRIMARY KEY AUTOINCREMENT", "bytes": "BLOB"}

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, sql: str, values: Sequence[Value]) -> Sequence[Sequence[object]]:
        return self._connection.execute(sqlite_text(sql), _named(values)).fetchall()

    async def execute_each(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        self._connection.executemany(sqlite_text(sql), map(_named, rows))


class SqliteDatabase:
    """A `Database` in a SQLite file."""

    def __init__(self, path: Path) -> None:
        self._writer, *readers = self._connections = [_Connection(path) for _ in range(1 + READERS)]
        # LIFO, so that an idle gateway uses only one reader.
        self._readers: asyncio.LifoQueue[_Connection] = asyncio.LifoQueue()
        for reader in readers:
            self._readers.put_nowait(reader)

    async def write(self, work: Work[T]) -> T:
        return await self._writer.submit(partial(self._writer.transact, "BEGIN IMMEDIATE", work))

    async def read(self, work: Work[T]) -> T:
        reader = await self._readers.get()
        # It is free once its thread is: after a cancellation that may still be at work.
        return await reader.submit(
            partial(reader.transact, "BEGIN", work), ended=partial(self._readers.put_nowait, reader)
        )

    async def vacuum(self) -> None:
        def run(connection: sqlite3.Connection) -> None:
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                connection.execute(statement).fetchall()

        await self._writer.submit(run)

    async def aclose(self) -> None:
        # One after another: only a connection that is alone in the end empties and removes the write-ahead log.
        for connection in self._connections:
            await asyncio.wrap_future(connection.close())

    def abandon(self) -> None:
        for connection in self._connections:
            connection.abandon()


class _Connection:
    """A connection and its thread, both started on first use.

    It is a daemon thread, since a file system that hangs must not keep the process from exiting.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._closed: Future[None] = Future()
        self._abandoned = False

    def submit(
        self, work: Callable[[sqlite3.Connection], T], *, ended: Callable[[], None] = _ignore
    ) -> asyncio.Future[T]:
        """Queue work for the thread; `ended` is called in the event loop when the thread is done with it.

        A future of the loop's own, since that of `concurrent.futures` takes locks ten times.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._jobs.put(partial(self._run, loop, result, work, ended))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="store", daemon=True)
            self._thread.start()
        return result

    def transact(self, begin: str, work: Work[T], connection: sqlite3.Connection) -> T:
        """Run a unit of work in a transaction; called in the thread."""
        connection.execute(begin)
        try:
            result = _run_to_end(work(SqliteTransaction(connection)))
            self._raise_if_abandoned()
            connection.execute("COMMIT")
        except BaseException:
            # Some failures, such as a full disk, have rolled back already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def close(self) -> "Future[None]":
        """Finish the queued work, then close the connection and end the thread."""
        self._jobs.put(None)
        if self._thread is None and not self._closed.done():
            self._closed.set_result(None)
        return self._closed

    def abandon(self) -> None:
        """Interrupt the running statement, commit nothing any more, and close without waiting."""
        self._abandoned = True
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(sqlite3.ProgrammingError):  # The thread has closed it in between.
                connection.interrupt()
        self.close()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            # It may refer to megabytes of rows, which must not stay until the next job.
            del job
        if self._connection is not None:
            self._connection.close()
        # Whoever waited may have given up.
        if self._closed.set_running_or_notify_cancel():
            self._closed.set_result(None)

    def _run(
        self,
        loop: asyncio.AbstractEventLoop,
        result: asyncio.Future[T],
        work: Callable[[sqlite3.Connection], T],
        ended: Callable[[], None],
    ) -> None:
        """Run work, unless it was cancelled while queued; called in the thread."""
        settle: Callable[[], None] = _ignore
        if not result.cancelled():
            try:
                with translated_errors(FAILURES, bugs=BUGS, describe=_described):
                    self._raise_if_abandoned()
                    if self._connection is None:
                        self._connection = _connect(self._path)
                    settle = partial(result.set_result, work(self._connection))
            except BaseException as error:  # noqa: BLE001  # Raised again where the result is awaited.
                settle = partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # The loop may be closed by then.
            loop.call_soon_threadsafe(_settle, result, settle, ended)

    def _raise_if_abandoned(self) -> None:
        if self._abandoned:
            raise sqlite3.OperationalError("it took too long")


def _settle(result: asyncio.Future[T], settle: Callable[[], None], ended: Callable[[], None]) -> None:
    ended()
    # Nobody waits any more for what was cancelled meanwhile.
    if not result.done():
        settle()


def _described(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _connect(path: Path) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise sqlite3.NotSupportedError(f"it needs SQLite 3.35 or later, and this Python has {sqlite3.sqlite_version}")
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives the files that it creates beside it the same mode.
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


def _run_to_end(work: Awaitable[T]) -> T:
    """Return the result of a coroutine that never suspends: `async` is there so that Postgres can run it too."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # What a generator returns has no type.
    raise RuntimeError("A unit of work awaits nothing but its statements.")


def _named(values: Sequence[Value]) -> dict[str, Value]:
    """Return values by the names that SQLite sees in `$1`, `$2` and so on; a list becomes JSON, for `json_each`."""
    named = {str(number): bound(value) for number, value in enumerate(values, start=1)}
    return {
        name: msgspec.json.encode(value).decode() if isinstance(value, list) else value for name, value in named.items()
    }
