"""The routes of the Messages API: creating a message, counting its tokens, and the sign that a server is there."""

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from turnbridge.api.anthropic.decode import VERSION_HEADER, DecodedMessages, Version, decode, version_of
from turnbridge.api.anthropic.dialect import ANTHROPIC, mark
from turnbridge.api.anthropic.encode import MessageEncoder
from turnbridge.api.anthropic.models import codex_name, nearest_effort
from turnbridge.api.generation import Generation, Settled
from turnbridge.turn.items import replace, size
from turnbridge.turn.request import TurnRequest
from turnbridge.web.bodies import beside
from turnbridge.web.http import RouteOf, json_response, new_id
from turnbridge.web.middleware.auth import client_of

BETA_HEADER = "anthropic-beta"
# Features that are there without being asked for, as their names begin. All others are named as ignored.
SERVED_BETAS = (
    *("claude-code-", "effort-", "adaptive-thinking-", "interleaved-thinking-", "structured-outputs-"),
    *("prompt-caching-", "token-counting-", "pdfs-", "web-search-", "mid-conversation-system-", "oauth-"),
)
# Of which only so many are looked at, in a header whose length is bounded.
MOST_BETAS = 100

# About as many characters of text as a token has.
CHARACTERS_OF_TOKEN = 4


class Messages:
    """Handlers of `/v1/messages` and what is below it."""

    dialect = ANTHROPIC

    def __init__(self, generation: Generation, count: Callable[[TurnRequest], Awaitable[int]]) -> None:
        """`count` returns about how many tokens of input a turn has."""
        self._generation = generation
        self._count = count

    def routes(self) -> list[RouteOf]:
        """Return the routes of this API."""
        return [
            RouteOf("POST", "/messages", self.create, generates=True),
            RouteOf("POST", "/messages/count_tokens", self.count),
            RouteOf("HEAD", "/api/hello", self.hello),
        ]

    async def create(self, request: Request) -> ASGIApp:
        """Answer a Messages request."""
        generation, request_id = self._generation, mark(request.scope)
        decoded, large = await self._decoded(request)
        turn = await self._named(request, replace(decoded.turn, large=large))
        settled = await generation.settle(
            request, turn, decoded.uncompiled, store=None, mode="openai-json", effort_param="output_config.effort"
        )
        encoder = MessageEncoder(
            decoded,
            message_id=new_id("msg_"),
            request_id=request_id,
            window=settled.choice.model.context_window,
            tokens=lambda: size(settled.turn) // CHARACTERS_OF_TOKEN,
        )
        settled = _with_betas(settled, request)
        return generation.answer(request, generation.run(request, settled, encoder), settled, None)

    async def count(self, request: Request) -> Response:
        """Count the tokens of a request; the model is not asked."""
        mark(request.scope)
        decoded, _ = await self._decoded(request, counted=True)
        turn = await self._named(request, decoded.turn)
        model = (await self._generation.catalog(request.scope)).resolve(turn.spec.model).model.id
        spec = replace(turn.spec, client=client_of(request.scope), model=model)
        return json_response({"input_tokens": await self._count(replace(turn, spec=spec))})

    async def hello(self, request: Request) -> Response:
        """Say that a server is there, which Claude Code asks at its start."""
        mark(request.scope)
        return Response()

    async def _decoded(self, request: Request, *, counted: bool = False) -> tuple[DecodedMessages, bool]:
        version: Version = version_of(request.headers.get(VERSION_HEADER))
        body, large = await self._generation.body(request)
        return await beside(partial(decode, body, version, counted=counted), large=large), large

    async def _named(self, request: Request, turn: TurnRequest) -> TurnRequest:
        """Return the turn with a model of Codex, and an effort that it has."""
        catalog, spec = await self._generation.catalog(request.scope), turn.spec
        name = codex_name(spec.model, catalog, self._generation.rules.model_aliases)
        model = catalog.resolve(name).model
        effort = None if spec.effort is None else nearest_effort(spec.effort, model)
        return replace(turn, spec=replace(spec, model=name, effort=effort))


def _with_betas(settled: Settled, request: Request) -> Settled:
    """Name the betas that have no effect. They change with every release of a client, so they are never refused."""
    given = (beta.strip() for header in request.headers.getlist(BETA_HEADER) for beta in header.split(",", MOST_BETAS))
    unknown = (f"{BETA_HEADER}: {beta}" for beta in given if beta and not beta.startswith(SERVED_BETAS))
    turn = replace(settled.turn, ignored=(*settled.turn.ignored, *dict.fromkeys(unknown)))
    return replace(settled, turn=turn)
