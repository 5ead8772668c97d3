"""Which origins may call from a browser, and what they are told."""

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp
from structlog.testing import capture_logs

from tests.web.asgi_driver import Answer, call
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import Metrics

pytestmark = pytest.mark.anyio

KEY = {"authorization": "Bearer right-key", "x-request-id": "mine"}

ALLOWED = [
    "http://localhost",
    "https://localhost:5173",
    "http://127.0.0.1:3000",
    "http://[::1]:8080",
    "app://obsidian.md",
    "capacitor://localhost",
    "https://chat.example",
]
REFUSED = [
    "https://elsewhere.example",
    "http://localhost.elsewhere.example",
    "http://localhost:3000.elsewhere.example",
    "https://elsewhere.example/http://localhost",
    "http://127.0.0.10",
    "ftp://localhost",
    "http://localhost:",
    "null",
    "",
]


async def fine(_request: Request) -> Response:
    return PlainTextResponse("fine", headers={"vary": "Accept"})


def gateway(*origins: str) -> ASGIApp:
    return wrap(
        Router([Route("/v1/models", fine)]),
        keyring=Keyring("right-key"),
        metrics=Metrics(),
        allowed_origins=origins or ["HTTPS://Chat.example/"],
        exposed_headers=["x-turnbridge-served-by"],
    )


def cors_headers(answer: Answer) -> dict[str, str]:
    return {
        name: value
        for name, value in answer.headers
        if name.startswith("access-control-") or (name == "vary" and value != "Accept")
    }


async def preflight(app: ASGIApp, origin: str, **more: str) -> Answer:
    headers = {"origin": origin, "access-control-request-method": "POST"}
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    return await call(app, "OPTIONS", "/v1/chat/completions", headers=headers)


@pytest.mark.promise("ingress.cors")
@pytest.mark.parametrize("origin", ALLOWED)
async def test_a_page_of_an_allowed_origin_can_read_the_answer(origin: str) -> None:
    answer = await call(gateway(), "GET", "/v1/models", headers={**KEY, "origin": origin})
    assert (answer.status, answer.body) == (200, b"fine")
    assert cors_headers(answer) == {
        "vary": "Origin",
        "access-control-allow-origin": origin,
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": "x-request-id, retry-after, server-timing, x-turnbridge-served-by",
    }


@pytest.mark.promise("ingress.cors")
@pytest.mark.parametrize("origin", REFUSED)
async def test_a_page_of_any_other_origin_is_served_but_cannot_read_the_answer(origin: str) -> None:
    answer = await call(gateway(), "GET", "/v1/models", headers={**KEY, "origin": origin})
    assert answer.status == 200
    assert cors_headers(answer) == {"vary": "Origin"}


async def test_a_request_without_an_origin_is_left_alone() -> None:
    answer = await call(gateway(), "GET", "/v1/models", headers=KEY)
    assert answer.status == 200
    assert cors_headers(answer) == {}


async def test_the_handlers_own_vary_stays() -> None:
    answer = await call(gateway(), "GET", "/v1/models", headers={**KEY, "origin": "http://localhost"})
    assert [value for name, value in answer.headers if name == "vary"] == ["Accept", "Origin"]


@pytest.mark.parametrize("origin", ALLOWED)
async def test_a_preflight_needs_no_key_and_says_what_may_be_sent(origin: str) -> None:
    answer = await preflight(gateway(), origin)
    assert (answer.status, answer.body) == (204, b"")
    assert cors_headers(answer) == {
        "vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        "access-control-allow-origin": origin,
        "access-control-allow-credentials": "true",
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS, HEAD",
        "access-control-max-age": "600",
    }


async def test_a_preflight_allows_every_header_asked_for_that_is_one() -> None:
    asked = "authorization,x-stainless-os, X-Stainless-Retry-Count , bad header, ü, ,x:y"
    answer = await preflight(gateway(), "http://localhost", access_control_request_headers=asked)
    assert answer.header("access-control-allow-headers") == ("authorization, x-stainless-os, X-Stainless-Retry-Count")


async def test_a_preflight_allows_the_private_network_when_asked() -> None:
    answer = await preflight(gateway(), "http://localhost", access_control_request_private_network="true")
    assert answer.header("access-control-allow-private-network") == "true"


@pytest.mark.parametrize("origin", REFUSED)
async def test_a_preflight_of_any_other_origin_is_refused_and_told_the_setting(origin: str) -> None:
    answer = await preflight(gateway(), origin, access_control_request_private_network="true")
    assert answer.status == 403
    assert cors_headers(answer) == {"vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"}
    assert answer.json() == {
        "error": {
            "message": f"The origin {origin} may not call this server from a browser. "
            "Add it to PROXY_CORS_ALLOWED_ORIGINS to allow it.",
            "type": "invalid_request_error",
            "param": None,
            "code": "forbidden",
        }
    }


@pytest.mark.parametrize(
    ("origin", "shown"),
    [("https://elsewhere.example", "https://elsewhere.example"), ("https://" + "x" * 5000, "https://" + "x" * 192)],
    ids=["usual", "endless"],
)
async def test_the_log_says_which_origin_was_refused(origin: str, shown: str) -> None:
    with capture_logs() as logged:
        await preflight(gateway(), origin, x_request_id="mine")
    refused, request = logged
    assert refused == {"event": "origin_refused", "log_level": "info", "origin": shown, "request_id": "mine"}
    assert (request["event"], request["request_id"]) == ("request", "mine")


async def test_a_star_allows_everyone_without_credentials() -> None:
    answer = await preflight(gateway("*"), "https://elsewhere.example")
    assert (answer.status, answer.header("access-control-allow-origin")) == (204, "*")
    assert answer.header("access-control-allow-credentials") is None


async def test_an_origin_that_is_also_named_keeps_its_credentials_under_a_star() -> None:
    answer = await preflight(gateway("*", "https://chat.example"), "https://chat.example")
    assert answer.header("access-control-allow-origin") == "https://chat.example"
    assert answer.header("access-control-allow-credentials") == "true"
