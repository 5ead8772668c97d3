"""A database that is opened when it is first needed, and again if it could not be."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnbridge.store.database import Database, Work
from turnbridge.store.migrations import migrate
from turnbridge.turn.errors import BackendUnavailable

T = TypeVar("T")

# How long nobody tries again: a server that does not answer takes seconds to find out about.
PEACE_S = 5.0


class OpeningDatabase:
    """A database behind the door: a gateway need not wait for it, and goes on if it cannot be opened."""

    def __init__(self, connect: Callable[[], Awaitable[Database]]) -> None:
        self._connect = connect
        self._opened: Database | None = None
        self._opening = asyncio.Lock()
        self._failure: BackendUnavailable | None = None
        self._failed_at = 0.0

    async def write(self, work: Work[T]) -> T:
        """Do a piece of work that changes something."""
        return await (await self._database()).write(work)

    async def read(self, work: Work[T]) -> T:
        """Do a piece of work that changes nothing."""
        return await (await self._database()).read(work)

    async def vacuum(self) -> None:
        """Give the room of removed rows back to the system."""
        await (await self._database()).vacuum()

    async def aclose(self) -> None:
        """Disconnect."""
        if self._opened is not None:
            await self._opened.aclose()

    async def _database(self) -> Database:
        if self._opened is not None:
            return self._opened
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open()
            return self._opened

    async def _open(self) -> Database:
        loop = asyncio.get_running_loop()
        if self._failure is not None and loop.time() - self._failed_at < PEACE_S:
            # The trace of those who heard it before would keep their requests in memory.
            raise self._failure.with_traceback(None)
        try:
            database = await self._connect()
            try:
                await database.write(migrate)
            except BaseException:
                await database.aclose()
                raise
        except BackendUnavailable as error:
            self._failure, self._failed_at = error, loop.time()
            raise
        return database
