"""The ingress as a whole: request ids, errors, unknown routes, and what it lets through untouched."""

import asyncio
import re
from collections.abc import Mapping

import pytest
from dirty_equals import IsStr
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.testing import capture_logs

from tests.web.asgi_driver import Exchange, call
from turnbridge.turn.errors import ContextTooLong, RateLimited
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import Metrics, context_of

pytestmark = pytest.mark.anyio

KEY = {"authorization": "Bearer right-key"}
PREFLIGHT = {"access-control-request-method": "POST"}


async def fine(_request: Request) -> Response:
    return PlainTextResponse("fine")


async def show_context(request: Request) -> Response:
    context = context_of(request.scope)
    return JSONResponse([context.request_id, context.method, context.route])


async def too_fast(_request: Request) -> Response:
    raise RateLimited("Slow down.", retry_after=1.2)


async def too_long(_request: Request) -> Response:
    raise ContextTooLong("Shorten the input.", param="messages")


async def broken(_request: Request) -> Response:
    raise LookupError("the user's secret prompt")


def gateway(*routes: Route) -> ASGIApp:
    common = [
        Route("/healthz", fine),
        Route("/v1/things/{thing_id}", show_context),
        Route("/v1/things/{thing_id}", fine, methods=["DELETE"]),
        Route("/v1/too-fast", too_fast, methods=["POST"]),
        Route("/v1/too-long", too_long),
        Route("/v1/broken", broken),
    ]
    return wrap(Router([*common, *routes]), keyring=Keyring("right-key"), metrics=Metrics())


@pytest.mark.parametrize("given", ["a", "req 1/2~!", "x" * 128])
async def test_a_sane_request_id_is_adopted_and_echoed(given: str) -> None:
    answer = await call(gateway(), "GET", "/v1/things/7", headers={**KEY, "x-request-id": given})
    assert answer.header("x-request-id") == given
    assert answer.json() == [given, "GET", "/v1/things/{thing_id}"]


@pytest.mark.promise("ingress.request-id")
@pytest.mark.parametrize("given", ["", " ", "x" * 129, "a\tb", "é", "a\x7f", "my right-key", "sk-0123456789abcdef"])
async def test_any_other_request_id_is_replaced_by_a_fresh_one(given: str) -> None:
    answer = await call(gateway(), "GET", "/healthz", headers={"x-request-id": given})
    assert re.fullmatch(r"req_[0-9a-f]{32}", answer.header("x-request-id") or "")


async def test_two_requests_get_different_ids() -> None:
    app = gateway()
    first, second = await call(app, "GET", "/healthz"), await call(app, "GET", "/healthz")
    assert first.header("x-request-id") != second.header("x-request-id")


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/healthz", {}, 200),
        ("GET", "/v1/things/7", {}, 401),
        ("GET", "/nowhere", KEY, 404),
        ("PUT", "/v1/things/7", KEY, 405),
        ("POST", "/v1/too-fast", KEY, 429),
        ("GET", "/v1/broken", KEY, 500),
        ("OPTIONS", "/v1/things/7", {**PREFLIGHT, "origin": "http://localhost:3000"}, 204),
        ("OPTIONS", "/v1/things/7", {**PREFLIGHT, "origin": "https://elsewhere.example"}, 403),
    ],
)
async def test_every_answer_carries_the_request_id(
    method: str, path: str, headers: Mapping[str, str], status: int
) -> None:
    answer = await call(gateway(), method, path, headers={**headers, "x-request-id": "mine"})
    assert (answer.status, answer.header("x-request-id")) == (status, "mine")


async def test_an_error_of_ours_becomes_openais_with_its_headers() -> None:
    answer = await call(gateway(), "POST", "/v1/too-fast", headers={**KEY, "x-request-id": "mine"})
    assert answer.status == 429
    assert answer.json() == {
        "error": {
            "message": "Slow down.",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }
    *headers, (last, took) = answer.headers
    assert headers == [
        ("content-type", "application/json"),
        ("content-length", str(len(answer.body))),
        ("retry-after", "2"),
        ("x-request-id", "mine"),
    ]
    assert (last, took.partition("=")[0]) == ("server-timing", "total;dur")


async def test_a_page_can_read_the_error_that_its_request_got() -> None:
    answer = await call(gateway(), "GET", "/v1/broken", headers={**KEY, "origin": "app://obsidian.md"})
    assert (answer.status, answer.header("access-control-allow-origin")) == (500, "app://obsidian.md")


@pytest.mark.promise("errors.own-defect")
async def test_a_defect_is_logged_with_its_cause_and_told_without_it() -> None:
    with capture_logs() as logs:
        answer = await call(gateway(), "GET", "/v1/broken", headers={**KEY, "x-request-id": "mine"})
    assert answer.json() == {
        "error": {
            "message": "The gateway failed by a defect of its own. Try again; if that does not help, "
            "look for the request id mine in the gateway's log.",
            "type": "server_error",
            "param": None,
            "code": "internal_error",
        }
    }
    assert logs[0] == {
        "event": "unexpected_fault",
        "log_level": "error",
        "request_id": "mine",
        "route": "/v1/broken",
        "exc_info": True,
    }


@pytest.mark.parametrize("path", ["/v1/things/7/", "//v1/things/7", "/v1//things/7", "//v1//things//7//"])
async def test_slashes_too_many_do_not_matter(path: str) -> None:
    answer = await call(gateway(), "GET", path, headers=KEY)
    assert (answer.status, answer.header("location")) == (200, None)


async def test_an_unknown_path_is_an_openai_error_that_names_the_routes() -> None:
    answer = await call(gateway(), "POST", "/nowhere", headers=KEY, query=b"secret=1")
    assert answer.status == 404
    assert answer.json() == {
        "error": {
            "message": IsStr(regex=r"Invalid URL \(POST /nowhere\)\. There is no such route\. Served are /v1/\S+.*\."),
            "type": "invalid_request_error",
            "param": None,
            "code": "not_found",
        }
    }


@pytest.mark.promise("ingress.base-url")
@pytest.mark.parametrize(
    "path", ["/v1/v1/things/7", "/api/v1/things/7", "/openai/deployments/gpt/v1/things/7", "/v1/v1/v1/things/7"]
)
async def test_a_base_url_that_is_wrong_is_told_the_right_one(path: str) -> None:
    answer = await call(gateway(), "GET", path, headers=KEY)
    advice = "Did you mean /v1/things/7? The base URL of this API ends in /v1, once; clients add the route to it."
    assert (answer.status, f"Invalid URL (GET {path}). {advice}".encode() in answer.body) == (404, True)


@pytest.mark.promise("ingress.base-url")
@pytest.mark.parametrize("path", ["/", "/v1", "/v1/things", "/a/b/c/d/e/v1/things/7", "/v1/healthz", "/v1/metrics"])
async def test_other_paths_are_not_blamed_on_the_base_url(path: str) -> None:
    answer = await call(gateway(), "GET", path, headers=KEY)
    assert (answer.status, b"base URL" in answer.body) == (404, False)


async def test_a_wrong_verb_is_told_all_the_right_ones() -> None:
    answer = await call(gateway(), "PUT", "/v1/things/7", headers=KEY)
    assert (answer.status, answer.header("allow")) == (405, "DELETE, GET, HEAD")
    assert answer.json() == {
        "error": {
            "message": "PUT is not allowed on /v1/things/{thing_id}. Allowed: DELETE, GET, HEAD.",
            "type": "invalid_request_error",
            "param": None,
            "code": "method_not_allowed",
        }
    }


async def test_head_gets_the_headers_of_an_error_and_no_body() -> None:
    answer = await call(gateway(), "HEAD", "/v1/too-long", headers=KEY)
    full = await call(gateway(), "GET", "/v1/too-long", headers=KEY)
    assert (answer.status, answer.body) == (400, b"")
    assert answer.header("content-length") == str(len(full.body))


async def test_a_stream_passes_piece_by_piece() -> None:
    first_piece_seen = asyncio.Event()

    class Stream:
        async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
            await first_piece_seen.wait()
            await send({"type": "http.response.body", "body": b"two", "more_body": False})

    async with Exchange(gateway(Route("/v1/stream", Stream())), "GET", "/v1/stream", headers=KEY) as exchange:
        assert (await exchange.begin())[0] == 200
        assert await exchange.chunk() == b"one"
        first_piece_seen.set()
        assert await exchange.chunk() == b"two"
        assert await exchange.chunk() is None


@pytest.mark.parametrize(
    ("error", "event", "code"),
    [
        (RateLimited("Slow down."), "error_after_response_began", "rate_limit_exceeded"),
        (LookupError("a defect"), "unexpected_fault", "internal_error"),
    ],
)
async def test_an_error_after_the_response_began_ends_it_without_a_second_answer(
    error: Exception, event: str, code: str
) -> None:
    class Fails:
        async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
            raise error

    with capture_logs() as logs:
        answer = await call(gateway(Route("/v1/fails", Fails())), "GET", "/v1/fails", headers=KEY)
    assert (answer.status, answer.body) == (200, b"one")
    assert [(log["event"], log.get("outcome"), log.get("error_code")) for log in logs] == [
        (event, None, None),
        ("request", "failed_mid_stream", code),
    ]


async def test_an_error_after_the_whole_response_is_only_logged() -> None:
    class FailsLate:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await PlainTextResponse("fine")(scope, receive, send)
            raise RateLimited("Slow down.")

    with capture_logs() as logs:
        answer = await call(gateway(Route("/v1/late", FailsLate())), "GET", "/v1/late", headers=KEY)
    assert (answer.status, answer.body) == (200, b"fine")
    assert [(log["event"], log.get("outcome"), log.get("error_code")) for log in logs] == [
        ("error_after_response_began", None, None),
        ("request", "ok", None),
    ]
