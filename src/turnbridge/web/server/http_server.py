"""The HTTP server around the application, and its event loop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable
from functools import partial

import structlog
import uvicorn
from starlette.types import ASGIApp

from turnbridge.web.server.connection_limits import MOST_CONNECTIONS, ConnectionLimits, allowed_connections
from turnbridge.web.server.http_protocol import HttpProtocol

log = structlog.get_logger(__name__)

# How long responses may take to be written once their turns have ended.
STOP_GRACE_S = 5
# Longer than clients and proxies keep idle connections (5 to 60 s): if the server closes one first, a request that is
# being sent on it is lost. The same timeout applies to the first byte of a request, and to its headers.
IDLE_CONNECTION_S = 75
# A slow client whose write buffer has not shrunk for this long will not read the rest. The kernel buffers megabytes and
# takes more only in large steps, so a client that reads a few KB a second is not affected.
UNREAD_S = 300
# TCP keepalive: a client whose machine sleeps or has lost its network sends no FIN. Its connection is closed, and its
# turn cancelled, after so many unanswered probes. Systems without these options are left alone.
PROBES = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class HttpServer(uvicorn.Server):
    """uvicorn's server, stopped by a call instead of by signals.

    It wakes up once a second, for the date and for stalled connections. uvicorn's own loop polls ten times a second,
    which is all that an idle gateway would do, and a fiftieth of the cost of a turn that takes 40 ms.
    """

    def __init__(self, app: ASGIApp, *, most_connections: int = MOST_CONNECTIONS, date_interval_s: float = 1.0) -> None:
        """`date_interval_s` is the maximum age of the Date header."""
        self.limits = ConnectionLimits(allowed_connections(most_connections))
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                http=partial(HttpProtocol, limits=self.limits),  # type: ignore[arg-type]
                # A WebSocket handshake is a GET like any other until the application accepts it.
                ws="none",
                # Nothing here depends on what a proxy says about its clients.
                proxy_headers=False,
                timeout_graceful_shutdown=STOP_GRACE_S,
                timeout_keep_alive=IDLE_CONNECTION_S,
            )
        )
        self._stopped = asyncio.Event()
        self._date_interval_s = date_interval_s
        self._stalled_requests = _Watchdog(IDLE_CONNECTION_S)
        self._stalled_responses = _Watchdog(UNREAD_S)
        self.capture_signals = contextlib.nullcontext  # type: ignore[assignment]

    def stop(self, *, at_once: bool = False) -> None:
        """Accept no more requests, and return from `serve` after open responses, or without waiting for them."""
        self.should_exit = True
        self.force_exit = self.force_exit or at_once
        self._stopped.set()

    def stop_accepting(self) -> None:
        """Accept no more connections; those that are open are served on."""
        for server in self.servers:
            server.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in sockets or ():
            # Without it, the first bytes of a body wait 40 ms for the ACK of the head. uvloop sets it too; asyncio's
            # own loop only for sockets whose protocol number is TCP.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _enable_tcp_keepalive(listener)
        await super().startup(sockets)

    async def main_loop(self) -> None:
        # 0 is uvicorn's first tick of every second, which updates the date.
        while not await self.on_tick(0):
            self._close_stalled_connections()
            self._log_refused_connections()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._date_interval_s):
                    await self._stopped.wait()

    def _close_stalled_connections(self) -> None:
        """Close the connections whose request stopped within its headers, and those whose response is not read."""
        connections = [each for each in self.server_state.connections if isinstance(each, HttpProtocol)]
        # Another cycle is another request.
        requests = ((each, each.cycle) for each in connections if _awaits_request_without_timer(each))
        for connection in self._stalled_requests.expired(requests):
            connection.shutdown()
        responses = ((each, each.transport.get_write_buffer_size()) for each in connections)
        for connection in self._stalled_responses.expired((each, size) for each, size in responses if size):
            # `close` would wait for the client to read.
            connection.transport.abort()

    def _log_refused_connections(self) -> None:
        # One line a second, since a flood may be thousands.
        refused, self.limits.refused = self.limits.refused, 0
        if refused:
            log.warning("connections_refused", connections=refused, open=len(self.limits))


class _Watchdog:
    """Finds the connections whose state has not changed for too long."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since: dict[tuple[HttpProtocol, object], float] = {}

    def expired(self, states: Iterable[tuple[HttpProtocol, object]]) -> list[HttpProtocol]:
        """Return the connections whose state has been the same in every call for that long."""
        now = asyncio.get_running_loop().time()
        self._since = {state: self._since.get(state, now) for state in states}
        return [connection for (connection, _), since in self._since.items() if now - since >= self._timeout_s]


def _awaits_request_without_timer(connection: HttpProtocol) -> bool:
    """Tell whether a connection waits for a request, or for the rest of one, without uvicorn's keepalive timer.

    uvicorn has a timer only between requests: the first byte of a request cancels it.
    """
    answered = connection.cycle is None or connection.cycle.response_complete
    return answered and connection.timeout_keep_alive_task is None


def _enable_tcp_keepalive(listener: socket.socket) -> None:
    """Enable TCP keepalive; accepted connections inherit it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in PROBES.items():
        if hasattr(socket, option):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loop, if it is installed."""
    return uvicorn.Config(None, loop="auto", log_config=None).get_loop_factory()  # type: ignore[arg-type]  # No application is loaded.
