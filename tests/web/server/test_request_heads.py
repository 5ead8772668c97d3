"""What a client may send before anybody knows who it is: a head of some size, and no more than one request ahead."""

import asyncio
import json

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from tests.web.server.raw_connection import (
    PATIENCE_S,
    Connection,
    connected,
    until,
)
from turnbridge.web.server.http_protocol import MOST_HEAD_BYTES, MOST_HEADERS, HttpProtocol

pytestmark = pytest.mark.anyio

TOO_LARGE = {
    "error": {
        "message": "The request's target and headers are larger than 64 KB, or more than 100. "
        "Send less in them; what is long belongs into the body.",
        "type": "invalid_request_error",
        "param": None,
        "code": "headers_too_large",
    }
}
CHUNKED = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
ENDLESS = b"x" * (3 * MOST_HEAD_BYTES)


async def told(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what has come."""
    request = Request(scope, receive)
    body = await request.body()
    names = [name for name in request.headers if name.startswith("x-")]
    await Response(f"{len(request.url.path)} {len(names)} {len(body)}".encode())(scope, receive, send)


def headers(count: int, size: int = 0) -> bytes:
    """Return so many headers, the last of them with a value of this size."""
    return b"".join(b"x-%d: %s\r\n" % (number, b"v" * size * (number == count - 1)) for number in range(count))


async def refused(connection: Connection) -> tuple[int, object]:
    """Return the answer to a connection that is closed after it."""
    status, fields, body = await connection.answer()
    assert fields["connection"] == "close"
    assert await connection.closed()
    return status, json.loads(body)


async def test_a_head_up_to_the_bound_is_read() -> None:
    # The target, "x-0" to "x-99", and the last value.
    named = len(b"".join(b"x-%d" % number for number in range(MOST_HEADERS)))
    async with connected(told) as connection:
        await connection.send(b"GET / HTTP/1.1\r\n" + headers(MOST_HEADERS, MOST_HEAD_BYTES - named - 1) + b"\r\n")
        assert (await connection.answer())[2] == b"1 100 0"
        await connection.send(b"GET /" + b"x" * (MOST_HEAD_BYTES - 2) + b" HTTP/1.1\r\n\r\n")
        assert (await connection.answer())[2] == b"65535 0 0"


@pytest.mark.promise("bounds.heads")
@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"x" * MOST_HEAD_BYTES + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + headers(MOST_HEADERS + 1) + b"\r\n",
        b"GET / HTTP/1.1\r\n" + headers(3, MOST_HEAD_BYTES) + b"\r\n",
        b"GET / HTTP/1.1\r\n" + headers(10_000, 10) + b"\r\n",
        b"GET /" + ENDLESS,
        b"GET / HTTP/1.1\r\n" + ENDLESS,
        b"GET / HTTP/1.1\r\nx: " + ENDLESS,
        b"\r\n" * (2 * MOST_HEAD_BYTES),
        CHUNKED + b"1;" + ENDLESS,
        CHUNKED + b"1\r\nx\r\n0\r\n" + headers(MOST_HEADERS) + b"\r\n",
        CHUNKED + b"0\r\nx: " + ENDLESS,
    ],
    ids=[
        *("target", "101 headers", "value", "many headers", "endless target", "endless name", "endless value"),
        *("blank lines", "endless chunk extension", "trailers", "endless trailer"),
    ],
)
@pytest.mark.parametrize("size", [1000, 10**9], ids=["in pieces", "at once"])
async def test_a_head_above_the_bound_is_refused_and_its_connection_closed(request_: bytes, size: int) -> None:
    async with connected(told) as connection:
        for start in range(0, len(request_), size):
            connection.writer.write(request_[start : start + size])
            await asyncio.sleep(0)
        assert await refused(connection) == (431, TOO_LARGE)


async def test_what_a_refused_client_goes_on_sending_is_thrown_away() -> None:
    async with connected(told) as connection:
        await connection.send(b"GET / HTTP/1.1\r\nx: " + ENDLESS)
        assert (await connection.answer())[0] == 431
        protocol = connection.protocol
        for _ in range(50):
            await connection.send(ENDLESS)
        assert not protocol._ahead
        assert protocol.cycle is None


async def test_a_refused_client_that_does_not_leave_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpProtocol, "linger_s", 0.05)
    async with connected(told) as connection:
        await connection.send(b"nonsense\r\n\r\n")
        assert (await connection.answer())[0] == 400
        await until(lambda: not connection.server.server_state.connections)


async def test_what_is_no_http_is_refused_in_the_shape_of_every_error_and_logged_with_its_peer() -> None:
    with capture_logs() as logs:
        async with connected(told) as connection:
            await connection.send(b"nonsense\r\n\r\n")
            status, body = await refused(connection)
    assert (status, body) == (
        400,
        {
            "error": {
                "message": "This is not a valid HTTP request.",
                "type": "invalid_request_error",
                "param": None,
                "code": "invalid_http_request",
            }
        },
    )
    assert [log for log in logs if log["event"] == "request_refused"] == [
        {
            "event": "request_refused",
            "log_level": "info",
            "status": 400,
            "error_code": "invalid_http_request",
            "peer": "127.0.0.1",
        }
    ]


async def test_trailers_are_no_headers() -> None:
    async with connected(told) as connection:
        await connection.send(CHUNKED + b"1\r\nx\r\n0\r\nx-late: 1\r\n\r\n")
        assert (await connection.answer())[2] == b"1 0 1"


async def test_a_long_body_in_chunks_is_not_taken_for_a_long_head() -> None:
    async with connected(told) as connection:
        await connection.send(CHUNKED + b"1\r\nx\r\n" * MOST_HEAD_BYTES + b"0\r\n\r\n")
        assert (await connection.answer())[2] == b"1 0 65536"


async def test_nonsense_behind_a_request_does_not_spoil_its_answer() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        begun.set()
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"hi"})

    async with connected(slow) as connection:
        await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        await begun.wait()
        await connection.send(b"nonsense\r\n\r\n")
        protocol = connection.protocol
        await until(lambda: protocol._refused)
        go_on.set()
        assert (await connection.answer())[2] == b"hi"
        assert await connection.closed()


async def test_requests_that_come_before_the_answer_wait_unparsed() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await go_on.wait()
        await told(scope, receive, send)

    async with connected(slow) as connection:
        await connection.send(b"GET / HTTP/1.1\r\n\r\n" * 10_000)
        await begun.wait()
        protocol = connection.protocol
        assert len(protocol.pipeline) < 100
        go_on.set()
        for _ in range(10_000):
            assert (await connection.answer())[2] == b"1 0 0"
        assert connection.server.limits.pipelining == set()


async def test_a_client_that_sends_without_end_before_its_answer_is_disconnected() -> None:
    begun = asyncio.Event()

    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, send
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    async with connected(never) as connection:
        await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        await begun.wait()

        async def go_on() -> None:
            while True:
                await connection.send(b"GET / HTTP/1.1\r\n\r\n" * 10_000)

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(go_on(), PATIENCE_S)
        await until(lambda: not connection.server.server_state.tasks)


async def test_a_client_that_leaves_is_noticed_although_it_sent_another_request() -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def listens(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, send
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with connected(listens) as connection:
        await connection.send(b"GET / HTTP/1.1\r\n\r\n" * 2)
        await begun.wait()
        connection.writer.close()
        async with asyncio.timeout(PATIENCE_S):
            await gone.wait()


@pytest.mark.promise("ingress.old-http")
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_http_1_0_client_gets_no_chunks_and_the_end_by_the_close(streamed: bool) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        assert (await receive())["body"] == b"abc"
        length = [] if streamed else [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b", 2"[: 3 if streamed else 2]})

    async with connected(answer) as connection:
        await connection.send(b"POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc")
        async with asyncio.timeout(PATIENCE_S):
            head, _, body = (await connection.reader.read(-1)).partition(b"\r\n\r\n")
    assert body == (b"one, 2" if streamed else b"one, ")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
