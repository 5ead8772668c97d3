"""Clients that would rather speak another protocol are answered in this one, and lose nothing of their requests."""

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.web.server.raw_connection import connected

pytestmark = pytest.mark.anyio

# As Java's own HTTP client sends it.
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\nUpgrade: h2c\r\n"
BODY = b'{"said": "Upgrade: h2c\\r\\n\\r\\n"}'
OFFERED = b"POST /path?query HTTP/1.1\r\n" + OFFER + b"Content-Length: %d\r\nX-Mine: yes\r\n\r\n" % len(BODY) + BODY


async def told(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what has come."""
    request = Request(scope, receive)
    names = sorted(name for name in request.headers if name.startswith("x-") or name == "upgrade")
    said = f"{request.method} {request.url.path}?{request.url.query} {names} ".encode()
    await Response(said + await request.body())(scope, receive, send)


TOLD = b"POST /path?query ['upgrade', 'x-mine'] " + BODY


@pytest.mark.promise("ingress.offers")
@pytest.mark.parametrize("size", [1, 7, len(OFFERED) - len(BODY), len(OFFERED)], ids=["1", "7", "head", "whole"])
async def test_a_request_that_offers_http_2_keeps_its_body_in_any_pieces(size: int) -> None:
    async with connected(told) as connection:
        for start in range(0, len(OFFERED), size):
            await connection.send(OFFERED[start : start + size])
        status, _, body = await connection.answer()
        assert (status, body) == (200, TOLD)


async def test_its_connection_is_kept_for_further_requests_with_and_without_an_offer() -> None:
    async with connected(told) as connection:
        for request, answer in ((OFFERED, TOLD), (b"GET /next HTTP/1.1\r\n\r\n", b"GET /next? [] "), (OFFERED, TOLD)):
            await connection.send(request)
            assert (await connection.answer())[2] == answer


async def test_requests_that_are_sent_together_are_answered_in_turn() -> None:
    async with connected(told) as connection:
        await connection.send(OFFERED * 1000)
        assert [(await connection.answer())[2] for _ in range(1000)] == [TOLD] * 1000


async def test_an_offer_in_chunks_is_read_to_its_end() -> None:
    chunked = b"POST / HTTP/1.1\r\n" + OFFER + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with connected(told) as connection:
        await connection.send(chunked)
        assert (await connection.answer())[2] == b"POST /? ['upgrade'] abcde"


@pytest.mark.parametrize(
    "request_",
    [b"CONNECT here:80 HTTP/1.1\r\n\r\n", b"CONNECT / HTTP/1.1\r\n" + OFFER + b"\r\nmore", b"nonsense\r\n\r\n"],
    ids=["tunnel", "offered tunnel", "nonsense"],
)
async def test_what_cannot_be_a_request_for_us_is_refused(request_: bytes) -> None:
    async with connected(told) as connection:
        await connection.send(request_)
        assert (await connection.answer())[0] == 400
