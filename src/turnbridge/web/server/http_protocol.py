"""The protocol of one connection: uvicorn's, with bounds on what an unauthenticated client may send.

uvicorn's parser buffers a header until its end, and every pipelined request that arrives before the first is answered.
So it is fed in pieces, and the pieces are counted.
"""

import asyncio
import contextlib
from functools import partial
from http import HTTPStatus

import httptools
import msgspec
import structlog
from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from turnbridge.turn.errors import GatewayError, GatewayOverloaded, HeadersTooLarge, InvalidRequest
from turnbridge.web.http import OPENAI, encoded
from turnbridge.web.server.connection_limits import MOST_LINGERING, MOST_PIPELINING, ConnectionLimits
from turnbridge.web.server.stand_ins import Flow, OneReaderEvent, Pipeline, disable_chunks
from turnbridge.web.server.websocket import UPGRADE, Upgrade, WebSocket, upgrade_of

log = structlog.get_logger(__name__)

# Size of the target and of all header names and values; other servers allow 8 to 64 KB.
MOST_HEAD_BYTES = 64 * 1024
# Trailers included. Clients send some 20.
MOST_HEADERS = 100
TOO_LARGE = (
    f"The request's target and headers are larger than {MOST_HEAD_BYTES // 1024} KB, or more than {MOST_HEADERS}. "
    "Send less in them; what is long belongs into the body."
)
# The parser gets this much at a time, except for bodies: it bounds the pipelined requests that are parsed early.
PIECE_BYTES = 1024
# What a client may send while its last request is answered: twice what is read from a connection at once.
MOST_AHEAD_BYTES = 512 * 1024


class HttpProtocol(HttpToolsProtocol):
    """A connection that speaks HTTP/1.1 until it becomes a WebSocket.

    Java's HTTP client offers HTTP/2 (`Upgrade: h2c`) with its first requests. A server may ignore such an offer, but
    httptools treats what follows as the other protocol, so the request would lose its body. Therefore the head is
    parsed a second time without the `Upgrade` header, which the application still sees.

    A request that offers a WebSocket is served like any other. If the application accepts the offer, the connection is
    a `WebSocket` from the end of the response on.
    """

    # With uvicorn's own attributes there would be too many for Python's compact layout: 1.2 KB for each connection.
    __slots__ = (
        "_ahead",
        "_answered",
        "_body_left",
        "_head_bytes",
        "_headers",
        "_in_head",
        "_limits",
        "_refused",
        "_unfinished_bytes",
    )

    # How long the data of a refused client is read and dropped. Unread data would make the kernel reset the connection,
    # and the client would not see why it was refused.
    linger_s = 2.0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.pipeline = Pipeline()  # type: ignore[assignment]  # All that is done with it.
        self._limits = limits
        self._answered: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last one that was parsed."""
        self._refused = False
        self._ahead = bytearray()
        """Pipelined data that has not been parsed yet."""
        self._in_head = False
        self._head_bytes = 0
        self._headers = 0
        self._body_left = 0
        self._unfinished_bytes = 0
        """Bytes parsed since the last callback: part of a header, or a chunk's extension."""

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport)
        if not self._limits.admit(self, self._peer):
            self._refuse(GatewayOverloaded("Too many connections are open. Try again in a moment.", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        """Signal the disconnect to the application."""
        self._limits.release(self)
        self._ahead.clear()
        self.pipeline.clear()
        if self._answered is not None:
            _disconnect(self._answered)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, or buffer it behind a pipelined request."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._parse(memoryview(data))

    def evict(self) -> None:
        """Close the idle connection in favour of a new one."""
        self._refused = True
        self.transport.close()

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._headers = self._body_left = self._unfinished_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Trailers are counted and dropped."""
        self._headers += 1
        self._count_head(len(name) + len(value))
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, unless its head has to be parsed again without its offer of an upgrade."""
        self._in_head = False
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is before:
            return
        # Nobody waits for it yet: its task has not run.
        self.cycle.message_event = OneReaderEvent(self.loop)  # type: ignore[assignment]  # All that is done with it.
        if not self.pipeline:
            self._answered = self.cycle
        # Its body may never arrive, so the connection counts as idle until the request is complete.
        self._limits.mark_idle(self)
        # uvicorn stops reading while requests are pipelined, and so would not notice a disconnect.
        self.flow.resume_reading()
        self._body_left = sum(int(value) for name, value in self.headers if name == b"content-length")
        if self.scope["http_version"] == "1.0":
            disable_chunks(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._body_left -= len(body)
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Protect the connection from eviction until the request is answered."""
        super().on_message_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._limits.mark_busy(self)

    # Hooks of uvicorn.

    def on_response_complete(self) -> None:
        """Go on with pipelined requests, or as a WebSocket."""
        if (upgrade := self._accepted_upgrade()) is not None:
            self._become_websocket(upgrade)
            return
        if self.pipeline:
            self._answered = self.pipeline[-1][0]
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._ahead and not self.pipeline:
            ahead, self._ahead = self._ahead, bytearray()
            self._limits.pipelining.discard(self)
            self._unset_keepalive_if_required()
            self._parse(memoryview(ahead))
        if self.cycle.response_complete:
            self._limits.mark_idle(self)

    def _should_upgrade(self) -> bool:
        """Make uvicorn skip a request that offers an upgrade."""
        return self._get_upgrade() is not None

    # Own methods.

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    def _parse(self, data: memoryview) -> None:
        """Parse data until a request is pipelined, and buffer the rest."""
        try:
            while data and not self.pipeline:
                size = max(PIECE_BYTES, self._body_left)
                piece, data = data[:size], data[size:]
                self._unfinished_bytes += len(piece)
                while (end_of_head := self._feed(piece)) is not None:
                    piece = piece[end_of_head:]
                    self._parse_without_upgrade()
                if self._unfinished_bytes > MOST_HEAD_BYTES:
                    raise HeadersTooLarge(TOO_LARGE)
        except (httptools.HttpParserError, HeadersTooLarge) as error:
            refusal = _client_error(error)
            status = OPENAI.error(refusal).status
            log.info("request_refused", status=status, error_code=refusal.error_code, peer=self._peer)
            self._refuse(refusal)
            return
        if data:
            self._buffer(data)

    def _feed(self, data: bytes | memoryview) -> int | None:
        """Parse data; return where the head ends if it offers an upgrade."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as end_of_head:
            offset: int = end_of_head.args[0]
            # CONNECT ends here too; the application refuses it like any other method.
            return offset if self._should_upgrade() else None
        return None

    def _parse_without_upgrade(self) -> None:
        head = [f"{self.scope['method']} ".encode(), self.url, f" HTTP/{self.scope['http_version']}\r\n".encode()]
        offers = [(name, value) for name, value in self.headers if name == b"upgrade"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        # As uvicorn configures its own.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed(b"".join([*head, b"\r\n"]))
        # The application's task starts in a later iteration of the event loop, so it sees them.
        self.headers += offers
        if self._is_websocket_offer(offers):
            self._offer_to_application()

    def _offer_to_application(self) -> None:
        # uvicorn's own types know other extensions.
        scope: Scope = self.scope  # type: ignore[assignment]
        scope["extensions"] = {UPGRADE: Upgrade(self.app, scope, partial(disable_chunks, self.cycle))}

    def _is_websocket_offer(self, offers: list[tuple[bytes, bytes]]) -> bool:
        names = [value.strip().lower() for _, value in offers]
        return names == [b"websocket"] and (self.scope["method"], self.scope["http_version"]) == ("GET", "1.1")

    def _accepted_upgrade(self) -> Upgrade | None:
        if self._answered is None or "extensions" not in self._answered.scope:
            return None
        upgrade = upgrade_of(self._answered.scope)  # type: ignore[arg-type]
        return upgrade if upgrade is not None and upgrade.serve is not None else None

    def _become_websocket(self, upgrade: Upgrade) -> None:
        """Hand the connection over, with its place among the connections and what has arrived ahead."""
        if self.transport.is_closing() or upgrade.serve is None:
            return
        # uvicorn's own types know other protocols.
        connections: set[object] = self.connections  # type: ignore[assignment]
        connections.discard(self)
        socket = WebSocket(
            self.transport,
            self._limits,
            max_message_bytes=upgrade.max_message_bytes,
            ended=lambda: connections.discard(socket),
        )
        connections.add(socket)
        self._limits.hand_over(self, socket)
        self.transport.set_protocol(socket)
        task = self.loop.create_task(upgrade.serve(socket))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self.flow.resume_reading()
        if self._ahead:
            socket.data_received(bytes(self._ahead))

    def _count_head(self, size: int) -> None:
        self._unfinished_bytes = 0
        self._head_bytes += size
        if self._head_bytes > MOST_HEAD_BYTES or self._headers > MOST_HEADERS:
            raise HeadersTooLarge(TOO_LARGE)

    def _buffer(self, data: memoryview) -> None:
        """Keep pipelined data for later. Reading goes on, or a disconnect would not be noticed."""
        pipelining = self._limits.pipelining
        if len(self._ahead) + len(data) > MOST_AHEAD_BYTES or len(pipelining - {self}) >= MOST_PIPELINING:
            self.transport.abort()
            return
        pipelining.add(self)
        self._ahead += data

    def _refuse(self, error: GatewayError) -> None:
        """Send an error, and drop whatever else the client sends."""
        self._refused = True
        self._ahead.clear()
        self.pipeline.clear()
        answered = self._answered
        if answered is not None and answered.response_started and not answered.response_complete:
            # The response to the previous request goes on to its end; the connection is closed after it.
            answered.keep_alive = False
            return
        if answered is not None:
            _disconnect(answered)
        lingering = self._limits.lingering
        if len(lingering) >= MOST_LINGERING:
            self.transport.abort()
            return
        lingering.add(self)
        self.transport.write(_error_response(error, self.server_state.default_headers))
        # Raises if the client has reset the connection.
        with contextlib.suppress(OSError):
            self.transport.write_eof()
        # uvicorn cancels it when the connection ends.
        self.timeout_keep_alive_task = self.loop.call_later(self.linger_s, self.transport.abort)


def _disconnect(cycle: RequestResponseCycle) -> None:
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


def _client_error(error: Exception) -> GatewayError:
    """Return the error for the client; the parser wraps what a callback raises."""
    for raised in (error, error.__context__):
        if isinstance(raised, GatewayError):
            return raised
    return InvalidRequest("This is not a valid HTTP request.", code="invalid_http_request")


def _error_response(error: GatewayError, defaults: list[tuple[bytes, bytes]]) -> bytes:
    reply = OPENAI.error(error)
    body, status = msgspec.json.encode(reply.body), HTTPStatus(reply.status)
    headers = {"content-type": "application/json", "content-length": str(len(body)), **reply.headers}
    head = [f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()]
    for name, value in (*defaults, *encoded({**headers, "connection": "close"})):
        head += [name, b": ", value, b"\r\n"]
    return b"".join([*head, b"\r\n", body])
