"""A connection that has become a WebSocket: whole messages in, messages out, within bounds.

`websockets` parses and writes frames; this is its transport. There is no compression: a small message could then grow
to any size, and the clients that are known offer it without need.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeAlias

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Protocol, Side, State
from websockets.server import ServerProtocol

from turnbridge.turn.errors import InvalidRequest
from turnbridge.web.server.connection_limits import ConnectionLimits

log = structlog.get_logger(__name__)

UPGRADE = "turnbridge.websocket"
"""The ASGI extension under which the scope of a handshake has its `Upgrade`."""

SWITCHING_PROTOCOLS = 101

# The parser gets this much at once, some 2,000 of the smallest frames: more would hold up the event loop.
PIECE_BYTES = 16 * 1024
# Messages that have arrived and not been taken, and their bytes; then nothing more is read.
MOST_ARRIVED = 64
MOST_ARRIVED_BYTES = 2**20


class WebSocket(asyncio.Protocol):
    """One connection. All that it writes is written at once and whole, so that messages never mix."""

    # What the client has not read: the same as for a turn whose client reads too slowly.
    most_unread_bytes = 8_000_000
    # How long a client may take to read some of that.
    unread_patience_s = 30.0
    # Messages of all connections that are unfinished or wait; the connection that holds most is closed at this limit.
    most_held_bytes = 256 * 2**20
    # Often enough for proxies, which close connections after a minute of silence.
    ping_s = 25.0
    # A client that has sent nothing for this long, not even the answer to a ping, is gone.
    silence_s = 300.0
    # How long the client may take to answer a close frame.
    closing_s = 5.0

    def __init__(
        self,
        transport: asyncio.Transport,
        limits: ConnectionLimits,
        *,
        max_message_bytes: int,
        ended: Callable[[], None],
    ) -> None:
        """`ended` is called when the connection is lost."""
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._limits = limits
        self._ended = ended
        self._parser = Protocol(Side.SERVER, max_size=max_message_bytes)
        self._unparsed = bytearray()
        self._parsing = False
        self._dropping = False
        """Whether what comes is of no interest any more."""
        self._unfinished = bytearray()
        """The fragments of a message so far."""
        self._arrived: deque[bytes] = deque()
        self._arrived_bytes = 0
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(self.ping_s, self._ping)
        self.lost = asyncio.Event()
        """Set when the connection has ended, or is about to."""
        self.close_code: int | None = None
        """Of the first close frame, whoever sent it."""
        self.on_shutdown: Callable[[], None] = lambda: self.close(CloseCode.SERVICE_RESTART)
        """Called when the server is told to stop."""
        transport.set_write_buffer_limits(high=self.most_unread_bytes)

    # What the application uses.

    async def receive(self) -> bytes | None:
        """Return the next message, or None when the connection has ended."""
        while not self._arrived and not self.lost.is_set():
            self._changed.clear()
            await self._changed.wait()
        if self.lost.is_set():
            return None
        message = self._arrived.popleft()
        self._arrived_bytes -= len(message)
        self._parse()
        return message

    async def send(self, messages: Sequence[bytes]) -> None:
        """Send messages; nothing happens if the connection has ended. Waits if the client reads too slowly."""
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(self.unread_patience_s):
                    await self._writable.wait()
            except TimeoutError:
                log.warning("slow_reader", websocket=True)
                self._end()
                self._transport.abort()
        if self._parser.state is State.OPEN and not self.lost.is_set():
            for message in messages:
                self._parser.send_text(message)
            self._write()

    def close(self, code: int, reason: str = "") -> None:
        """Say goodbye; closing again is a no-op."""
        if self._parser.state is State.OPEN and not self.lost.is_set():
            self._parser.send_close(code, reason)
            self._write()
            self._end()
            self._close_soon()

    def mark(self, *, busy: bool, waiting_bytes: int = 0) -> None:
        """Protect the connection from eviction while it is busy, and count the messages that wait after `receive`."""
        self._waiting_bytes = waiting_bytes
        self._bound_held()
        if busy:
            self._limits.mark_busy(self)
        else:
            self._limits.mark_idle(self)

    # What the server calls.

    def evict(self) -> None:
        """Close the idle connection in favour of a new one."""
        self.close(CloseCode.TRY_AGAIN_LATER, "Too many connections are open.")

    def shutdown(self) -> None:
        """Begin a graceful shutdown."""
        self.on_shutdown()

    # Callbacks of the transport.

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, in pieces."""
        if self._dropping:
            return
        self._heard_at = self._loop.time()
        self._unparsed += data
        self._parse()
        self._bound_held()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let everybody know who waits."""
        del exc  # Why it was lost changes nothing.
        self._end()
        self._timer.cancel()
        self._unparsed.clear()
        self._limits.release(self)
        self._limits.held.pop(self, None)
        self._writable.set()
        self._ended()

    # Own methods.

    def _parse(self) -> None:
        """Parse the next piece; the rest follows in later iterations of the event loop, and reading waits for it."""
        if self._parsing or not self._unparsed or self._transport.is_closing():
            return
        if len(self._arrived) >= MOST_ARRIVED or self._arrived_bytes > MOST_ARRIVED_BYTES:
            self._transport.pause_reading()
            return
        piece = bytes(self._unparsed[:PIECE_BYTES])
        del self._unparsed[:PIECE_BYTES]
        self._parser.receive_data(piece)
        for frame in self._parser.events_received():
            if isinstance(frame, Frame):
                self._take(frame)
        self._write()
        if self._parser.close_rcvd is not None:
            self._end()
            self._close_soon()
            self._transport.close()
        elif self._parser.parser_exc is not None:
            self._drop_rest()
        elif self._transport.is_closing():
            return
        elif self._unparsed:
            self._parsing = True
            self._transport.pause_reading()
            self._loop.call_soon(self._parse_on)
        else:
            self._transport.resume_reading()

    def _drop_rest(self) -> None:
        """Close the connection, and drop what still comes: unread data would reset it before the reason is read."""
        self._end()
        self._dropping = True
        self._unparsed.clear()
        self._close_soon()
        if not self._transport.is_closing():
            # Raises if the client has reset the connection.
            with contextlib.suppress(OSError):
                self._transport.write_eof()
            self._transport.resume_reading()

    def _parse_on(self) -> None:
        self._parsing = False
        self._parse()

    def _take(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if not frame.fin or self._unfinished:
            self._unfinished += frame.data
        if frame.fin:
            message = bytes(self._unfinished or frame.data)
            self._unfinished.clear()
            if not self.lost.is_set():
                self._arrived.append(message)
                self._arrived_bytes += len(message)
                self._changed.set()

    def _bound_held(self) -> None:
        """Close the connection that holds most, if what all connections hold of messages is too much."""
        held = self._limits.held
        if self.lost.is_set():
            held.pop(self, None)
            return
        parsed = len(self._parser.reader.buffer) + len(self._unfinished) + self._arrived_bytes
        held[self] = len(self._unparsed) + parsed + self._waiting_bytes
        if sum(held.values()) > self.most_held_bytes:
            largest = max(held, key=held.__getitem__)
            del held[largest]
            largest.evict()

    def _ping(self) -> None:
        if self._loop.time() - self._heard_at > self.silence_s:
            self.close(CloseCode.INTERNAL_ERROR, "The client does not answer.")
            return
        if self._parser.state is State.OPEN:
            self._parser.send_ping(b"")
            self._write()
        self._timer = self._loop.call_later(self.ping_s, self._ping)

    def _write(self) -> None:
        # Pings are answered without waiting for the client to read.
        if self._transport.get_write_buffer_size() > 2 * self.most_unread_bytes:
            self._transport.abort()
        elif data := b"".join(self._parser.data_to_send()):
            self._transport.write(data)

    def _end(self) -> None:
        if self.close_code is None and (told := self._parser.close_rcvd or self._parser.close_sent) is not None:
            self.close_code = told.code
        self.lost.set()
        self._changed.set()

    def _close_soon(self) -> None:
        """Give the client some time to answer the close frame."""
        self._timer.cancel()
        self._timer = self._loop.call_later(self.closing_s, self._transport.abort)


Serve: TypeAlias = Callable[[WebSocket], Coroutine[None, None, None]]


class Upgrade:
    """A client's offer to continue as a WebSocket."""

    def __init__(self, app: ASGIApp, scope: Scope, prepare: Callable[[], None]) -> None:
        """`app` is the whole application, which also serves what comes over the socket.

        `prepare` is called before the offer is accepted.
        """
        self.app = app
        self._scope = scope
        self._prepare = prepare
        self.serve: Serve | None = None
        """What serves the connection, once the offer is accepted."""
        self.max_message_bytes = 0

    def accept(self, serve: Serve, *, max_message_bytes: int) -> ASGIApp:
        """Return the answer that accepts the offer; raises `InvalidRequest` if the handshake is not valid."""
        headers = Headers()
        for name, value in self._scope["headers"]:
            headers[name.decode("latin-1")] = value.decode("latin-1")
        response = ServerProtocol().accept(Request(self._scope["path"], headers))
        if response.status_code != SWITCHING_PROTOCOLS:
            raise InvalidRequest(response.body.decode().strip(), code="invalid_handshake")
        told = [(name, response.headers[name]) for name in ("Upgrade", "Connection", "Sec-WebSocket-Accept")]

        async def switch(_: Scope, __: Receive, send: Send) -> None:
            self.serve, self.max_message_bytes = serve, max_message_bytes
            self._prepare()
            sent = [(name.lower().encode(), value.encode()) for name, value in told]
            await send({"type": "http.response.start", "status": SWITCHING_PROTOCOLS, "headers": sent})
            await send({"type": "http.response.body", "body": b""})

        return switch


def upgrade_of(scope: Scope) -> Upgrade | None:
    """Return the offer of a WebSocket that a request makes, if it does."""
    found: Upgrade | None = scope.get("extensions", {}).get(UPGRADE)
    return found
