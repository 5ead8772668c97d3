"""A relay of connections, which can fall silent: what a network does that loses every packet."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

Open = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
PIECE_BYTES = 64 * 1024


class Relay:
    """Passes bytes on between clients and a server, unless it is silent."""

    def __init__(self, connect: Open) -> None:
        self._connect = connect
        self._passes = asyncio.Event()
        self._passes.set()

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Pass nothing on in the meantime; what was sent arrives afterwards, as TCP sends it again."""
        self._passes.clear()
        try:
            yield
        finally:
            self._passes.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client."""
        await self._passes.wait()
        try:
            there, back = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def tcp_relay(port: int) -> AsyncIterator[tuple[Relay, int]]:
    """Relay to a port of this machine; return also the relay's own."""
    relay = Relay(lambda: asyncio.open_connection("127.0.0.1", port))
    async with await asyncio.start_server(relay.serve, "127.0.0.1", 0) as server:
        yield relay, server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def unix_relay(server_socket: Path, own: Path) -> AsyncIterator[Relay]:
    """Relay to a socket of this machine."""
    relay = Relay(lambda: asyncio.open_unix_connection(server_socket))
    async with await asyncio.start_unix_server(relay.serve, own):
        yield relay
