"""Databases that hang for a while: the lock of a SQLite file, or a Postgres whose processes are stopped."""

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import asyncpg

from tests.support.processes import descendants
from turnbridge.store.schema import sqlite_file


async def hanging(url: str) -> AbstractContextManager[None]:
    """Return a context in which a database hangs: for those who write to SQLite, for everybody in Postgres."""
    file = sqlite_file(url)
    if file is not None:
        return _locked(file)
    operator = await asyncpg.connect(url)
    directory = Path(await operator.fetchval("SHOW data_directory"))
    await operator.close()
    return _stopped(int((directory / "postmaster.pid").read_text().split()[0]))


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as stranger:
        stranger.execute("BEGIN EXCLUSIVE")
        yield


@contextlib.contextmanager
def _stopped(server: int) -> Iterator[None]:
    pids = [server, *descendants(server)]
    try:
        _signal(pids, signal.SIGSTOP)
        yield
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        # A connection may have ended meanwhile, and its process with it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
