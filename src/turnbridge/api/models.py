"""The routes that list the models that can be asked for."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from turnbridge.api.generation import Generation
from turnbridge.engine.models import ModelChoice
from turnbridge.turn.items import JsonObject
from turnbridge.web.http import OPENAI, RouteOf, json_response

T = TypeVar("T")

OWNER = "codex"
# Codex does not tell when a model was made, and the field must be a number.
UNKNOWN_TIME = 0
# What OpenAI has announced; the first name that a model's begins with.
RELEASED: Mapping[str, datetime] = {
    "gpt-6-astra": datetime(2026, 9, 3, tzinfo=UTC),
    "gpt-6-sol": datetime(2026, 9, 22, tzinfo=UTC),
    "gpt-6-luna": datetime(2026, 9, 22, tzinfo=UTC),
    "gpt-5.6-": datetime(2026, 7, 9, tzinfo=UTC),
}
# OpenAI's limit for all models of these families; Codex does not tell it.
MAX_OUTPUT_TOKENS: Mapping[str, int] = {"gpt-6": 128_000, "gpt-5": 128_000}


class Models:
    """Handlers of `GET /v1/models` and what is below it."""

    dialect = OPENAI

    def __init__(self, generation: Generation) -> None:
        self._generation = generation

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        return [RouteOf("GET", "/models", self.list), RouteOf("GET", "/models/{model:path}", self.retrieve)]

    async def list(self, request: Request) -> Response:
        """List the models, the name of the default one, and the operator's own names."""
        catalog = await self._generation.catalog(request.scope)
        names = catalog.names()
        # A model whose name the operator has given to another is not reached by it.
        listed = [ModelChoice(model, None) for model in catalog.listed() if model.id.lower() not in names]
        named = (model_object(choice, name=name) for name, choice in names.items())
        return json_response({"object": "list", "data": [*map(model_object, listed), *named]})

    async def retrieve(self, request: Request) -> Response:
        """Answer with the model that a name stands for, under that name."""
        name = request.path_params["model"]
        catalog = await self._generation.catalog(request.scope)
        return json_response(model_object(catalog.resolve(name), name=name))


def model_object(choice: ModelChoice, *, name: str | None = None) -> JsonObject:
    """Return a model under the client's name for it, with what is known beyond OpenAI's own fields.

    Those are named as other gateways name them, which is where clients look for them.
    """
    model = choice.model
    released = _published(RELEASED, model.id)
    return {
        "id": name or model.id,
        "object": "model",
        "created": UNKNOWN_TIME if released is None else int(released.timestamp()),
        "owned_by": OWNER,
        "name": model.display_name if name is None or name == model.id else name,
        "display_name": model.display_name,
        "description": model.description,
        "context_length": model.context_window,
        "context_window": model.context_window,
        "max_context_window": model.max_context_window,
        "max_output_tokens": _published(MAX_OUTPUT_TOKENS, model.id),
        "reasoning_efforts": list(model.efforts),
        "default_reasoning_effort": choice.effort or model.default_effort,
        "input_modalities": list(model.modalities),
        "output_modalities": ["text"],
        "service_tiers": list(model.service_tiers),
    }


def _published(facts: Mapping[str, T], model: str) -> T | None:
    return next((fact for family, fact in facts.items() if model.startswith(family)), None)
