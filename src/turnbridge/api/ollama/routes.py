"""The routes of Ollama's API: chats and texts, the models, and what is not served."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Scope

from turnbridge.api.generation import Generation
from turnbridge.api.ollama import schema
from turnbridge.api.ollama.decode import Decoded, codex_name, decode_chat, decode_generate
from turnbridge.api.ollama.encode import CONTENT_TYPE, OllamaEncoder, error_body, line
from turnbridge.api.ollama.history import CallPlace
from turnbridge.api.ollama.models import described, listed, own_effort
from turnbridge.api.shared.errors import error_headers, status_of
from turnbridge.api.shared.validation import convert, missing
from turnbridge.engine.models import LONGEST_SHOWN, ModelChoice
from turnbridge.turn.errors import GatewayError, ModelNotFound, NotFound
from turnbridge.turn.fair_shares import FairShares
from turnbridge.turn.items import JsonObject, replace
from turnbridge.web.bodies import beside, parsed
from turnbridge.web.http import OPENAI, Dialect, ErrorReply, RouteOf, bearer_token, json_response
from turnbridge.web.middleware.auth import client_of
from turnbridge.web.middleware.observability import context_of

# VS Code asks for 0.6.4 at least. Clients choose features by it, so that it is a version of Ollama and not ours.
VERSION = "0.24.0"

NOT_SERVED = "not_served"

# Ids of calls that clients may send back without them: some kilobytes for each hundred.
MOST_CALLS = 4096

NO_MODELS_HERE = "The models are Codex's: they are neither made, copied, uploaded nor deleted here."
NOT_BELOW_V1 = "Ollama's routes have no /v1 before them: leave it out of the client's URL."
NO_EMBEDDINGS = "Codex has no embedding models. Point the client's embeddings at another server, such as Ollama itself."
UNSERVED = {
    **dict.fromkeys(("/api/create", "/api/copy", "/api/push", "/api/delete", "/api/blobs/{digest}"), NO_MODELS_HERE),
    **dict.fromkeys(("/api/embed", "/api/embeddings"), NO_EMBEDDINGS),
    "/v1/api/{rest:path}": NOT_BELOW_V1,
}


def _error(error: GatewayError, scope: Scope | None = None, /) -> ErrorReply:
    # OpenAI's and Anthropic's routes are on this listener too, and so are paths below theirs that do not exist.
    if scope is not None and scope["path"].startswith("/v1/") and not scope["path"].startswith("/v1/api/"):
        return OPENAI.error(error, scope)
    return ErrorReply(status_of(error), error_headers(error), error_body(error))


OLLAMA = Dialect(error=_error, key=bearer_token)


class CallIds:
    """The ids of calls by their places, of each client: most clients send their calls back without them."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, CallPlace], str] = {}
        self._shares: FairShares[tuple[str, CallPlace]] = FairShares(most=MOST_CALLS)

    def find(self, client: str, place: CallPlace) -> str | None:
        """Return the id of the last call that a client was given at a place."""
        return self._ids.get((client, place))

    def keep(self, client: str, place: CallPlace, call_id: str) -> None:
        """Keep the id of a call."""
        key = client, place
        self._ids[key] = call_id
        self._shares.add(client, key)
        while (excess := self._shares.excess()) is not None:
            self._shares.remove(excess)
            del self._ids[excess]


class Ollama:
    """Handlers of `/` and `/api/*`."""

    dialect = OLLAMA

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._ids = CallIds()

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        return [
            RouteOf("GET", "/", self.alive),
            RouteOf("GET", "/api/version", self.version),
            RouteOf("GET", "/api/tags", self.tags),
            RouteOf("GET", "/api/ps", self.loaded),
            RouteOf("POST", "/api/show", self.show),
            RouteOf("POST", "/api/pull", self.pull),
            RouteOf("POST", "/api/chat", self.chat, generates=True),
            RouteOf("POST", "/api/generate", self.generate, generates=True),
            *(RouteOf(None, path, partial(self._refuse, why)) for path, why in UNSERVED.items()),
        ]

    async def alive(self, _: Request) -> Response:
        """Say what clients look for."""
        return PlainTextResponse("Ollama is running")

    async def version(self, _: Request) -> Response:
        """Answer with a version that clients accept."""
        return json_response({"version": VERSION})

    async def tags(self, request: Request) -> Response:
        """List the models, also without a login."""
        return json_response({"models": [*listed(await self._generation.catalog(request.scope))]})

    async def loaded(self, _: Request) -> Response:
        """Answer that no model takes memory here."""
        return json_response({"models": []})

    async def show(self, request: Request) -> Response:
        """Describe a model."""
        _, name = await self._named(request)
        shown = codex_name(name, self._generation.rules.model_aliases)
        return json_response(described((await self._choice(request, name)).model, shown))

    async def pull(self, request: Request) -> Response:
        """Say that a model is there, if it is."""
        given, name = await self._named(request)
        await self._choice(request, name)
        done: JsonObject = {"status": "success"}
        return json_response(done) if given.stream is False else Response(line(done), media_type=CONTENT_TYPE)

    async def chat(self, request: Request) -> ASGIApp:
        """Answer the messages of a chat."""
        client = client_of(request.scope)
        return await self._answer(request, partial(decode_chat, known_id=partial(self._ids.find, client)))

    async def generate(self, request: Request) -> ASGIApp:
        """Answer a prompt."""
        return await self._answer(request, decode_generate)

    async def _answer(self, request: Request, decode: Callable[[JsonObject], Decoded]) -> ASGIApp:
        generation = self._generation
        body, large = await generation.body(request)
        decoded = await beside(partial(decode, body), large=large)
        context_of(request.scope).stream = decoded.turn.streamed
        spec = decoded.turn.spec
        choice = await self._choice(request, spec.model)
        created_at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        remember = partial(self._ids.keep, client_of(request.scope))
        encoder = OllamaEncoder(decoded, created_at=created_at, clock=time.perf_counter_ns, remember=remember)
        if decoded.loads is not None:
            return json_response(encoder.loaded(decoded.loads))
        effort = None if spec.effort is None else own_effort(spec.effort, choice.model)
        spec = replace(spec, model=codex_name(spec.model, generation.rules.model_aliases), effort=effort)
        turn = replace(decoded.turn, spec=spec, large=large)
        settled = await generation.settle(
            request, turn, decoded.uncompiled, store=None, mode="openai-json", effort_param="think"
        )
        return generation.answer(request, generation.run(request, settled, encoder), settled, None)

    async def _named(self, request: Request) -> tuple[schema.NamedModel, str]:
        sent = await self._generation.bodies.read(request.scope, request.receive)
        given = convert(await parsed(sent), schema.NamedModel)
        name = given.model or given.name
        if not name:
            raise missing("model")
        return given, name

    async def _choice(self, request: Request, name: str) -> ModelChoice:
        """Return the model that a name stands for; clients look for the words of this error."""
        catalog = await self._generation.catalog(request.scope)
        try:
            return catalog.resolve(codex_name(name, self._generation.rules.model_aliases))
        except ModelNotFound as error:
            message = f"model '{name[:LONGEST_SHOWN]}' not found. {error.message}"
            raise ModelNotFound(message, param="model") from error

    async def _refuse(self, why: str, request: Request) -> ASGIApp:
        raise NotFound(
            f"{request.method} {request.scope['path'][:LONGEST_SHOWN]} is not served here. {why}", code=NOT_SERVED
        )
