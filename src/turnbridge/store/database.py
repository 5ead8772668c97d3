"""A database as the store sees it: pieces of work, each of them one transaction.

The statements are written once, in the words that both databases share, with Postgres' placeholders (`$1`), lists
(`= ANY($1)`), row locks (`FOR UPDATE`) and clock. The first are names to SQLite; `sqlite.py` turns the others into its
words.
"""

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, TypeVar

from turnbridge.turn.errors import BackendUnavailable

T = TypeVar("T")
Value: TypeAlias = str | int | float | bytes | Sequence[str | int] | None

UNAVAILABLE = "store_unavailable"
# Seconds since 1970 by the database's clock: the clocks of gateways that share a database may differ.
CLOCK = "extract(epoch FROM clock_timestamp())"
NOW = f"CAST({CLOCK} AS DOUBLE PRECISION)"
# Postgres cannot index a row beyond 2,704 bytes, and an owner stands beside the id.
LONGEST_TEXT_BYTES = 2000


def kept_text(text: str) -> str:
    """Return a text as both databases can hold it: rows are found by it, and clients make up ids as they like.

    A NUL would end it, so it becomes another character; of a very long one there is a digest.
    """
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    whole = text.encode()
    return text if len(whole) <= LONGEST_TEXT_BYTES else f"long_{hashlib.sha256(whole).hexdigest()}"


def bound(value: Value) -> Value:
    """Return a value as it is handed to a database."""
    if isinstance(value, str):
        return kept_text(value)
    if value is None or isinstance(value, int | float | bytes):
        return value
    return [kept_text(part) if isinstance(part, str) else part for part in value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What the two databases call differently in a table's definition, and in keeping others out."""

    names: dict[str, str]
    """The types in the statements of `schema.py`."""
    before_migrating: tuple[str, ...] = ()
    """What makes two processes migrate one after the other."""


class Transaction(ABC):
    """The statements of one piece of work."""

    dialect: ClassVar[Dialect]

    @abstractmethod
    async def fetch(self, sql: str, values: Sequence[Value]) -> Sequence[Sequence[object]]:
        """Run a statement and return its rows."""

    @abstractmethod
    async def execute_each(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each of the rows."""

    async def execute(self, sql: str, *values: Value) -> None:
        """Run a statement."""
        await self.fetch(sql, values)

    async def rows(self, make: Callable[..., T], sql: str, *values: Value) -> list[T]:
        """Run a statement and return what is made of the columns of each row."""
        return [make(*row) for row in await self.fetch(sql, values)]

    async def row(self, make: Callable[..., T], sql: str, *values: Value) -> T | None:
        """Run a statement and return what is made of the columns of its first row, if it has one."""
        found = await self.rows(make, sql, *values)
        return found[0] if found else None


Work: TypeAlias = Callable[[Transaction], Awaitable[T]]


class Database(Protocol):
    """Where the tables are. Work waits for nothing but its own statements, and may be run a second time."""

    async def write(self, work: Work[T]) -> T:
        """Do a piece of work that changes something: whole, or not at all."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Do a piece of work that changes nothing, on one state of the database."""
        ...

    async def vacuum(self) -> None:
        """Give the room of removed rows back to the system."""
        ...

    async def aclose(self) -> None:
        """Finish what was begun, and disconnect."""
        ...

    def abandon(self) -> None:
        """Disconnect at once, whatever was begun: nothing of it is committed from here on, and nobody waits for it."""
        ...


@contextlib.contextmanager
def failures_told(
    kinds: tuple[type[Exception], ...], *, but: tuple[type[Exception], ...], describe: Callable[[Exception], str]
) -> Iterator[None]:
    """Turn failures of the database, but for our own mistakes, into one that may be told to clients."""
    try:
        yield
    except but:
        raise
    except kinds as error:
        raise unavailable(describe(error)) from error


def unavailable(reason: str) -> BackendUnavailable:
    """Return what clients are told of a database that cannot be used."""
    return BackendUnavailable(
        f"The store cannot be used: {reason}. Requests with `store: false` do not need it.", code=UNAVAILABLE
    )
