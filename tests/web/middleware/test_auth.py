"""The gateway's own key."""

from collections.abc import Mapping

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from tests.web.asgi_driver import call
from turnbridge.web.middleware.auth import MOST_WRONG_KEYS, masked
from turnbridge.web.middleware.ingress import wrap
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import Metrics

pytestmark = pytest.mark.anyio

HOW = (
    "Send the header 'Authorization: Bearer YOUR_KEY' (in OpenAI's SDKs: api_key or OPENAI_API_KEY), "
    "where YOUR_KEY is a key of this server: PROXY_API_KEY, or one that its operator made by `turnbridge keys create`."
)


KEY = {"authorization": "Bearer right-key"}
FAR = ("203.0.113.9", 40000)


async def fine(_request: Request) -> Response:
    return PlainTextResponse("fine")


def gateway(api_key: str = "right-key") -> ASGIApp:
    paths = ["/healthz", "/readyz", "/livez", "/metrics", "/v1/models"]
    routes = Router([Route(path, fine) for path in paths])
    return wrap(routes, keyring=Keyring(api_key), metrics=Metrics(), own_names=("own.example",))


@pytest.mark.parametrize("header", ["Bearer right-key", "bearer right-key", "BEARER  right-key "])
async def test_the_right_key_opens_whatever_the_case_of_the_scheme(header: str) -> None:
    answer = await call(gateway(), "GET", "/v1/models", headers={"authorization": header})
    assert (answer.status, answer.body) == (200, b"fine")


async def test_a_key_outside_ascii_is_compared_by_its_utf8_bytes() -> None:
    answer = await call(gateway("schlüssel"), "GET", "/v1/models", headers={"authorization": "Bearer schlüssel"})
    assert answer.status == 200


@pytest.mark.promise("ingress.key")
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


@pytest.mark.promise("ingress.key")
@pytest.mark.parametrize("given", ["right-ke", "right-key-and-more", "Right-key", "right-key right-key"])
async def test_a_key_that_is_nearly_right_is_wrong(given: str) -> None:
    answer = await call(gateway(), "GET", "/v1/models", headers={"authorization": f"Bearer {given}"})
    assert answer.status == 401


@pytest.mark.promise("ingress.key")
@pytest.mark.parametrize("path", ["/nowhere", "/healthz/x", "/healthz/../v1/models", "/metrics/x", "//v1/models/"])
async def test_an_unknown_path_asks_for_the_key_too(path: str) -> None:
    assert (await call(gateway(), "GET", path)).status == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_probes_need_no_key(path: str) -> None:
    assert (await call(gateway(), "GET", path)).status == 200


@pytest.mark.promise("ingress.probes")
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/metrics"])
async def test_open_routes_are_reached_by_their_exact_path_only(path: str) -> None:
    name = path.removeprefix("/")
    forms = {f"/{path}": path, f"{path}/": f"{path}/", f"/%{ord(name[0]):02x}{name[1:]}": path, f"//{name}//": path}
    for sent, read in {**forms, path.upper(): path.upper(), f"{path};x": f"{path};x"}.items():
        app, raw = gateway(), sent.encode()
        assert (await call(app, "GET", read, raw_path=raw)).status == 401
        assert (await call(app, "GET", read, raw_path=raw, headers=KEY)).status == 404


@pytest.mark.promise("ingress.probes")
@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:80", "[::1]", "10.1.2.3:80", "[2001:db8::1]:80", "Own.Example"]
)
async def test_probes_are_open_to_whoever_knows_a_name_of_the_server(host: str) -> None:
    assert (await call(gateway(), "GET", "/healthz", headers={"host": host})).status == 200


@pytest.mark.promise("ingress.probes")
@pytest.mark.parametrize("host", ["rebound.example", "own.example.evil.example", "", "127.0.0.1.evil.example:80"])
async def test_under_another_name_probes_ask_for_the_key_too(host: str) -> None:
    answer = await call(gateway(), "GET", "/healthz", headers={"host": host})
    assert answer.status == 401
    assert f"The host '{host}' is not a name of this server".encode() in answer.body
    assert (await call(gateway(), "GET", "/healthz", headers={"host": host, **KEY})).status == 200


@pytest.mark.promise("bounds.key-guessing")
async def test_after_many_wrong_keys_a_peer_learns_nothing_of_the_next() -> None:
    app = gateway()
    wrong = {"authorization": "Bearer guess"}
    for _ in range(MOST_WRONG_KEYS):
        assert (await call(app, "GET", "/v1/models", headers=wrong, client=FAR)).status == 401
    answers = [await call(app, "GET", "/v1/models", headers=each, client=FAR) for each in (wrong, KEY)]
    assert [(answer.status, answer.json()) for answer in answers] == [
        (
            429,
            {
                "error": {
                    "message": "Too many wrong keys came from this address. Check the key, and try again later.",
                    "type": "rate_limit_error",
                    "param": None,
                    "code": "too_many_wrong_keys",
                }
            },
        )
    ] * 2
    assert 1 <= int(answers[0].header("retry-after") or 0) <= 60
    assert (await call(app, "GET", "/v1/models", headers=KEY, client=("198.51.100.7", 1))).status == 200


@pytest.mark.promise("bounds.key-guessing")
@pytest.mark.parametrize("client", [FAR, ("127.0.0.1", 1)])
async def test_guesses_do_not_hurt_whoever_had_the_right_key_behind_the_same_address(client: tuple[str, int]) -> None:
    app = gateway()
    assert (await call(app, "GET", "/v1/models", headers=KEY, client=client)).status == 200
    statuses = [
        (await call(app, "GET", "/v1/models", headers={"authorization": "Bearer guess"}, client=client)).status
        for _ in range(2 * MOST_WRONG_KEYS)
    ]
    assert statuses == [401] * MOST_WRONG_KEYS + [429] * MOST_WRONG_KEYS
    assert (await call(app, "GET", "/v1/models", headers=KEY, client=client)).status == 200


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
