"""The models in Anthropic's words: names that its clients use by themselves, and the routes that list them.

Claude Code shows only models that have `claude` or `anthropic` in their names, so each is listed under such a name too.
"""

from collections.abc import Awaitable, Iterator, Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.types import ASGIApp

from turnbridge.api.anthropic.decode import EFFORTS, version_of
from turnbridge.api.anthropic.dialect import SHARED, is_anthropic, mark
from turnbridge.api.generation import Generation
from turnbridge.engine.models import DEFAULT_MODEL, ModelCatalog
from turnbridge.engine.ports import Model
from turnbridge.turn.errors import ModelNotFound
from turnbridge.turn.items import Json, JsonObject
from turnbridge.web.http import RouteOf, json_response

ALIAS = "claude-"
LARGE_CONTEXT = "[1m]"
"""At the end of a name, by which Claude Code means a larger context window."""
FAMILIES = ("opus", "sonnet", "haiku", "fable")
SMALL_FAMILY = "haiku"
SMALL_MODELS = ("mini", "nano", "luna", "spark")
"""What the name of a small model has in it."""
LONGEST_NAME = 200
"""No name is longer, and answers repeat it."""

UNKNOWN_TIME = "1970-01-01T00:00:00Z"
# What current models may say at once; Codex's catalogue does not tell.
MOST_OUTPUT_TOKENS = 128_000

# Efforts from the least to the most. A model without a list is taken to have those that all have.
SCALE = ("none", "minimal", *EFFORTS)
COMMON_EFFORTS = ("low", "medium", "high")


class OpenAIModels(Protocol):
    """The same routes in OpenAI's shape."""

    def list(self, request: Request, /) -> Awaitable[ASGIApp]:
        """List the models."""
        ...

    def retrieve(self, request: Request, /) -> Awaitable[ASGIApp]:
        """Answer with a model."""
        ...


class SharedModels:
    """Handlers of `GET /v1/models` and what is below it, for both APIs: the caller's headers tell which it speaks."""

    dialect = SHARED

    def __init__(self, generation: Generation, otherwise: OpenAIModels) -> None:
        self._generation = generation
        self._otherwise = otherwise

    def routes(self) -> list[RouteOf]:
        """Return the routes."""
        return [RouteOf("GET", "/models", self.list), RouteOf("GET", "/models/{model:path}", self.retrieve)]

    async def list(self, request: Request) -> ASGIApp:
        """List the models, each by its name and as `claude-…`, and the operator's own names."""
        if not is_anthropic(request.scope):
            return await self._otherwise.list(request)
        _accept(request)
        catalog = await self._generation.catalog(request.scope)
        data: list[Json] = [model_object(model, name) for name, model in _names(catalog)]
        names = [name for name, _ in _names(catalog)]
        first, last = (names[0], names[-1]) if names else (None, None)
        return json_response({"data": data, "has_more": False, "first_id": first, "last_id": last})

    async def retrieve(self, request: Request) -> ASGIApp:
        """Answer with the model that a name stands for, under that name."""
        if not is_anthropic(request.scope):
            return await self._otherwise.retrieve(request)
        _accept(request)
        name, catalog = str(request.path_params["model"]), await self._generation.catalog(request.scope)
        wanted = codex_name(name, catalog, self._generation.rules.model_aliases)
        return json_response(model_object(catalog.resolve(wanted).model, name))


def codex_name(name: str, catalog: ModelCatalog, aliases: Mapping[str, str]) -> str:
    """Return the name of a model of Codex that a client's name stands for; names that mean nothing stay as they are."""
    if len(name) > LONGEST_NAME:
        return name
    wanted = name.strip().lower().removesuffix(LARGE_CONTEXT)
    operators = {alias.lower() for alias in aliases}
    if wanted in operators or _is_known(wanted, catalog):
        return wanted
    bare = wanted.removeprefix(ALIAS)
    if _is_known(bare, catalog):
        return bare
    if not wanted.startswith(ALIAS) and bare not in FAMILIES:
        return name
    if SMALL_FAMILY in bare:
        return next((model.id for model in catalog.listed() if _is_small(model)), DEFAULT_MODEL)
    return DEFAULT_MODEL


def nearest_effort(effort: str, model: Model) -> str:
    """Return the effort of a model that is nearest to one of this API; of two, the lesser."""
    known = [each for each in SCALE if each in (model.efforts or COMMON_EFFORTS)]
    if not known:
        return effort
    place = SCALE.index(effort)
    return min(known, key=lambda each: (abs(SCALE.index(each) - place), SCALE.index(each)))


def model_object(model: Model, name: str) -> JsonObject:
    """Return a model under one of its names."""
    return {
        "type": "model",
        "id": name,
        "display_name": model.display_name,
        "created_at": UNKNOWN_TIME,
        "lifecycle": "active",
        "max_input_tokens": model.context_window,
        "max_tokens": MOST_OUTPUT_TOKENS,
    }


def _accept(request: Request) -> None:
    version_of(request.headers.get("anthropic-version"))
    mark(request.scope)


def _names(catalog: ModelCatalog) -> Iterator[tuple[str, Model]]:
    others = catalog.names()
    for model in catalog.listed():
        # A model whose name the operator has given to another is not reached by it.
        if model.id.lower() not in others:
            yield model.id, model
        yield f"{ALIAS}{model.id}", model
    yield from ((name, choice.model) for name, choice in others.items())
    # What stands for the models that clients choose by themselves.
    for name in (f"{ALIAS}{family}" for family in FAMILIES):
        target = codex_name(name, catalog, {})
        if name not in others and _is_known(target, catalog):
            yield name, catalog.resolve(target).model


def _is_known(name: str, catalog: ModelCatalog) -> bool:
    try:
        catalog.resolve(name)
    except ModelNotFound:
        return False
    return True


def _is_small(model: Model) -> bool:
    return any(word in model.id.lower() for word in SMALL_MODELS)
