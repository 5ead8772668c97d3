"""An API may tell errors and take keys in its own way, and says so itself; all other paths stay OpenAI's."""

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Scope

from tests.web.asgi_driver import Answer, call
from turnbridge.app import Probes, build_app
from turnbridge.turn.errors import ContextTooLong, GatewayError
from turnbridge.turn.items import JsonObject
from turnbridge.web.bodies import Bodies
from turnbridge.web.http import OPENAI, Dialect, ErrorReply, RouteOf, header_value
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.meter import Meter
from turnbridge.web.middleware.observability import Metrics
from turnbridge.web.middleware.rate_limit import RequestRates

pytestmark = pytest.mark.anyio

KEY = "a-key-of-the-operator"
ERROR: dict[str, object] = {"type": "error", "error": {"type": "ContextTooLong", "message": "Too long."}}


def told(error: GatewayError, _: Scope | None = None) -> ErrorReply:
    kind = type(error).__name__
    return ErrorReply(499, {"x-kind": kind}, {"type": "error", "error": {"type": kind, "message": error.message}})


class Messages:
    """An API that has a dialect of its own."""

    dialect = Dialect(error=told, key=lambda scope: header_value(scope, b"x-api-key"))

    def routes(self) -> list[RouteOf]:
        return [RouteOf("POST", "/messages/{name:path}", self.answer)]

    async def answer(self, request: Request) -> Response:
        if request.path_params["name"] == "long":
            raise ContextTooLong("Too long.")
        return PlainTextResponse("answered")


class Chat(Messages):
    """An API like OpenAI's."""

    dialect = OPENAI

    def routes(self) -> list[RouteOf]:
        return [RouteOf("POST", "/chat/{name}", self.answer)]


def error_in(answer: Answer) -> JsonObject:
    told = answer.json()
    assert isinstance(told, dict)
    error = told["error"]
    assert isinstance(error, dict)
    return error


@pytest.fixture
def app() -> ASGIApp:
    return build_app(
        [Messages(), Chat()],
        probes=Probes(lambda _: "", lambda _: "exact"),
        keyring=Keyring(KEY),
        metrics=Metrics(),
        metrics_token=None,
        allowed_origins=(),
        rates=RequestRates(None),
        meter=Meter(None),
        bodies=Bodies(1000),
    )


@pytest.mark.parametrize("path", ["/v1/messages/short", "/messages/short"])
async def test_a_key_is_taken_where_the_api_has_it(app: ASGIApp, path: str) -> None:
    assert (await call(app, "POST", path, headers={"x-api-key": KEY})).status == 200
    refused = await call(app, "POST", path, headers={"authorization": f"Bearer {KEY}"})
    assert (refused.status, refused.header("x-kind")) == (499, "InvalidApiKey")


async def test_an_error_has_the_shape_of_its_api(app: ASGIApp) -> None:
    answer = await call(app, "POST", "/v1/messages/long", headers={"x-api-key": KEY})
    assert (answer.status, answer.json()) == (499, ERROR)
    openai = await call(app, "POST", "/v1/chat/long", headers={"authorization": f"Bearer {KEY}"})
    assert (openai.status, error_in(openai)["code"]) == (400, "context_length_exceeded")


async def test_what_is_no_route_is_told_as_openai_tells_it(app: ASGIApp) -> None:
    answer = await call(app, "POST", "/v1/nothing", headers={"authorization": f"Bearer {KEY}"})
    assert (answer.status, error_in(answer)["type"]) == (404, "invalid_request_error")
