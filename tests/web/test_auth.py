"""The gateway's own key."""

from collections.abc import Mapping

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from tests.web.asgi_driver import call
from turnbridge.web.auth import masked
from turnbridge.web.ingress import wrap
from turnbridge.web.metrics import Metrics

pytestmark = pytest.mark.anyio

HOW = (
    "Send the header 'Authorization: Bearer YOUR_KEY' (in OpenAI's SDKs: api_key or OPENAI_API_KEY), "
    "where YOUR_KEY is the PROXY_API_KEY of this server."
)


async def fine(_request: Request) -> Response:
    return PlainTextResponse("fine")


def gateway(api_key: str = "right-key") -> ASGIApp:
    paths = ["/healthz", "/readyz", "/livez", "/metrics", "/v1/models"]
    return wrap(Router([Route(path, fine) for path in paths]), api_key=api_key, metrics=Metrics())


@pytest.mark.parametrize("header", ["Bearer right-key", "bearer right-key", "BEARER  right-key "])
async def test_the_right_key_opens_whatever_the_case_of_the_scheme(header: str) -> None:
    answer = await call(gateway(), "GET", "/v1/models", headers={"authorization": header})
    assert (answer.status, answer.body) == (200, b"fine")


async def test_a_key_outside_ascii_is_compared_by_its_utf8_bytes() -> None:
    answer = await call(gateway("schlüssel"), "GET", "/v1/models", headers={"authorization": "Bearer schlüssel"})
    assert answer.status == 200


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Basic right-key"}, {"authorization": "Bearer "}, {"authorization": ""}]
)
async def test_without_a_key_the_client_is_told_how_to_give_it(headers: Mapping[str, str]) -> None:
    answer = await call(gateway(), "GET", "/v1/models", headers=headers)
    assert (answer.status, answer.header("www-authenticate")) == (401, "Bearer")
    assert answer.json() == {
        "error": {
            "message": f"You didn't provide an API key. {HOW}",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }


async def test_a_wrong_key_is_named_only_as_far_as_its_owner_needs() -> None:
    headers = {"authorization": "Bearer sk-abcdefghijklmnop"}
    answer = await call(gateway(), "GET", "/v1/models", headers=headers)
    assert (answer.status, answer.header("www-authenticate")) == (401, "Bearer")
    assert answer.json() == {
        "error": {
            "message": f"Incorrect API key provided: sk-***op. {HOW}",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }


@pytest.mark.parametrize("given", ["right-ke", "right-key-and-more", "Right-key", "right-key right-key"])
async def test_a_key_that_is_nearly_right_is_wrong(given: str) -> None:
    answer = await call(gateway(), "GET", "/v1/models", headers={"authorization": f"Bearer {given}"})
    assert answer.status == 401


@pytest.mark.parametrize("path", ["/nowhere", "/healthz/x", "/healthz/../v1/models", "/metrics/x", "//v1/models/"])
async def test_an_unknown_path_asks_for_the_key_too(path: str) -> None:
    assert (await call(gateway(), "GET", path)).status == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/metrics"])
async def test_probes_and_metrics_need_no_key(path: str) -> None:
    assert (await call(gateway(), "GET", path)).status == 200


async def test_options_that_is_no_preflight_asks_for_the_key() -> None:
    assert (await call(gateway(), "OPTIONS", "/v1/models", headers={"origin": "http://localhost"})).status == 401


@pytest.mark.parametrize(
    ("key", "shown"),
    [("short", "***"), ("elevenchars", "***"), ("twelve-chars", "twe***rs"), ("sk-" + "x" * 99, "sk-***xx")],
)
def test_a_mask_shows_five_characters_of_a_long_key_and_none_of_a_short_one(key: str, shown: str) -> None:
    assert masked(key.encode()) == shown


def test_an_empty_key_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="API key is empty"):
        gateway("")
