"""The interface of a SQL database: units of work, each in one transaction.

Each statement is written once, in the SQL that SQLite and Postgres share, with Postgres' placeholders (`$1`), arrays
(`= ANY($1)`), row locks (`FOR UPDATE`) and clock. `$1` is a named parameter to SQLite; `sqlite.py` translates the rest.
"""

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import ClassVar, Protocol, TypeAlias, TypeVar

from turnbridge.turn.errors import BackendUnavailable

T = TypeVar("T")
Value: TypeAlias = str | int | float | bytes | Sequence[str | int] | None

UNAVAILABLE = "store_unavailable"
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
