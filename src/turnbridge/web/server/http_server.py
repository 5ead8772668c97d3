"""The HTTP server around the application, and its event loop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable
from functools import partial

import structlog
import uvicorn
from starlette.types import ASGIApp

from turnbridge.web.server.connection_limits import (
    MOST_CONNECTIONS,
    ConnectionLimits,
    connections_for,
    descriptor_limit,
)
from turnbridge.web.server.http_protocol import HttpProtocol

log = structlog.get_logger(__name__)

# How long open answers may take to be written to their end once their turns are over.
STOP_GRACE_S = 5
# Longer than clients and proxies keep idle connections (5 to 60 s). If the server is the first to let go of one, a
# request that is just being sent on it is lost. The headers of a request may take as long, and so may the first byte.
IDLE_CONNECTION_S = 75
# A client that takes nothing of its answer for so long will not read the rest. The system has megabytes under way, and
# takes more only in large steps: a reader is known as one from a few KB a second on.
UNREAD_S = 300
# How long the date in the headers of answers may be behind.
DATE_INTERVAL_S = 1.0
# A client whose machine sleeps or has lost its network says no goodbye. If it has been silent for so long, the system
# asks whether it is there, so many times in such an interval, and closes the connection: its turn ends like that of a
# client that leaves. Not where a system does not know these options.
PROBES = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class HttpServer(uvicorn.Server):
    """uvicorn's server, stopped by a call and not by signals: these are for whoever runs it.

    It wakes once a second, for the date and for clients that fall silent. uvicorn's own looks ten times a second
    whether it should stop: all that an idle gateway does, and a fiftieth of what a turn costs that takes 40 ms.
    """

    def __init__(self, app: ASGIApp, *, most_connections: int = MOST_CONNECTIONS) -> None:
        self.limits = ConnectionLimits(connections_for(descriptor_limit(), wanted=most_connections))
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                http=partial(HttpProtocol, limits=self.limits),  # type: ignore[arg-type]
                # A request for a WebSocket is refused by the application, and logged, like any other GET.
                ws="none",
                # Nothing here depends on what a proxy says of its clients.
                proxy_headers=False,
                timeout_graceful_shutdown=STOP_GRACE_S,
                timeout_keep_alive=IDLE_CONNECTION_S,
            )
        )
        self._stopped = asyncio.Event()
        self._half_asked = _Unchanged(IDLE_CONNECTION_S)
        self._unread = _Unchanged(UNREAD_S)
        self.capture_signals = contextlib.nullcontext  # type: ignore[assignment]

    def stop(self, *, at_once: bool = False) -> None:
        """Take no more requests, and return from `serve` when open answers have left; or without waiting for them."""
        self.should_exit = True
        self.force_exit = self.force_exit or at_once
        self._stopped.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        for listener in sockets or ():
            # Else the first words of an answer wait 40 ms, until its client has confirmed the head. uvloop does the
            # same; asyncio's own loop, where there is no other, does it only for sockets that say that they are TCP.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _look_for_the_vanished(listener)
        await super().startup(sockets)

    async def main_loop(self) -> None:
        """Wait until the server is stopped."""
        # As on uvicorn's first tick of every second, which sets the date.
        while not await self.on_tick(0):
            self._part_with_the_silent()
            self._tell_refused()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_INTERVAL_S):
                    await self._stopped.wait()

    def _part_with_the_silent(self) -> None:
        """Close the connections whose next request stops within its headers, and those whose answer is not read."""
        connections = [each for each in self.server_state.connections if isinstance(each, HttpProtocol)]
        # Another cycle is another request.
        for connection in self._half_asked.look((each, each.cycle) for each in connections if _is_half_asked(each)):
            connection.shutdown()
        waiting = ((each, each.transport.get_write_buffer_size()) for each in connections)
        for connection in self._unread.look((each, size) for each, size in waiting if size):
            # To close it would wait for its client to read.
            connection.transport.abort()

    def _tell_refused(self) -> None:
        """Log what a flood of connections has cost: one line, since they may be thousands a second."""
        refused, self.limits.refused = self.limits.refused, 0
        if refused:
            log.warning("connections_refused", connections=refused, open=len(self.limits))


class _Unchanged:
    """Finds the connections that have been in the same state for too long."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._since: dict[tuple[HttpProtocol, object], float] = {}

    def look(self, states: Iterable[tuple[HttpProtocol, object]]) -> list[HttpProtocol]:
        """Return those of these connections whose state was the same at every look for that long."""
        now = asyncio.get_running_loop().time()
        self._since = {state: self._since.get(state, now) for state in states}
        return [connection for (connection, _), since in self._since.items() if now - since >= self._most_s]


def _is_half_asked(connection: HttpProtocol) -> bool:
    """Tell whether a connection waits for a request, and uvicorn has no timer for it.

    It has one for idle connections: the first byte of a request stops it, and before the first request there is none.
    """
    answered = connection.cycle is None or connection.cycle.response_complete
    return answered and connection.timeout_keep_alive_task is None


def _look_for_the_vanished(listener: socket.socket) -> None:
    """Let the system find out which clients of this socket are no longer there; connections inherit it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in PROBES.items():
        if hasattr(socket, option):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loop where there is one."""
    return uvicorn.Config(None, loop="auto", log_config=None).get_loop_factory()  # type: ignore[arg-type]  # No application is loaded.
