"""Reading a request's body within its limit."""

from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message
from structlog.testing import capture_logs

from tests.web.asgi_driver import Exchange, call
from turnbridge.turn.errors import RequestTooLarge
from turnbridge.web.bodies import Bodies
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import CONTEXT_KEY, Metrics, RequestContext

pytestmark = pytest.mark.anyio

LIMIT = 1024 * 1024
KEY = {"authorization": "Bearer right-key"}


async def echo(request: Request) -> Response:
    return Response(await Bodies(LIMIT).read(request.scope, request.receive))


def gateway() -> ASGIApp:
    return wrap(Router([Route("/echo", echo, methods=["POST"])]), keyring=Keyring("right-key"), metrics=Metrics())


@pytest.mark.parametrize("body", [[b""], [b"whole"], [b"in ", b"", b"pieces"], [b"x" * LIMIT]])
async def test_a_body_within_the_limit_is_read_whole(body: Sequence[bytes]) -> None:
    answer = await call(gateway(), "POST", "/echo", headers=KEY, body=body)
    assert (answer.status, answer.body) == (200, b"".join(body))


async def test_a_body_that_outgrows_the_limit_is_refused() -> None:
    answer = await call(gateway(), "POST", "/echo", headers=KEY, body=[b"x" * LIMIT, b"x"])
    assert answer.status == 413
    assert answer.json() == {
        "error": {
            "message": "The request body is larger than the 1 MB that this server takes. "
            "Send less, or raise PROXY_MAX_BODY_MB on the server.",
            "type": "invalid_request_error",
            "param": None,
            "code": "request_too_large",
        }
    }


@pytest.mark.promise("errors.body-limit")
async def test_a_body_announced_as_too_large_is_refused_unread() -> None:
    async def receive() -> Message:
        raise AssertionError("nothing should be read")

    context = RequestContext(request_id="r", method="POST", route="/", clock=float, started_at=0.0)
    context.headers = {b"content-length": b"%d" % (LIMIT + 1)}
    scope = {"type": "http", "headers": [*context.headers.items()], CONTEXT_KEY: context}
    with pytest.raises(RequestTooLarge):
        await Bodies(LIMIT).read(scope, receive)


async def test_a_compressed_body_is_refused_with_what_to_do() -> None:
    answer = await call(gateway(), "POST", "/echo", headers={**KEY, "content-encoding": "GZip"}, body=[b"?"])
    assert answer.status == 400
    assert answer.json() == {
        "error": {
            "message": "A body with 'Content-Encoding: gzip' cannot be read here. Send it uncompressed.",
            "type": "invalid_request_error",
            "param": None,
            "code": "unsupported_content_encoding",
        }
    }


async def test_identity_is_no_compression() -> None:
    headers = {**KEY, "content-encoding": "identity", "content-length": "2"}
    answer = await call(gateway(), "POST", "/echo", headers=headers, body=[b"ok"])
    assert (answer.status, answer.body) == (200, b"ok")


async def test_a_client_that_leaves_during_the_upload_is_logged_as_gone_and_gets_no_answer() -> None:
    with capture_logs() as logs:
        async with Exchange(gateway(), "POST", "/echo", headers=KEY, body=[b"half"], whole_body=False) as exchange:
            exchange.leave()
            assert await exchange.chunk() is None
    assert [(log["event"], log["outcome"], log["status"]) for log in logs] == [("request", "client_gone", None)]
