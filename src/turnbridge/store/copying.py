"""Copies all rows of one store to another, between SQLite and Postgres in both directions.

Tables and columns are read from the migrations, so that none is forgotten. Pages are written one by one, each in its
own transaction: a copy that was interrupted is resumed by running it again, and overwrites what it had written. Until
it is whole, the target has a mark with the name of its source; a target with rows and without this mark is refused.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from turnbridge.store.database import UNAVAILABLE, Database, Transaction, Value
from turnbridge.store.schema import VERSIONS
from turnbridge.turn.errors import BackendUnavailable

# Rows in memory at once; a row may be as large as a request.
PAGE = 100
MARK = "unfinished_copy"
# It counts changes of keys for the gateways that watch them, and has one row in every store.
WATCHED = "keys_version"
# Neither is what lives as long as a gateway runs.
NOT_COPIED = frozenset({WATCHED, "replicas", "claims"})

_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*)\)", re.DOTALL)
_ADDED = re.compile(r"ALTER TABLE (\w+) ADD COLUMN (\w+)")
_COLUMN = re.compile(r"^\s*([a-z]\w*) (?:\{|[A-Z])", re.MULTILINE)
_OWN_KEY = re.compile(r"^\s*(\w+) (?:\{key\}|[A-Z ]*PRIMARY KEY)", re.MULTILINE)
_COMMON_KEY = re.compile(r"PRIMARY KEY \(([\w, ]+)\)")
_NUMBERED = re.compile(r"^\s*(\w+) \{key\}", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as the migrations describe it."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    numbered: str | None
    """The column that the database numbers by itself."""

    def page(self, after: Sequence[Value]) -> str:
        """Return the statement for the rows after a key."""
        key = ", ".join(self.key)
        marks = ", ".join(f"${number}" for number in range(1, len(self.key) + 1))
        where = f"WHERE ({key}) > ({marks})" if after else ""
        return f"SELECT {', '.join(self.columns)} FROM {self.name} {where} ORDER BY {key} LIMIT {PAGE}"

    def upsert(self) -> str:
        """Return the statement that writes a row, over an earlier copy of it."""
        marks = ", ".join(f"${number}" for number in range(1, len(self.columns) + 1))
        others = ", ".join(f"{name} = excluded.{name}" for name in self.columns if name not in self.key)
        then = f"UPDATE SET {others}" if others else "NOTHING"
        columns = ", ".join(self.columns)
        return f"INSERT INTO {self.name} ({columns}) VALUES ({marks}) ON CONFLICT ({', '.join(self.key)}) DO {then}"

    def key_of(self, row: Sequence[Value]) -> tuple[Value, ...]:
        """Return the key of a row."""
        return tuple(row[self.columns.index(name)] for name in self.key)


def tables(versions: Sequence[Sequence[str]] = VERSIONS) -> list[Table]:
    """Return every table with rows to copy, each after those that it refers to."""
    found: dict[str, Table] = {}
    for statement in (each for version in versions for each in version):
        if made := _TABLE.search(statement):
            name, body = made[1], made[2]
            common, own = _COMMON_KEY.search(body), _OWN_KEY.search(body)
            key = tuple(common[1].split(", ")) if common else (own[1],) if own else ()
            numbered = _NUMBERED.search(body)
            columns = tuple(_COLUMN.findall(body))
            found[name] = Table(name=name, columns=columns, key=key, numbered=numbered[1] if numbered else None)
        elif added := _ADDED.search(statement):
            table = found[added[1]]
            columns = (*table.columns, added[2])
            found[table.name] = Table(name=table.name, columns=columns, key=table.key, numbered=table.numbered)
    return [table for table in found.values() if table.name not in NOT_COPIED]


async def copy(
    source: Database, target: Database, *, name: str, tell: Callable[[str, int], None] = lambda *_: None
) -> dict[str, int]:
    """Copy all rows; return how many each table has.

    `name` is the source's, without a password; `tell` hears of each table that is done.
    """
    await target.write(partial(_begin, name))
    counts: dict[str, int] = {}
    for table in tables():
        counts[table.name] = await _copy_table(source, target, table)
        tell(table.name, counts[table.name])
    there = await target.read(_counted)
    if there != await source.read(_counted):
        raise BackendUnavailable(
            "The store was written to while it was copied, so the copy is not whole. "
            "Stop the gateways that use either of them, and copy again.",
            code=UNAVAILABLE,
        )
    await target.write(_end)
    return counts


async def _begin(name: str, tx: Transaction) -> None:
    """Mark the target, unless it holds something that is not of this source."""
    await tx.execute(f"CREATE TABLE IF NOT EXISTS {MARK} (source TEXT NOT NULL)")
    marked = await tx.row(str, f"SELECT source FROM {MARK}")
    if marked == name:
        return
    if marked is not None or any((await _counted(tx)).values()):
        what = "entries of its own" if marked is None else f"an unfinished copy of {marked}"
        raise BackendUnavailable(f"The target has {what}. Copy to an empty one.", code=UNAVAILABLE)
    await tx.execute(f"INSERT INTO {MARK} (source) VALUES ($1)", name)


async def _copy_table(source: Database, target: Database, table: Table) -> int:
    after: tuple[Value, ...] = ()
    count = 0
    while rows := await source.read(partial(_read, table, after)):
        await target.write(partial(_write, table, rows))
        after = table.key_of(rows[-1])
        count += len(rows)
    return count


async def _read(table: Table, after: Sequence[Value], tx: Transaction) -> list[tuple[Value, ...]]:
    return await tx.rows(lambda *row: row, table.page(after), *after)


async def _write(table: Table, rows: Sequence[Sequence[Value]], tx: Transaction) -> None:
    await tx.execute_each(table.upsert(), rows)


async def _counted(tx: Transaction) -> dict[str, int]:
    return {table.name: await tx.row(int, f"SELECT count(*) FROM {table.name}") or 0 for table in tables()}


async def _end(tx: Transaction) -> None:
    """Let the database number on after the copied rows, let gateways read the keys anew, and remove the mark."""
    for table in tables():
        if table.numbered is not None and tx.number_on is not None:
            await tx.execute(tx.number_on.format(table=table.name, column=table.numbered))
    await tx.execute(f"UPDATE {WATCHED} SET version = version + 1")
    await tx.execute(f"DROP TABLE {MARK}")
