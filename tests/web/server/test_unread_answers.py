"""Clients that do not read their answers, and do not leave either: they hold nothing for ever."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.passing_time import PassingTime, on_a_loop_of_its_own
from tests.web.server.raw_connection import PATIENCE_S, Connection, connected
from turnbridge.web.answer import serve_until_disconnect
from turnbridge.web.server.http_server import IDLE_CONNECTION_S, UNREAD_S

pytestmark = pytest.mark.anyio

# More than the system itself holds between two ends of a connection.
PIECE = 5_000_000
PIECES = 8
ASKED = b"GET / HTTP/1.1\r\n\r\n"
ASKED_ONCE = b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n"


async def whole(scope: Scope, receive: Receive, send: Send) -> None:
    """Give a large answer in one piece."""
    del scope, receive
    size = b"%d" % (PIECE * PIECES)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
    await send({"type": "http.response.body", "body": b"x" * PIECE * PIECES})


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """Stream until the client leaves."""

    async def stream() -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * PIECE, "more_body": True})

    del scope
    await serve_until_disconnect(receive, stream())


@contextlib.asynccontextmanager
async def asked(app: ASGIApp, request: bytes) -> AsyncIterator[Connection]:
    """Serve, ask for something, and read until the answer's headers have come."""
    async with connected(app) as connection:
        await connection.send(request)
        async with asyncio.timeout(PATIENCE_S):
            await connection.reader.readuntil(b"\r\n\r\n")
        try:
            yield connection
        finally:
            connection.writer.transport.abort()


@pytest.mark.promise("limits.silent-clients")
@pytest.mark.parametrize(
    ("app", "request_"),
    [(whole, ASKED), (whole, ASKED_ONCE), (endless, ASKED)],
    ids=["whole, kept alive", "whole, to be closed", "streamed"],
)
@on_a_loop_of_its_own
async def test_who_takes_nothing_of_an_answer_any_more_is_given_up(app: ASGIApp, request_: bytes) -> None:
    time = PassingTime()
    async with asked(app, request_) as connection:
        state = connection.server.server_state
        await time.go_on(UNREAD_S - 10)
        assert len(state.connections) == 1
        await time.go_on(20)
        assert (state.connections, state.tasks) == (set(), set())


@on_a_loop_of_its_own
async def test_who_takes_an_answer_slowly_gets_all_of_it() -> None:
    time = PassingTime()
    async with asked(whole, ASKED) as connection:
        for _ in range(PIECES):
            await time.go_on(UNREAD_S - 10)
            async with asyncio.timeout(PATIENCE_S):
                assert await connection.reader.readexactly(PIECE) == b"x" * PIECE


@on_a_loop_of_its_own
async def test_a_stream_that_has_nothing_to_say_is_not_one_that_nobody_reads() -> None:
    time, go_on = PassingTime(), asyncio.Event()

    async def thoughtful(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"At last."})

    async with asked(thoughtful, ASKED) as connection:
        await time.go_on(3 * max(UNREAD_S, IDLE_CONNECTION_S))
        go_on.set()
        async with asyncio.timeout(PATIENCE_S):
            assert await connection.reader.readuntil(b"0\r\n\r\n") == b"8\r\nAt last.\r\n0\r\n\r\n"
