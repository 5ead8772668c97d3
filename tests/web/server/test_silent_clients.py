"""Clients that stop in the middle of a request: they hold nothing for ever, and nobody else is taken for one."""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message

from tests.support.passing_time import PassingTime, on_a_loop_of_its_own
from tests.web.server.raw_connection import Connection, connected
from turnbridge.web.bodies import BODY_SILENCE_S, Bodies
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import Metrics
from turnbridge.web.server.http_server import IDLE_CONNECTION_S

pytestmark = pytest.mark.anyio

LIMIT = 1024 * 1024
HEAD = b"POST /echo HTTP/1.1\r\nhost: here\r\nauthorization: Bearer right-key\r\n"
# Longer than any silence is borne with.
LONG_S = 3 * IDLE_CONNECTION_S


@dataclass
class Echo:
    """A gateway that gives bodies back, when it may."""

    heard: "asyncio.Queue[bytes]" = field(default_factory=asyncio.Queue)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: Request) -> Response:
        async def receive() -> Message:
            message = await request.receive()
            self.heard.put_nowait(message.get("body", b""))
            return message

        body = await Bodies(LIMIT).read(request.scope, receive)
        await self.may_answer.wait()
        return Response(body)


def line_to(echo: Echo) -> contextlib.AbstractAsyncContextManager[Connection]:
    """Serve it, and connect."""
    routes = Router([Route("/echo", echo.__call__, methods=["POST"])])
    return connected(wrap(routes, keyring=Keyring("right-key"), metrics=Metrics()))


@pytest.fixture
def time() -> PassingTime:
    return PassingTime()


@pytest.fixture
def echo() -> Echo:
    echo = Echo()
    echo.may_answer.set()
    return echo


@pytest.mark.promise("limits.silent-clients")
@on_a_loop_of_its_own
async def test_a_body_that_stops_coming_is_told_so_and_its_connection_closed(echo: Echo, time: PassingTime) -> None:
    async with line_to(echo) as line:
        await line.send(HEAD + b"content-length: 100\r\n\r\n" + b"x" * 50)
        assert await echo.heard.get() == b"x" * 50
        await time.go_on(BODY_SILENCE_S)
        status, headers, body = await line.answer()
        assert (status, headers["connection"]) == (408, "close")
        assert json.loads(body) == {
            "error": {
                "message": "The request's body stopped coming: 60 seconds have passed without a byte of it. Try again.",
                "type": "invalid_request_error",
                "param": None,
                "code": "request_timeout",
            }
        }
        assert await line.closed()


@on_a_loop_of_its_own
async def test_a_body_that_never_begins_is_told_so_too(echo: Echo, time: PassingTime) -> None:
    async with line_to(echo) as line:
        await line.send(HEAD + b"content-length: 100\r\nexpect: 100-continue\r\n\r\n")
        assert (await line.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await time.go_on(BODY_SILENCE_S)
        status, _, _ = await line.answer()
        assert status == 408
        assert await line.closed()


@pytest.mark.promise("limits.silent-clients")
@on_a_loop_of_its_own
async def test_a_body_that_comes_slowly_may_take_as_long_as_it_likes(echo: Echo, time: PassingTime) -> None:
    async with line_to(echo) as line:
        await line.send(HEAD + b"content-length: 8\r\n\r\n")
        for number in range(8):
            # Half of it: on a busy machine real seconds pass as well.
            await time.go_on(BODY_SILENCE_S // 2)
            await line.send(b"%d" % number)
            assert await echo.heard.get() == b"%d" % number
        status, _, body = await line.answer()
        assert (status, body) == (200, b"01234567")


@pytest.mark.promise("limits.silent-clients")
@pytest.mark.parametrize("sent", [b"", b"PO", HEAD], ids=["nothing", "half a word", "half of the headers"])
@on_a_loop_of_its_own
async def test_a_connection_on_which_no_whole_request_comes_is_closed(
    echo: Echo, time: PassingTime, sent: bytes
) -> None:
    async with line_to(echo) as line:
        await line.send(sent)
        await time.go_on(LONG_S)
        assert await line.closed()


@on_a_loop_of_its_own
async def test_headers_that_come_drop_by_drop_are_not_waited_for_either(echo: Echo, time: PassingTime) -> None:
    async with line_to(echo) as line:
        await line.send(HEAD)
        for _ in range(LONG_S):
            await time.go_on(1)
            line.writer.write(b"x: y\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await line.reader.readexactly(1)


@on_a_loop_of_its_own
async def test_half_of_a_second_request_is_waited_for_no_longer_than_of_a_first(echo: Echo, time: PassingTime) -> None:
    async with line_to(echo) as line:
        await line.send(HEAD + b"content-length: 2\r\n\r\nhi")
        assert (await line.answer())[0] == 200
        await line.send(HEAD)
        await time.go_on(LONG_S)
        assert await line.closed()


@on_a_loop_of_its_own
async def test_a_refused_body_that_goes_on_a_little_and_stops_holds_nothing(echo: Echo, time: PassingTime) -> None:
    """Its answer is given before it is whole; the rest of it is read, and thrown away."""
    async with line_to(echo) as line:
        await line.send(b"POST /echo HTTP/1.1\r\ncontent-length: 100\r\n\r\n")
        assert (await line.answer())[0] == 401
        await line.send(b"x" * 50)
        await time.go_on(LONG_S)
        assert await line.closed()


@pytest.mark.promise("limits.silent-clients")
@on_a_loop_of_its_own
async def test_a_refused_body_that_never_ends_is_not_read_for_ever(echo: Echo, time: PassingTime) -> None:
    async with line_to(echo) as line:
        chunk = b"%x\r\n%s\r\n" % (LIMIT + 1, b"x" * (LIMIT + 1))
        await line.send(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunk)
        assert (await line.answer())[0] == 413
        for _ in range(LONG_S):
            await time.go_on(1)
            line.writer.write(b"1\r\nx\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await line.reader.readexactly(1)


@on_a_loop_of_its_own
async def test_who_waits_for_an_answer_may_be_silent_for_as_long_as_it_takes(time: PassingTime) -> None:
    echo = Echo()
    async with line_to(echo) as line:
        await line.send(HEAD + b"content-length: 2\r\n\r\nhi")
        await time.go_on(LONG_S)
        echo.may_answer.set()
        assert (await line.answer())[0] == 200


@on_a_loop_of_its_own
async def test_headers_may_take_a_while_and_so_may_the_next_request(echo: Echo, time: PassingTime) -> None:
    async with line_to(echo) as line:
        for number in range(3):
            await line.send(HEAD)
            await time.go_on(IDLE_CONNECTION_S - 5)
            await line.send(b"content-length: 1\r\n\r\n%d" % number)
            status, _, body = await line.answer()
            assert (status, body) == (200, b"%d" % number)
            await time.go_on(IDLE_CONNECTION_S - 5)
