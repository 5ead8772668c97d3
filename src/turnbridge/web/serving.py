"""The HTTP server around the application, and its event loop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TypeGuard

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

# How long open answers may take to be written to their end once their turns are over.
STOP_GRACE_S = 5
# Longer than clients and proxies keep idle connections (5 to 60 s). If the server is the first to let go of one, a
# request that is just being sent on it is lost. The headers of a request may take as long, and so may the first byte.
IDLE_CONNECTION_S = 75
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

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                # A request for a WebSocket is answered, and logged, like any other GET.
                ws="none",
                # Nothing here depends on what a proxy says of its clients.
                proxy_headers=False,
                timeout_graceful_shutdown=STOP_GRACE_S,
                timeout_keep_alive=IDLE_CONNECTION_S,
            )
        )
        self._stopped = asyncio.Event()
        self._half_asked: dict[tuple[HttpToolsProtocol, RequestResponseCycle], float] = {}
        """Connections on which a request is to come, each with the last one that came, and since when."""
        self.capture_signals = contextlib.nullcontext  # type: ignore[assignment]

    def stop(self, *, at_once: bool = False) -> None:
        """Take no more requests, and return from `serve` when open answers have left; or without waiting for them."""
        self.should_exit = True
        self.force_exit = self.force_exit or at_once
        self._stopped.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        for listener in sockets or ():
            _look_for_the_vanished(listener)
        await super().startup(sockets)

    async def main_loop(self) -> None:
        """Wait until the server is stopped."""
        # As on uvicorn's first tick of every second, which sets the date.
        while not await self.on_tick(0):
            self._close_half_asked()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_INTERVAL_S):
                    await self._stopped.wait()

    def _close_half_asked(self) -> None:
        """Close the connections whose next request does not come to the end of its headers.

        uvicorn's own timer is for idle connections: the first byte of a request stops it, and before the first request
        there is none.
        """
        now = asyncio.get_running_loop().time()
        half_asked = [(each, each.cycle) for each in self.server_state.connections if _is_half_asked(each)]
        self._half_asked = {each: self._half_asked.get(each, now) for each in half_asked}
        for (connection, _), since in self._half_asked.items():
            if now - since >= IDLE_CONNECTION_S:
                connection.shutdown()


def _is_half_asked(connection: object) -> TypeGuard[HttpToolsProtocol]:
    """Tell whether a connection waits for its client alone, without a timer: no answer is due on it."""
    if not isinstance(connection, HttpToolsProtocol) or connection.timeout_keep_alive_task is not None:
        return False
    return connection.cycle is None or connection.cycle.response_complete


def _look_for_the_vanished(listener: socket.socket) -> None:
    """Let the system find out which clients of this socket are no longer there; connections inherit it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in PROBES.items():
        if hasattr(socket, option):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loop where there is one."""
    return uvicorn.Config(None, loop="auto", log_config=None).get_loop_factory()  # type: ignore[arg-type]  # No application is loaded.
