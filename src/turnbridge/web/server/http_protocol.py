"""One connection of the HTTP server: uvicorn's own, with bounds on what a client may send before it is known.

What uvicorn's parser is given is not bounded: it collects a header until its end, and every request that has come
before the first is answered. So bytes are handed to it in pieces, and counted.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from http import HTTPStatus

import httptools
import msgspec
import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from turnbridge.api.shared.errors import error_headers, error_object, status_of
from turnbridge.turn.errors import GatewayError, GatewayOverloaded, HeadersTooLarge, InvalidRequest
from turnbridge.web.http import encoded
from turnbridge.web.server.connection_limits import MOST_LINGERING, MOST_PIPELINING, ConnectionLimits

log = structlog.get_logger(__name__)

MOST_HEAD_BYTES = 64 * 1024
"""Of the target, and of all names and values of headers; other servers take 8 to 64 KB."""
MOST_HEADERS = 100
"""Trailers count too. Clients send some 20."""

PIECE_BYTES = 1024
"""What the parser is given at once, unless it is all body: so many requests are parsed before the first is answered."""

MOST_AHEAD_BYTES = 512 * 1024
"""What a client may send while its last request is answered: twice what is read from a connection at once."""

LINGER_S = 2.0
"""How long a refused client may go on sending. If it were not read, the system would reset the connection, and the
client would not see why it was refused."""


class HttpProtocol(HttpToolsProtocol):
    """A connection on which HTTP/1.1 is spoken, whatever else its client would like.

    Java's own HTTP client offers HTTP/2 (`Upgrade: h2c`) with its first requests, and so does what is built on it. A
    server may pass over such an offer; but uvicorn's parser takes what follows for the other protocol, and the request
    loses its body. So its head is parsed again without the offer, of which the application still hears.
    """

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
        self._limits = limits
        self._answered: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last one that was parsed."""
        self._refused = False
        self._ahead = bytearray()
        """What has come behind a request that waits for its answer, and was not parsed yet."""
        self._in_head = False
        self._head_bytes = 0
        self._headers = 0
        self._body_left = 0
        self._unfinished_bytes = 0
        """What the parser was given since it last told of anything: part of a header, or a chunk's extension."""

    # Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or refuse it."""
        super().connection_made(transport)
        if not self._limits.admit(self, self._peer):
            self._refuse(GatewayOverloaded("Too many connections are open. Try again in a moment.", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever answers a request that nobody is there any more."""
        self._limits.release(self)
        self._ahead.clear()
        self.pipeline.clear()
        if self._answered is not None:
            _disconnect(self._answered)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        if self.pipeline:
            self._set_aside(data)
        else:
            self._parse(memoryview(data))

    def evict(self) -> None:
        """Close the connection in favour of another one."""
        self._refused = True
        self.transport.close()

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._headers = self._body_left = self._unfinished_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Trailers are only counted: a request is judged by what comes before its body."""
        self._headers += 1
        self._count_head(len(name) + len(value))
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer the request."""
        self._in_head = False
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is before:
            # An offer, which is passed over.
            return
        # Its body may never come, so it counts as idle until it is whole.
        self._limits.mark_idle(self)
        # uvicorn does not read while requests wait for the answer to another one.
        self.flow.resume_reading()
        self._body_left = sum(int(value) for name, value in self.headers if name == b"content-length")
        if self.scope["http_version"] == "1.0":
            _speak_http_1_0(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._body_left -= len(body)
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Keep the connection until the request is answered."""
        super().on_message_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._limits.mark_busy(self)

    # Called by uvicorn.

    def on_response_complete(self) -> None:
        """Go on with what the client has sent meanwhile."""
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

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: object) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]

    def _should_upgrade(self) -> bool:
        """Tell whether something was offered; uvicorn then does nothing with the request."""
        return self._get_upgrade() is not None

    # Our own.

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    def _parse(self, data: memoryview) -> None:
        """Parse what has come, until a request has to wait for the answer to the one before it."""
        try:
            while data and not self.pipeline:
                size = max(PIECE_BYTES, self._body_left)
                self._parse_piece(data[:size])
                data = data[size:]
        except (httptools.HttpParserError, HeadersTooLarge) as error:
            told = _told(error)
            log.info("request_refused", status=status_of(told), error_code=told.error_code, peer=self._peer)
            self._refuse(told)
            return
        if data:
            self._set_aside(data)

    def _parse_piece(self, piece: memoryview) -> None:
        self._unfinished_bytes += len(piece)
        while (end_of_head := self._feed(piece)) is not None:
            piece = piece[end_of_head:]
            self._pass_over_the_offer()
        if self._unfinished_bytes > MOST_HEAD_BYTES:
            raise _too_large()

    def _feed(self, data: bytes | memoryview) -> int | None:
        """Parse, up to the end of a head that offers something; return where that is."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as end_of_head:
            offset: int = end_of_head.args[0]
            # CONNECT ends here, too; it is a request like any other that is not served.
            return offset if self._should_upgrade() else None
        return None

    def _pass_over_the_offer(self) -> None:
        head = [f"{self.scope['method']} ".encode(), self.url, f" HTTP/{self.scope['http_version']}\r\n".encode()]
        offers = [(name, value) for name, value in self.headers if name == b"upgrade"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        # As uvicorn does with its own.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed(b"".join([*head, b"\r\n"]))
        # The application begins to look at them in a later step of the event loop.
        self.headers += offers

    def _count_head(self, size: int) -> None:
        self._unfinished_bytes = 0
        self._head_bytes += size
        if self._head_bytes > MOST_HEAD_BYTES or self._headers > MOST_HEADERS:
            raise _too_large()

    def _set_aside(self, data: bytes | memoryview) -> None:
        """Keep what has come too early. Reading goes on, or it would not be noticed that the client has left."""
        pipelining = self._limits.pipelining
        if len(self._ahead) + len(data) > MOST_AHEAD_BYTES or len(pipelining - {self}) >= MOST_PIPELINING:
            self.transport.abort()
            return
        pipelining.add(self)
        self._ahead += data

    def _refuse(self, error: GatewayError) -> None:
        """Tell the client what is wrong, and read nothing of what it still sends."""
        self._refused = True
        self._ahead.clear()
        self.pipeline.clear()
        answered = self._answered
        if answered is not None and answered.response_started and not answered.response_complete:
            # An answer is on its way; it goes on to its end, and the connection with it.
            answered.keep_alive = False
            return
        if answered is not None:
            _disconnect(answered)
        lingering = self._limits.lingering
        if len(lingering) >= MOST_LINGERING:
            self.transport.abort()
            return
        lingering.add(self)
        self.transport.write(_whole_answer(error, self.server_state.default_headers))
        # Not if the client has reset the connection.
        with contextlib.suppress(OSError):
            self.transport.write_eof()
        # uvicorn cancels it when the connection ends.
        self.timeout_keep_alive_task = self.loop.call_later(LINGER_S, self.transport.abort)


class _AnyLength(int):
    """A content-length that every body has."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> "_AnyLength":
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _speak_http_1_0(cycle: RequestResponseCycle) -> None:
    """Keep uvicorn from sending chunks, which HTTP/1.0 does not know: an answer without a length ends by the close."""
    cycle.chunked_encoding = False
    cycle.expected_content_length = _AnyLength()
    cycle.waiting_for_100_continue = False


def _disconnect(cycle: RequestResponseCycle) -> None:
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


def _told(error: Exception) -> GatewayError:
    """Return what the client is told; what a callback raises, the parser raises as its own."""
    for raised in (error, error.__context__):
        if isinstance(raised, GatewayError):
            return raised
    return InvalidRequest("This is not a valid HTTP request.", code="invalid_http_request")


def _too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"The request's target and headers are larger than {MOST_HEAD_BYTES // 1024} KB, or more than {MOST_HEADERS}. "
        "Send less in them; what is long belongs into the body."
    )


def _whole_answer(error: GatewayError, defaults: list[tuple[bytes, bytes]]) -> bytes:
    body = msgspec.json.encode({"error": error_object(error)})
    fixed: Mapping[str, str] = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **error_headers(error),
        "connection": "close",
    }
    status = HTTPStatus(status_of(error))
    head = [f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()]
    for name, value in (*defaults, *encoded(fixed)):
        head += [name, b": ", value, b"\r\n"]
    return b"".join([*head, b"\r\n", body])
