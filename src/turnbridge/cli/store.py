"""`turnbridge store`: inspection and maintenance of the response store."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeVar
from urllib.parse import urlsplit

import click
import msgspec
from click.exceptions import Exit

from turnbridge.cli.console import EXIT_UNAVAILABLE, refuse, usable_settings
from turnbridge.settings.fields import Settings
from turnbridge.store import copying
from turnbridge.store.schema import SQLITE_SCHEME, open_database, sqlite_file, store_url
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.errors import GatewayError

T = TypeVar("T")

BYTES_PER_MB = 1024 * 1024
SECONDS_PER_DAY = 24 * 3600


def show() -> None:
    """Show the location, size and contents of the store."""
    settings = usable_settings()
    figures = _with_store(settings, lambda store: store.figures())
    oldest = "-" if figures.oldest is None else f"{datetime.fromtimestamp(figures.oldest, UTC):%Y-%m-%d %H:%M} UTC"
    rows = {
        "Location": _where(settings),
        "Retention": f"{settings.store_ttl_days:g} days, {settings.store_max_mb} MB at most",
        "Size": _megabytes(figures.bytes),
        "Responses": str(figures.responses),
        "Conversations": str(figures.conversations),
        "Chat completions": str(figures.chats),
        "Files": str(figures.files),
        "Items": str(figures.items),
        "Oldest": oldest,
    }
    width = max(map(len, rows))
    click.echo("\n".join(f"{name:{width}}  {value}" for name, value in rows.items()))


def prune(*, older_than_days: float | None, max_mb: int | None) -> None:
    """Delete entries by age and size, as the gateway itself does every 15 minutes."""
    settings = usable_settings()
    days = settings.store_ttl_days if older_than_days is None else older_than_days
    most = settings.store_max_mb if max_mb is None else max_mb
    # Zero days include what was created in this very second.
    made_before = int(time.time() - days * SECONDS_PER_DAY) + 1
    pruned = _with_store(settings, lambda store: store.prune(made_before=made_before, most_bytes=most * BYTES_PER_MB))
    click.echo(
        f"Deleted {pruned.responses} responses, {pruned.conversations} conversations, "
        f"{pruned.chats} chat completions and {pruned.files} files."
    )


def export(*, out: Path | None) -> None:
    """Export all entries, one JSON object per line."""

    async def write(store: SqlStore) -> None:
        with contextlib.nullcontext(sys.stdout.buffer) if out is None else _private(out) as lines:
            async for line in store.export():
                lines.write(msgspec.json.encode(line) + b"\n")

    try:
        _with_store(usable_settings(), write)
    except OSError as error:
        refuse(f"Cannot write {out or 'to standard output'}: {error.strerror}.", status=EXIT_UNAVAILABLE)


def vacuum() -> None:
    """Reclaim disk space; blocks the gateway's writes meanwhile."""
    settings = usable_settings()
    _with_store(settings, lambda store: store.vacuum())
    click.echo(f"Done: {_where(settings)}")


def copy(*, target: str) -> None:
    """Copy all entries to another, empty store: SQLite to Postgres, or back."""
    _copy(_url(usable_settings()), _as_url(target))


def import_(*, source: str) -> None:
    """Copy all entries of another store (postgresql://…, or a file of SQLite) into the gateway's own, empty one."""
    _copy(_as_url(source), _url(usable_settings()))


def _copy(source: str, target: str) -> None:
    if source == target:
        refuse("Source and target are the same store.")
    file = sqlite_file(source)
    if file is not None and not file.exists():
        refuse(f"There is no file {file}.")

    async def run() -> dict[str, int]:
        async with contextlib.AsyncExitStack() as stack:
            opened = []
            for url in (source, target):
                opened.append(await open_database(url))
                stack.push_async_callback(opened[-1].aclose)
            return await copying.copy(*opened, name=_location(source), tell=_tell)

    try:
        counts = asyncio.run(run())
    except GatewayError as error:
        refuse_store(error)
    click.echo(f"Copied {sum(counts.values())} rows from {_location(source)} to {_location(target)}.")


def _tell(table: str, count: int) -> None:
    click.echo(f"{table}: {count}")


def _as_url(given: str) -> str:
    return given if "://" in given else f"{SQLITE_SCHEME}{Path(given).expanduser().absolute()}"


def _url(settings: Settings) -> str:
    return settings.database_url or store_url(settings.data_dir)


def _with_store(settings: Settings, work: Callable[[SqlStore], Awaitable[T]]) -> T:
    """Return the result of work on the store; exit if its file does not exist."""
    file = sqlite_file(_url(settings))
    if file is not None and not file.exists():
        click.echo(f"The store is empty: there is no file {file}.", err=True)
        raise Exit
    try:
        return with_store(settings, work)
    except GatewayError as error:
        refuse_store(error)


def refuse_store(error: GatewayError) -> NoReturn:
    """Exit with what is wrong with the store."""
    reason = f"\n{error.__cause__}" if error.__cause__ is not None else ""
    refuse(f"{error.message}{reason}", status=EXIT_UNAVAILABLE)


def with_store(settings: Settings, work: Callable[[SqlStore], Awaitable[T]]) -> T:
    """Return the result of work on the store, which is made if it does not exist; raises `GatewayError`."""

    async def run() -> T:
        store = await open_store(_url(settings))
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(run())


def _where(settings: Settings) -> str:
    file = sqlite_file(_url(settings))
    size = "" if file is None else f" ({_megabytes(file.stat().st_size)} on disk)"
    return f"{store_location(settings)}{size}"


def store_location(settings: Settings) -> str:
    """Return the location of the store, without a password."""
    return _location(_url(settings))


def _location(url: str) -> str:
    parts = urlsplit(url)
    return str(sqlite_file(url) or f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def _megabytes(size: int) -> str:
    return f"{size / BYTES_PER_MB:.1f} MB"


def _private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
