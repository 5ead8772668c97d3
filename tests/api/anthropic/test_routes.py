"""The routes of the Messages API around a turn: keys, versions, models, and the counting of tokens."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from starlette.types import ASGIApp

from tests.web.asgi_driver import Answer, call
from turnbridge.api.anthropic.models import SharedModels
from turnbridge.api.anthropic.routes import Messages
from turnbridge.api.generation import Generation
from turnbridge.api.models import Models
from turnbridge.app import Probes, build_app
from turnbridge.engine.models import ModelCatalog
from turnbridge.engine.ports import Model, ModelOffer
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.request import TurnRequest
from turnbridge.web.bodies import Bodies, is_large, parsed
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.meter import Meter
from turnbridge.web.middleware.observability import Metrics
from turnbridge.web.middleware.rate_limit import RequestRates

pytestmark = pytest.mark.anyio

KEY = "a-key-of-the-operator"
VERSION = {"anthropic-version": "2023-06-01"}
MODEL = Model(
    id="gpt-5.5",
    display_name="GPT-5.5",
    description="",
    efforts=("low", "high"),
    default_effort="low",
    context_window=272_000,
    max_context_window=272_000,
    modalities=("text",),
    service_tiers=(),
    hidden=False,
    is_default=True,
)


async def counted(turn: TurnRequest) -> int:
    """Count the items of a turn that is ready to run."""
    assert (turn.spec.model, bool(turn.spec.client)) == ("gpt-5.5", True)
    return len(turn.items)


class Generating:
    """As much of `Generation` as is used before a turn runs."""

    rules = SimpleNamespace(model_aliases={"mine": "gpt-5.5"})
    bodies = Bodies(10_000)

    async def catalog(self, _: object) -> ModelCatalog:
        return ModelCatalog(ModelOffer(models=(MODEL,), default=None), aliases=self.rules.model_aliases)

    async def body(self, request: Any) -> tuple[JsonObject, bool]:
        sent = await self.bodies.read(request.scope, request.receive)
        return await parsed(sent), is_large(sent)


@pytest.fixture
def app() -> ASGIApp:
    generation = cast(Generation, Generating())
    return build_app(
        [Messages(generation, counted), SharedModels(generation, otherwise=Models(generation))],
        probes=Probes(lambda _: "", lambda _: "exact"),
        keyring=Keyring(KEY),
        metrics=Metrics(),
        metrics_token=None,
        allowed_origins=(),
        rates=RequestRates(None),
        meter=Meter(None),
        bodies=Bodies(10_000),
    )


def error_type(answer: Answer) -> tuple[int, Json, Json]:
    told = answer.json()
    assert isinstance(told, dict)
    assert isinstance(told["error"], dict)
    return answer.status, told.get("type"), told["error"]["type"]


@pytest.mark.promise("anthropic.keys", "anthropic.hello")
@pytest.mark.parametrize(
    ("headers", "accepted"),
    [
        ({"x-api-key": KEY}, True),
        ({"authorization": f"Bearer {KEY}"}, True),
        ({"x-api-key": KEY, "authorization": f"Bearer {KEY}"}, True),
        ({"x-api-key": "", "authorization": f"Bearer {KEY}"}, True),
        ({"x-api-key": KEY, "authorization": "Bearer another"}, False),
        ({"x-api-key": "another"}, False),
        ({}, False),
    ],
)
async def test_a_key_is_taken_from_either_header(app: ASGIApp, headers: dict[str, str], accepted: bool) -> None:
    # Claude Code sends no key there.
    assert (await call(app, "HEAD", "/api/hello", headers=headers)).status == 200
    models = await call(app, "GET", "/v1/models", headers={**headers, **VERSION})
    assert models.status == (200 if accepted else 401)
    if not accepted:
        assert error_type(models) == (401, "error", "authentication_error")
        assert (models.header("x-should-retry"), models.header("request-id")) == (
            "false",
            models.header("x-request-id"),
        )


@pytest.mark.promise("anthropic.models.list")
async def test_models_have_the_shape_of_the_api_that_asks(app: ASGIApp) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    listed = (await call(app, "GET", "/v1/models", headers={**key, **VERSION})).json()
    assert isinstance(listed, dict)
    assert isinstance(listed["data"], list)
    assert [model["id"] for model in listed["data"] if isinstance(model, dict)] == [
        *("gpt-5.5", "claude-gpt-5.5", "codex-5", "mine"),
        *("claude-opus", "claude-sonnet", "claude-haiku", "claude-fable"),
    ]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("gpt-5.5", "claude-fable", False)
    openai = (await call(app, "GET", "/v1/models", headers=key)).json()
    assert isinstance(openai, dict)
    assert openai["object"] == "list"
    one = (await call(app, "GET", "/v1/models/claude-opus-5", headers={**key, **VERSION})).json()
    assert isinstance(one, dict)
    assert (one["type"], one["id"], one["display_name"]) == ("model", "claude-opus-5", "GPT-5.5")
    assert error_type(await call(app, "GET", "/v1/models/gemini-3", headers={**key, **VERSION})) == (
        *(404, "error", "not_found_error"),
    )
    assert error_type(await call(app, "GET", "/v1/models/gemini-3", headers=key)) == (
        *(404, None, "invalid_request_error"),
    )
    # Only one of the two APIs knows the other header.
    assert (await call(app, "GET", "/v1/models", headers={"x-api-key": KEY})).status == 401


@pytest.mark.promise("anthropic.count-tokens", "anthropic.versions")
async def test_tokens_are_counted(app: ASGIApp) -> None:
    asked: JsonObject = {"model": "claude-opus-5", "messages": [{"role": "user", "content": "hi"}] * 3}
    key = {"x-api-key": KEY}
    body = msgspec.json.encode(asked)
    assert (await call(app, "POST", "/v1/messages/count_tokens", headers=key, body=[body])).json() == {
        "input_tokens": 3
    }
    unknown = {**key, "anthropic-version": "1999-01-01"}
    refused = await call(app, "POST", "/v1/messages/count_tokens", headers=unknown, body=[body])
    assert error_type(refused) == (400, "error", "invalid_request_error")
    other = msgspec.json.encode({**asked, "model": "gemini-3"})
    refused = await call(app, "POST", "/v1/messages/count_tokens", headers=key, body=[other])
    assert error_type(refused) == (404, "error", "not_found_error")
