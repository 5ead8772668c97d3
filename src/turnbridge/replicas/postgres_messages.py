"""Messages between replicas over Postgres' LISTEN and NOTIFY, on a connection of their own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg

from turnbridge.replicas.messages import CHANNEL, CHECK_S, Messages

CONNECT_TIMEOUT_S = 10
ANSWER_TIMEOUT_S = 2.0


class PostgresMessages(Messages):
    """Messages over the database that has the store."""

    failures = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

    def __init__(self, replica: str, url: str) -> None:
        super().__init__(replica)
        self._url = url
        self._turn = asyncio.Lock()
        self._broken = asyncio.Event()
        self._opened: asyncpg.Connection[asyncpg.Record] | None = None

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[None]:
        settings = {"application_name": "turnbridge messages"}
        connection = await asyncpg.connect(self._url, timeout=CONNECT_TIMEOUT_S, server_settings=settings)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await connection.add_listener(f"{CHANNEL}{self.id}", self._heard)
            self._broken.clear()
            connection.add_termination_listener(lambda _: self._broken.set())
            self._opened = connection
            yield
        finally:
            self._opened = None
            connection.terminate()

    async def _publish(self, channel: str, body: bytes) -> None:
        await self._execute("SELECT pg_notify($1, $2)", channel, body.decode())

    async def _receive(self) -> None:
        # Messages come to `_heard`. A connection that hangs says nothing.
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._broken.wait()
            await self._execute("SELECT 1")

    async def _execute(self, sql: str, *values: str) -> None:
        async with self._turn:
            if self._opened is None:
                raise OSError("The connection for messages is closed.")
            await self._opened.execute(sql, *values, timeout=ANSWER_TIMEOUT_S)

    def _heard(self, connection: object, process: int, channel: str, payload: object) -> None:
        del connection, process, channel
        self._received(str(payload))
