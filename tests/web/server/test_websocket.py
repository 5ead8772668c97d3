"""Connections that become WebSockets, without anything behind them: frames, bounds, ends."""

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from tests.web.server.raw_connection import PATIENCE_S, Connection, connected, until
from turnbridge.web.server.connection_limits import ConnectionLimits
from turnbridge.web.server.websocket import WebSocket, upgrade_of

pytestmark = pytest.mark.anyio

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: here\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
LARGEST = 100_000


class Echo:
    """An application that repeats every message, and counts connections that have ended."""

    def __init__(self) -> None:
        self.sockets: list[WebSocket] = []
        self.ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        upgrade = upgrade_of(scope)
        if upgrade is None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
            await send({"type": "http.response.body", "body": b"plain"})
            return
        await upgrade.accept(self.serve, max_message_bytes=LARGEST)(scope, receive, send)

    async def serve(self, socket: WebSocket) -> None:
        self.sockets.append(socket)
        while (message := await socket.receive()) is not None:
            await socket.send([message])
        self.ended += 1


@contextlib.asynccontextmanager
async def raw(app: Echo) -> AsyncIterator[Connection]:
    """Open a WebSocket byte by byte."""
    async with connected(app) as connection:
        await connection.send(HANDSHAKE)
        async with asyncio.timeout(PATIENCE_S):
            head = await connection.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"transfer-encoding" not in head.lower()
        assert b"content-length" not in head.lower()
        assert b"sec-websocket-accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n" in head
        await until(lambda: app.sockets)
        yield connection


@contextlib.asynccontextmanager
async def opened(app: Echo) -> AsyncIterator[ClientConnection]:
    """Open a WebSocket with a library."""
    async with connected(app) as connection:
        host, port = connection.writer.get_extra_info("peername")
        async with connect(f"ws://{host}:{port}/", max_size=None, ping_interval=None) as client:
            yield client


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


async def closes_with(connection: Connection) -> int:
    """Return the code of the close frame that comes last; the connection ends after it."""
    async with asyncio.timeout(PATIENCE_S):
        rest = await connection.reader.read()
    _, _, close = rest.rpartition(b"\x88")
    (code,) = struct.unpack("!H", close[1:3])
    return int(code)


@pytest.mark.promise("websocket.handshake")
async def test_a_connection_may_serve_requests_before_it_becomes_a_websocket() -> None:
    app = Echo()
    async with connected(app) as connection:
        await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        assert (await connection.answer())[2] == b"plain"
        await connection.send(HANDSHAKE + b"")
        async with asyncio.timeout(PATIENCE_S):
            await connection.reader.readuntil(b"\r\n\r\n")
            await connection.send(frame(Opcode.TEXT, b"hello"))
            assert await connection.reader.readexactly(7) == b"\x81\x05hello"
        assert len(connection.server.limits) == 1


@pytest.mark.promise("websocket.handshake")
@pytest.mark.parametrize(
    "wrong",
    [
        (b"version: 13", b"version: 8"),
        (b"AAAAAAAAAAAAAAAAAAAAAA==", b"eA=="),
        (b"sec-websocket-key", b"x-key"),
        (b"connection: Upgrade", b"connection: keep-alive, Upgrade, close"),
    ],
    ids=["version", "short key", "no key", "close"],
)
async def test_a_wrong_handshake_opens_nothing(wrong: tuple[bytes, bytes]) -> None:
    app = Echo()
    async with connected(app) as connection:
        await connection.send(HANDSHAKE.replace(*wrong))
        async with asyncio.timeout(PATIENCE_S):
            await connection.reader.read(1)
        assert app.sockets == []


@pytest.mark.promise("websocket.same-events")
@given(message=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=5), size=st.integers(1, 50))
async def test_a_message_is_the_same_in_any_fragments_and_pieces(message: bytes, cuts: list[int], size: int) -> None:
    places = sorted({0, len(message), *(cut for cut in cuts if cut <= len(message))})
    parts = [message[start:end] for start, end in itertools.pairwise(places)] or [b""]
    frames = [
        frame(Opcode.TEXT if number == 0 else Opcode.CONT, part, fin=number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]
    data = frame(Opcode.PING).join([b"", *frames])
    socket, arrived = unconnected(), []
    for start in range(0, len(data), size):
        socket.data_received(data[start : start + size])
    arrived = list(socket._arrived)
    socket.connection_lost(None)
    assert arrived == [message]


class Pipe(asyncio.Transport):
    """A transport that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def unconnected() -> WebSocket:
    return WebSocket(Pipe(), ConnectionLimits(1), max_message_bytes=LARGEST, ended=lambda: None)


@pytest.mark.promise("websocket.bounds")
@pytest.mark.parametrize("fragments", [1, 2, 1000])
async def test_a_message_above_the_limit_closes_the_connection(fragments: int) -> None:
    app = Echo()
    async with raw(app) as connection:
        size = LARGEST // fragments + 1
        sent = [frame(Opcode.TEXT, b"x" * size, fin=fragments == 1)]
        sent += [frame(Opcode.CONT, b"x" * size, fin=False) for _ in range(fragments - 1)]
        with contextlib.suppress(ConnectionError):
            await connection.send(b"".join(sent))
        assert await closes_with(connection) == 1009
        connection.writer.close()
        await until(lambda: app.ended == 1 and len(connection.server.limits) == 0)


@pytest.mark.promise("websocket.undisturbed")
@pytest.mark.parametrize(
    "data",
    [b"garbage" * 1000, b"\x81\x05hello", frame(Opcode.CONT, b"x"), b"\x09\x80", b"\xf1\x80"],
    ids=["no frames", "unmasked", "nothing to continue", "fragmented ping", "reserved bits"],
)
async def test_what_is_no_frame_closes_the_connection(data: bytes) -> None:
    app = Echo()
    async with raw(app) as connection:
        await connection.send(data + b"\x00" * 32)
        assert await closes_with(connection) == 1002
        await until(lambda: app.ended == 1)


@pytest.mark.promise("websocket.leaving")
@pytest.mark.parametrize("leave", ["half close", "reset", "close frame"])
async def test_however_a_client_leaves_the_application_hears_of_it(leave: str) -> None:
    app = Echo()
    async with raw(app) as connection:
        if leave == "half close":
            connection.writer.write_eof()
        elif leave == "reset":
            connection.writer.transport.abort()
        else:
            await connection.send(frame(Opcode.CLOSE, struct.pack("!H", 1000)))
            assert await closes_with(connection) == 1000
        await until(lambda: app.ended == 1 and not connection.server.server_state.connections)
        app.sockets[0].mark(busy=False, waiting_bytes=1)
        assert (len(connection.server.limits), connection.server.limits.held) == (0, {})


@pytest.mark.promise("websocket.keepalive")
async def test_a_client_is_pinged_and_one_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebSocket, "ping_s", 0.02)
    monkeypatch.setattr(WebSocket, "silence_s", 0.1)
    monkeypatch.setattr(WebSocket, "closing_s", 0.1)
    app = Echo()
    async with raw(app) as connection:
        async with asyncio.timeout(PATIENCE_S):
            assert await connection.reader.readexactly(2) == b"\x89\x00"
        assert await closes_with(connection) == 1011


@pytest.mark.promise("websocket.keepalive")
async def test_a_client_that_answers_pings_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebSocket, "ping_s", 0.02)
    monkeypatch.setattr(WebSocket, "silence_s", 0.2)
    app = Echo()
    async with opened(app) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.recv()
        await client.send("hello")
        assert await client.recv() == "hello"


@contextlib.asynccontextmanager
async def unread(app: Echo) -> AsyncIterator[tuple[Connection, Callable[[bytes], Coroutine[None, None, None]]]]:
    """Open a WebSocket that sends and never reads."""
    async with connected(app) as connection:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, connection.writer.get_extra_info("peername"))
            await loop.sock_sendall(client, HANDSHAKE)
            await until(lambda: app.sockets)

            async def flood(data: bytes) -> None:
                with contextlib.suppress(ConnectionError):
                    await loop.sock_sendall(client, data)

            yield connection, flood


@pytest.mark.promise("websocket.bounds")
async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebSocket, "most_unread_bytes", 100_000)
    monkeypatch.setattr(WebSocket, "unread_patience_s", 0.1)
    app = Echo()
    with capture_logs() as logs:
        async with unread(app) as (_, flood):
            sending = asyncio.ensure_future(
                asyncio.wait_for(flood(frame(Opcode.TEXT, b"x" * 50_000) * 400), PATIENCE_S)
            )
            await until(lambda: app.ended == 1)
            await sending
    assert [log["event"] for log in logs] == ["slow_reader"]


@pytest.mark.promise("websocket.bounds")
async def test_answers_to_pings_that_nobody_reads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebSocket, "most_unread_bytes", 100_000)
    app = Echo()
    async with unread(app) as (_, flood):
        sending = asyncio.ensure_future(flood(frame(Opcode.PING, b"x" * 100) * 100_000))
        await until(lambda: app.ended == 1)
        await sending


@pytest.mark.promise("websocket.bounds")
async def test_the_connection_that_holds_most_of_unfinished_messages_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebSocket, "most_held_bytes", 50_000)
    app = Echo()
    async with raw(app) as large:
        await large.send(frame(Opcode.TEXT, b"x" * 40_000, fin=False))
        await until(lambda: sum(large.server.limits.held.values()) == 40_000)
        host, port = large.writer.get_extra_info("peername")
        async with connect(f"ws://{host}:{port}/") as small:
            await small.send(["y" * 20_000, "z"])
            assert await small.recv() == "y" * 20_000 + "z"
            app.sockets[1].mark(busy=False)
            assert sum(large.server.limits.held.values()) == 0
            assert await closes_with(large) == 1013


@pytest.mark.promise("websocket.bounds")
async def test_an_idle_websocket_makes_room_for_a_new_connection_and_a_busy_one_does_not() -> None:
    app = Echo()
    async with raw(app) as connection:
        limits = connection.server.limits
        limits.most = 2
        (socket_,) = app.sockets
        host, port = connection.writer.get_extra_info("peername")
        socket_.mark(busy=True)
        async with connect(f"ws://{host}:{port}/") as other:
            await until(lambda: len(app.sockets) == 2)
            app.sockets[1].mark(busy=False)
            _, writer = await asyncio.open_connection(host, port)
            with pytest.raises(ConnectionClosed) as closed:
                await other.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1013
            writer.close()
        assert app.ended == 1


@pytest.mark.promise("websocket.drain")
async def test_a_server_that_stops_closes_its_websockets() -> None:
    app = Echo()
    async with raw(app) as connection:
        connection.server.stop()
        assert await closes_with(connection) == 1012
