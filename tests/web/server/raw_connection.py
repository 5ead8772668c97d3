"""A server on a free loopback port and a connection to it, byte by byte: for what no client library would send."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp

from turnbridge.web.server.http_protocol import HttpProtocol
from turnbridge.web.server.http_server import HttpServer

# Whoever waits so long has failed.
PATIENCE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection to a server, from the client's end."""

    server: HttpServer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def protocol(self) -> HttpProtocol:
        """Return the server's end, if this is the only connection."""
        (protocol,) = self.server.server_state.connections
        assert isinstance(protocol, HttpProtocol)
        return protocol

    async def send(self, data: bytes) -> None:
        """Send, and wait until the system has taken it."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return the next answer."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.rstrip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            return int(status.split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def closed(self) -> bool:
        """Wait until the server has closed the connection, and tell that it said nothing more."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read() == b""


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that tells nobody by itself."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def connected(app: ASGIApp) -> AsyncIterator[Connection]:
    """Serve, and connect."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = HttpServer(app)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            yield Connection(server=server, reader=reader, writer=writer)
        finally:
            writer.close()
            server.stop(at_once=True)
            await serving
