"""The models that can be asked for, and the routes that list them."""

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from turnbridge.engine.models import ModelCatalog
from turnbridge.engine.ports import Backend, Model
from turnbridge.turn.items import JsonObject
from turnbridge.web.dialect import OPENAI
from turnbridge.web.http import RouteOf, json_response

OWNER = "codex"
# Codex does not tell when a model was made, and the field must be a number.
UNKNOWN_TIME = 0


class Models:
    """What can be asked for, read from Codex each time: it changes with its login and its version.

    Handles `GET /v1/models` and what is below it.
    """

    dialect = OPENAI

    def __init__(self, backend: Backend, *, aliases: Mapping[str, str]) -> None:
        self._backend = backend
        self._aliases = aliases
        self._known: tuple[Sequence[Model], str | None, ModelCatalog] | None = None

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        return [RouteOf("GET", "/models", self.list), RouteOf("GET", "/models/{model:path}", self.retrieve)]

    async def catalog(self) -> ModelCatalog:
        """Return the models and every name for them."""
        default = await self._backend.default_model()
        models = await self._backend.models()
        # Made anew only when Codex has others: that takes 7 µs.
        if self._known is None or self._known[0] is not models or self._known[1] != default:
            self._known = (models, default, ModelCatalog(models, default=default, aliases=self._aliases))
        return self._known[2]

    def fidelity(self) -> str:
        """Tell how faithfully the model is shown a request."""
        return self._backend.fidelity()

    async def list(self, _: Request) -> Response:
        """List the models, and the operator's own names for them."""
        catalog = await self.catalog()
        listed = [model_object(model) for model in catalog.listed()]
        aliases = [model_object(model, name=name) for name, model in catalog.aliases().items()]
        return json_response({"object": "list", "data": [*listed, *aliases]})

    async def retrieve(self, request: Request) -> Response:
        """Answer with the model that a name stands for, under that name."""
        name = request.path_params["model"]
        return json_response(model_object((await self.catalog()).resolve(name).model, name=name))


def model_object(model: Model, *, name: str | None = None) -> JsonObject:
    """Return a model under the client's name for it, with what Codex knows beyond OpenAI's own fields."""
    return {
        "id": name or model.id,
        "object": "model",
        "created": UNKNOWN_TIME,
        "owned_by": OWNER,
        "display_name": model.display_name,
        "description": model.description,
        "context_window": model.context_window,
        "max_context_window": model.max_context_window,
        "reasoning_efforts": list(model.efforts),
        "default_reasoning_effort": model.default_effort,
        "input_modalities": list(model.modalities),
        "service_tiers": list(model.service_tiers),
    }
