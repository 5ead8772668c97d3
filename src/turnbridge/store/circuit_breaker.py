"""The gateway's way to its database: no request waits long for it, and none waits at all while it is away.

A circuit breaker. A database that does not answer in time is abandoned with all its connections and threads; from then
on every call fails at once, until it has been opened again, which is tried in the background.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from turnbridge.store.database import UNAVAILABLE, Database, Transaction, Work, unavailable
from turnbridge.store.schema import migrate
from turnbridge.turn.errors import BackendUnavailable

T = TypeVar("T")

log = structlog.get_logger(__name__)

# How long an answer that is ready waits to be kept. Work on the store takes milliseconds.
PATIENCE_S = 2.0
# When work takes this long, a probe beside it shows which of the two is slow: the work, or the database.
DOUBT_S = 1.0
# Between attempts to open a database that is away.
RETRY_S = 1.0

NO_ANSWER = "it does not answer"


class GuardedDatabase:
    """A database that is opened when it is first needed, abandoned when it hangs, and opened again when it is back."""

    def __init__(self, connect: Callable[[], Awaitable[Database]]) -> None:
        self._connect = connect
        self._opened: Database | None = None
        self._opening: asyncio.Task[Database] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._away: str | None = None
        """What every call is told while the database is away."""
        self._away_since = 0.0

    @property
    def away(self) -> bool:
        """Tell whether calls fail at once."""
        return self._away is not None

    async def write(self, work: Work[T]) -> T:
        """Do a piece of work that changes something."""
        return await self._bounded(lambda database: database.write(work), lambda database: database.write(_nothing))

    async def read(self, work: Work[T]) -> T:
        """Do a piece of work that changes nothing."""
        return await self._bounded(lambda database: database.read(work), lambda database: database.read(_nothing))

    async def work_at_leisure(self, do: Callable[[Database], Awaitable[T]]) -> T:
        """Return the result of work that nobody waits for, however long it takes."""
        if self._away is not None:
            raise BackendUnavailable(self._away, code=UNAVAILABLE)
        return await self._on_open(do)

    async def vacuum(self) -> None:
        """Give the room of removed rows back to the system, however long it takes."""
        await self.work_at_leisure(lambda database: database.vacuum())

    async def aclose(self) -> None:
        """Disconnect; a database that hangs is not waited for."""
        if self._retry is not None:
            self._retry.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._opened is not None:
            closing = asyncio.ensure_future(self._opened.aclose())
            await asyncio.wait((closing,), timeout=PATIENCE_S)
            if closing.done():
                closing.result()
            else:
                self._opened.abandon()
                _drop(closing)

    def abandon(self) -> None:
        """Disconnect at once."""
        if self._opened is not None:
            self._opened.abandon()

    async def _bounded(self, do: Callable[[Database], Awaitable[T]], probe: Callable[[Database], Awaitable[None]]) -> T:
        """Return the result of work; raise `BackendUnavailable` when it takes too long."""
        if self._away is not None:
            raise BackendUnavailable(self._away, code=UNAVAILABLE)
        used = self._opened
        working = asyncio.ensure_future(self._on_open(do))
        probing: asyncio.Future[None] | None = None
        try:
            done, _ = await asyncio.wait((working,), timeout=DOUBT_S)
            if not done:
                probing = asyncio.ensure_future(self._on_open(probe))
                done, _ = await asyncio.wait((working,), timeout=PATIENCE_S - DOUBT_S)
            if done:
                return working.result()
            if (probing is None or not _succeeded(probing)) and self._opened is used:
                self._give_up()
            raise unavailable(NO_ANSWER)
        finally:
            _drop(working, probing)

    async def _on_open(self, do: Callable[[Database], Awaitable[T]]) -> T:
        if self._opened is not None:
            return await do(self._opened)
        opening = self._opening
        if opening is None or opening.done():
            opening = self._open_again()
        return await do(await asyncio.shield(opening))

    def _give_up(self) -> None:
        """Let go of a database that hangs, and begin to open it again."""
        abandoned, self._opened = self._opened, None
        self._leave(unavailable(NO_ANSWER))
        if abandoned is not None:
            abandoned.abandon()
            self._open_again()

    def _leave(self, error: BackendUnavailable) -> None:
        if self._away is None:
            self._away_since = asyncio.get_running_loop().time()
            log.warning("store_away", reason=error.message)
        self._away = error.message

    def _open_again(self) -> "asyncio.Task[Database]":
        self._opening = asyncio.create_task(self._open())
        self._opening.add_done_callback(self._tried)
        return self._opening

    def _tried(self, opening: "asyncio.Task[Database]") -> None:
        """Note how an attempt to open the database ended. A defect of ours is told to whoever waits for the attempt."""
        if opening.cancelled():
            return
        loop = asyncio.get_running_loop()
        error = opening.exception()
        if error is None:
            self._opened = opening.result()
            if self._away is not None:
                log.info("store_back", away_s=round(loop.time() - self._away_since, 3))
            self._away = None
        elif isinstance(error, BackendUnavailable):
            self._leave(error)
            self._retry = loop.call_later(RETRY_S, self._open_again)

    async def _open(self) -> Database:
        database = await self._connect()
        migrating = asyncio.ensure_future(database.write(migrate))
        try:
            await asyncio.wait((migrating,))
            migrating.result()
        except BaseException:
            database.abandon()
            _drop(migrating)
            raise
        return database


class Unhurried:
    """A guarded database for upkeep: to count all that is kept may take longer than a request would wait."""

    def __init__(self, guarded: GuardedDatabase) -> None:
        self._guarded = guarded

    async def write(self, work: Work[T]) -> T:
        """Do a piece of work that changes something."""
        return await self._guarded.work_at_leisure(lambda database: database.write(work))

    async def read(self, work: Work[T]) -> T:
        """Do a piece of work that changes nothing."""
        return await self._guarded.work_at_leisure(lambda database: database.read(work))

    async def vacuum(self) -> None:
        """Give the room of removed rows back to the system."""
        await self._guarded.vacuum()

    async def aclose(self) -> None:
        """Disconnect."""
        await self._guarded.aclose()

    def abandon(self) -> None:
        """Disconnect at once."""
        self._guarded.abandon()


async def _nothing(tx: Transaction) -> None:
    await tx.execute("SELECT 1")


def _succeeded(task: "asyncio.Future[None]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _drop(*tasks: "asyncio.Future[T] | asyncio.Future[None] | None") -> None:
    """Stop tasks that nobody waits for any more; what becomes of them is nobody's concern."""
    for task in tasks:
        if task is not None:
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
