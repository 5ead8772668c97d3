"""SQLite: a file of the user's own.

Each connection has a thread, and a piece of work runs on it from its begin to its commit: one change of threads instead
of one for every statement, and no cancelled request can leave a transaction open. One connection writes, so writers
wait for one another in a queue here; other processes wait in SQLite itself. Readers see the state before the write.
"""

import asyncio
import contextlib
import os
import queue
import re
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import msgspec

from turnbridge.store.database import CLOCK, Dialect, Transaction, Value, Work, bound, failures_told

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

# `unixepoch` counts whole seconds before SQLite 3.42.
SQLITE_CLOCK = "((julianday('now') - 2440587.5) * 86400.0)"
VACUUM = ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
DIALECT = Dialect(
    # A key that was used once is not given again: a stale reference must not lead to somebody else's segment.
    names={"key": "INTEGER PRIMARY KEY AUTOINCREMENT", "bytes": "BLOB"}
)


# To translate a statement takes 3 to 8 µs, and to run a small one 10.
@lru_cache(maxsize=PREPARED_STATEMENTS)
def sqlite_text(sql: str) -> str:
    """Return a statement in SQLite's words."""
    with_lists = re.sub(r"= ANY\((\$\d+)\)", r"IN (SELECT value FROM json_each(\1))", sql)
    return with_lists.replace(" FOR UPDATE", "").replace(CLOCK, SQLITE_CLOCK)


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
        return await asyncio.wrap_future(self._writer.submit(partial(self._writer.transact, "BEGIN IMMEDIATE", work)))

    async def read(self, work: Work[T]) -> T:
        """Do a piece of work that changes nothing."""
        lane = await self._readers.get()
        job = lane.submit(partial(lane.transact, "BEGIN", work))
        try:
            return await asyncio.wrap_future(job)
        finally:
            self._free(lane, job)

    async def vacuum(self) -> None:
        """Give the room of removed rows back to the system."""

        def run(connection: sqlite3.Connection) -> None:
            for statement in VACUUM:
                connection.execute(statement).fetchall()

        await asyncio.wrap_future(self._writer.submit(run))

    async def aclose(self) -> None:
        """Finish what was begun, and close the file."""
        await asyncio.gather(*(asyncio.wrap_future(lane.close()) for lane in self._lanes))

    def abandon(self) -> None:
        """Interrupt what was begun; each connection is closed by its thread as soon as that can."""
        for lane in self._lanes:
            lane.abandon()

    def _free(self, lane: "_Lane", job: "Future[T]") -> None:
        """Let others have a reader, as soon as its thread is free: one whose client has left may still be busy."""
        if job.done():
            self._readers.put_nowait(lane)
            return
        loop = asyncio.get_running_loop()

        def free(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # The loop may be closed by then.
                loop.call_soon_threadsafe(self._readers.put_nowait, lane)

        job.add_done_callback(free)


class _Lane:
    """A connection and its thread; both begin when they are first needed.

    The thread does not keep the process from ending: it may hang in a file system that does not answer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._abandoned = False

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """Let the thread do a piece of work after those that it has."""
        return self._submit(partial(self._run, work))

    def transact(self, begin: str, work: Work[T], connection: sqlite3.Connection) -> T:
        """Do a piece of work in a transaction, in the thread."""
        connection.execute(begin)
        try:
            result = _finished(work(SqliteTransaction(connection)))
            self._check()
            connection.execute("COMMIT")
        except BaseException:
            # Some failures, such as a full disk, have ended the transaction already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def close(self) -> "Future[None]":
        """Finish the work that is there, then close the connection and end the thread."""
        closing = self._submit(self._close)
        self._jobs.put(None)
        return closing

    def abandon(self) -> None:
        """Commit nothing any more, and do the same without waiting."""
        self._abandoned = True
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(sqlite3.ProgrammingError):  # It was closed at this very moment.
                connection.interrupt()
        self.close()

    def _submit(self, work: Callable[[], T]) -> "Future[T]":
        job: Future[T] = Future()
        self._jobs.put(partial(_complete, job, work))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="store", daemon=True)
            self._thread.start()
        return job

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            # It holds what was kept, megabytes perhaps, and the next one may take a while to come.
            del job

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with failures_told(FAILURES, but=MISTAKES, describe=_described):
            self._check()
            if self._connection is None:
                self._connection = _connected(self._path)
            return work(self._connection)

    def _check(self) -> None:
        if self._abandoned:
            raise sqlite3.OperationalError("it took too long")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _complete(job: "Future[T]", work: Callable[[], T]) -> None:
    """Do the work of a job, unless nobody waits for it any more."""
    if not job.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  # Raised again where the job is awaited.
        job.set_exception(error)
    else:
        job.set_result(result)


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
