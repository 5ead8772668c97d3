"""The interface of a SQL database, and a circuit breaker around it. A unit of work is one transaction.

Each statement is written once, in the SQL that SQLite and Postgres share, with Postgres' placeholders (`$1`), arrays
(`= ANY($1)`), row locks (`FOR UPDATE`) and clock. `$1` is a named parameter to SQLite; `sqlite.py` translates the rest.

No request waits long for the database, and none at all while the circuit is open. A database that does not answer in
time is abandoned with its connections and threads. From then on every call fails at once, until a background task has
opened the database again.
"""

import asyncio
import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, TypeVar

import structlog

from turnbridge.turn.errors import BackendUnavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")
Value: TypeAlias = str | int | float | bytes | Sequence[str | int] | None

UNAVAILABLE = "store_unavailable"
NO_ANSWER = "it does not answer"
# Unix time of the database server: the clocks of gateways that share a database may differ.
CLOCK = "extract(epoch FROM clock_timestamp())"
NOW = f"CAST({CLOCK} AS DOUBLE PRECISION)"
# Postgres cannot index a row of more than 2,704 bytes, and the index holds the owner beside the id.
LONGEST_TEXT_BYTES = 2000


def storable_text(text: str) -> str:
    """Return a text, such as an id from a client, in a form that both databases can store and index.

    Postgres rejects NUL characters, so they are replaced; a very long text is replaced by a digest.
    """
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    whole = text.encode()
    return text if len(whole) <= LONGEST_TEXT_BYTES else f"long_{hashlib.sha256(whole).hexdigest()}"


def bound(value: Value) -> Value:
    """Return a value as it is bound to a parameter."""
    if isinstance(value, str):
        return storable_text(value)
    if value is None or isinstance(value, int | float | bytes):
        return value
    return [storable_text(part) if isinstance(part, str) else part for part in value]


class Transaction(ABC):
    """Runs the statements of one unit of work."""

    types: ClassVar[dict[str, str]]
    """The column types in the statements of `schema.py`."""
    before_migrating: ClassVar[tuple[str, ...]] = ()
    """Statements that serialise the migrations of several processes."""
    number_on: ClassVar[str | None] = None
    """The statement that lets a column be numbered on after the rows that are there; none where that is so anyway."""

    @abstractmethod
    async def fetch(self, sql: str, values: Sequence[Value]) -> Sequence[Sequence[object]]:
        """Run a statement and return its rows."""

    @abstractmethod
    async def execute_each(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""

    async def execute(self, sql: str, *values: Value) -> None:
        await self.fetch(sql, values)

    async def rows(self, make: Callable[..., T], sql: str, *values: Value) -> list[T]:
        """Run a statement and return `make(*columns)` for each row."""
        return [make(*row) for row in await self.fetch(sql, values)]

    async def row(self, make: Callable[..., T], sql: str, *values: Value) -> T | None:
        """Run a statement and return `make(*columns)` for the first row, if there is one."""
        found = await self.rows(make, sql, *values)
        return found[0] if found else None


Work: TypeAlias = Callable[[Transaction], Awaitable[T]]


class Database(Protocol):
    """A database. A unit of work awaits nothing but its own statements, and may be retried."""

    async def write(self, work: Work[T]) -> T:
        """Run a unit of work that changes rows, atomically."""

    async def read(self, work: Work[T]) -> T:
        """Run a unit of work that only reads, on one snapshot."""

    async def vacuum(self) -> None:
        """Return the space of deleted rows to the operating system."""

    async def aclose(self) -> None:
        """Finish the work that has started, and disconnect."""

    def abandon(self) -> None:
        """Disconnect at once, without waiting: no open transaction is committed after this."""


@contextlib.contextmanager
def translated_errors(
    failures: tuple[type[Exception], ...], *, bugs: tuple[type[Exception], ...], describe: Callable[[Exception], str]
) -> Iterator[None]:
    """Turn failures of the database, except for bugs of ours, into the error that clients see."""
    try:
        yield
    except bugs:
        raise
    except failures as error:
        raise unavailable(describe(error)) from error


def unavailable(reason: str) -> BackendUnavailable:
    """Return the error for a database that cannot be used."""
    return BackendUnavailable(
        f"The store cannot be used: {reason}. Requests with `store: false` do not need it.", code=UNAVAILABLE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTiming:
    """The timeouts of the circuit breaker."""

    timeout_s: float = 2.0
    """How long a finished answer waits to be stored. Work on the store takes milliseconds."""
    probe_after_s: float = 1.0
    """When work takes this long, a probe runs beside it, which shows whether the work or the database is slow."""
    retry_s: float = 1.0
    """Between attempts to open the database."""


class GuardedDatabase:
    """A `Database` that is opened on first use, abandoned when it hangs, and then opened again."""

    def __init__(self, connect: Callable[[], Coroutine[None, None, Database]], timing: BreakerTiming) -> None:
        self._connect = connect
        self._timing = timing
        self._opened: Database | None = None
        self._opening: asyncio.Task[Database] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failure: str | None = None
        """The message of every call while the circuit is open."""
        self._failed_at = 0.0

    async def write(self, work: Work[T]) -> T:
        return await self._bounded(lambda database: database.write(work), lambda database: database.write(_probe))

    async def read(self, work: Work[T]) -> T:
        return await self._bounded(lambda database: database.read(work), lambda database: database.read(_probe))

    async def unbounded(self, do: Callable[[Database], Awaitable[T]]) -> T:
        """Return the result of work without a timeout."""
        if self._failure is not None:
            raise BackendUnavailable(self._failure, code=UNAVAILABLE)
        return await self._on_opened(do)

    async def vacuum(self) -> None:
        await self.unbounded(lambda database: database.vacuum())

    async def aclose(self) -> None:
        """Disconnect; a database that hangs is abandoned."""
        if self._retry is not None:
            self._retry.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._opened is not None:
            closing = asyncio.ensure_future(self._opened.aclose())
            await asyncio.wait((closing,), timeout=self._timing.timeout_s)
            if closing.done():
                closing.result()
            else:
                self._opened.abandon()
                discard(closing)

    def abandon(self) -> None:
        if self._opened is not None:
            self._opened.abandon()

    async def _bounded(self, do: Callable[[Database], Awaitable[T]], probe: Callable[[Database], Awaitable[None]]) -> T:
        """Return the result of work; raise `BackendUnavailable` after the timeout."""
        if self._failure is not None:
            raise BackendUnavailable(self._failure, code=UNAVAILABLE)
        used = self._opened
        working = asyncio.ensure_future(self._on_opened(do))
        probing: asyncio.Future[None] | None = None
        try:
            ended = await _ends(working, within_s=self._timing.probe_after_s)
            if not ended:
                probing = asyncio.ensure_future(self._on_opened(probe))
                ended = await _ends(working, within_s=self._timing.timeout_s - self._timing.probe_after_s)
            if ended:
                return working.result()
            if (probing is None or not _succeeded(probing)) and self._opened is used:
                self._trip()
            raise unavailable(NO_ANSWER)
        finally:
            discard(working, probing)

    async def _on_opened(self, do: Callable[[Database], Awaitable[T]]) -> T:
        if self._opened is not None:
            return await do(self._opened)
        opening = self._opening
        if opening is None or opening.done():
            opening = self._start_opening()
        return await do(await asyncio.shield(opening))

    def _trip(self) -> None:
        """Abandon a database that hangs, and start to open it again."""
        abandoned, self._opened = self._opened, None
        self._open_circuit(unavailable(NO_ANSWER))
        if abandoned is not None:
            abandoned.abandon()
            self._start_opening()

    def _open_circuit(self, error: BackendUnavailable) -> None:
        if self._failure is None:
            self._failed_at = asyncio.get_running_loop().time()
            log.warning("store_away", reason=error.message)
        self._failure = error.message

    def _start_opening(self) -> "asyncio.Task[Database]":
        self._opening = asyncio.create_task(self._connect())
        self._opening.add_done_callback(self._on_attempt_ended)
        return self._opening

    def _on_attempt_ended(self, opening: "asyncio.Task[Database]") -> None:
        """Close the circuit, or schedule the next attempt. A bug of ours is raised to the callers that wait for it."""
        if opening.cancelled():
            return
        loop = asyncio.get_running_loop()
        error = opening.exception()
        if error is None:
            self._opened = opening.result()
            if self._failure is not None:
                log.info("store_back", away_s=round(loop.time() - self._failed_at, 3))
            self._failure = None
        elif isinstance(error, BackendUnavailable):
            self._open_circuit(error)
            self._retry = loop.call_later(self._timing.retry_s, self._start_opening)


class UnboundedDatabase:
    """A guarded database without the timeout: maintenance may take longer than a request waits."""

    def __init__(self, guarded: GuardedDatabase) -> None:
        self._guarded = guarded
        self.vacuum, self.aclose, self.abandon = guarded.vacuum, guarded.aclose, guarded.abandon

    async def write(self, work: Work[T]) -> T:
        return await self._guarded.unbounded(lambda database: database.write(work))

    async def read(self, work: Work[T]) -> T:
        return await self._guarded.unbounded(lambda database: database.read(work))


async def _probe(tx: Transaction) -> None:
    await tx.execute("SELECT 1")


async def _ends(task: "asyncio.Future[T]", *, within_s: float) -> bool:
    """Wait for a task, at most so long; tell whether it has ended. `asyncio.wait` makes three times the calls."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    timer = loop.call_later(within_s, wake)
    task.add_done_callback(wake)
    try:
        await woken
    finally:
        timer.cancel()
        task.remove_done_callback(wake)
    return task.done()


def _succeeded(task: "asyncio.Future[None]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def discard(*tasks: "asyncio.Future[T] | asyncio.Future[None] | None") -> None:
    """Cancel tasks whose results nobody needs, and retrieve their exceptions."""
    for task in tasks:
        if task is not None:
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
