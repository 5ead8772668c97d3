"""The two routes that generate: decode, choose the model, answer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.types import ASGIApp

from turnbridge.api.chat import decode as chat_decode
from turnbridge.api.chat.encode import ChatEncoder
from turnbridge.api.chat.stored_routes import StoredChats
from turnbridge.api.models import Models
from turnbridge.api.output_mode import (
    MODE_HEADER,
    CallsInText,
    OutputMode,
    Runner,
    output_mode,
)
from turnbridge.api.responses import decode as responses_decode
from turnbridge.api.responses.background import BackgroundRuns
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.api.responses.state import State
from turnbridge.api.shared.schema_budget import SchemaPlace
from turnbridge.api.shared.strict_schema import CODES
from turnbridge.engine.admission import Admission
from turnbridge.engine.models import ModelChoice
from turnbridge.engine.ports import Judge
from turnbridge.engine.turns import TurnRunner
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import JsonObject, Message
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import replace, size
from turnbridge.web.bodies import beside, is_large, parsed
from turnbridge.web.http import new_id, wants_no_keepalive
from turnbridge.web.middleware.access_log import context_of
from turnbridge.web.middleware.auth import client_of
from turnbridge.web.middleware.ingress import read_body
from turnbridge.web.turns import FIDELITY_HEADER, Timing, TurnResponse
from turnbridge.web.writers import ChatWriter, ResponsesWriter

MODEL_HEADER = "x-turnbridge-model"
IGNORED_HEADER = "x-turnbridge-ignored"
LONGEST_IGNORED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRules:
    """The operator's choices that concern these routes."""

    body_limit_bytes: int
    timing: Timing
    strict_params: bool
    ignore_system_prompt: bool
    """Whether system and developer messages of chat clients are left out."""
    responses_output_mode: OutputMode
    omit_response_tools: bool
    """Whether the tools of Responses clients are left out: they describe them in their own words."""


class Generation:
    """Handlers of `POST /v1/chat/completions` and `POST /v1/responses`."""

    def __init__(
        self,
        runner: TurnRunner,
        models: Models,
        judge: Judge,
        rules: GenerationRules,
        admission: Admission,
        state: State,
        background: BackgroundRuns,
        chats: StoredChats,
    ) -> None:
        self._runner = runner
        self._calls_in_text = CallsInText(runner)
        self._models = models
        self._judge = judge
        self._rules = rules
        self._admission = admission
        self._state = state
        self._background = background
        self._chats = chats

    async def chat(self, request: Request) -> ASGIApp:
        """Answer a Chat Completions request."""
        client = client_of(request.scope)
        body, large = await self._body(request)
        decoded = await beside(partial(chat_decode.decode, body), large=large)
        await self._check_schemas(decoded.uncompiled)
        wanted = self._without_system_prompt(self._unkept(body, replace(decoded.turn, large=large)))
        turn, choice = await self._settle(client, wanted, effort_param="reasoning_effort")
        mode = output_mode(request, "openai-json")
        await self._state.restore_calls(client, turn.items)
        encoder = ChatEncoder(decoded, completion_id=new_id("chatcmpl-"), created=_now())
        return TurnResponse(
            self._runner_for(mode),
            turn,
            ChatWriter(encoder),
            choices=decoded.choices,
            at_once=self._admission.at_once(decoded.choices),
            admission=self._admission.admitted(client, decoded.choices, partial(size, turn)),
            timing=self._timing(request),
            headers=self._headers(choice, turn, mode),
            finish=partial(self._chats.keep, client, body, encoder) if decoded.store and self._state.on else None,
        )

    async def responses(self, request: Request) -> ASGIApp:
        """Answer a Responses request."""
        client = client_of(request.scope)
        body, large = await self._body(request)
        asked, unknown = await beside(partial(responses_decode.parse, body), large=large)
        past = await self._state.recall(client, asked)
        large = large or bool(past.history)
        decode = partial(responses_decode.decode, asked, unknown, past.inputs, past.history)
        decoded = await beside(decode, large=large)
        await self._check_schemas(decoded.uncompiled)
        wanted = self._without_tools(self._unkept(body, replace(decoded.turn, large=large)))
        turn, choice = await self._settle(client, wanted, effort_param="reasoning.effort")
        mode = output_mode(request, self._rules.responses_output_mode)
        await self._state.restore_calls(client, turn.items)
        encoder = ResponseEncoder(
            replace(decoded, turn=replace(decoded.turn, effort=turn.effort)),
            choice.model,
            response_id=new_id("resp_"),
            created_at=_now(),
            stored=past.keep,
        )
        runner, admission = self._runner_for(mode), self._admission.admitted(client, size=partial(size, turn))
        headers = self._headers(choice, turn, mode)
        if past.background:
            run = await self._background.start(runner, past, turn, encoder, admission)
            headers = {FIDELITY_HEADER: self._models.fidelity(), **headers}
            return self._background.answer(run, streamed=turn.streamed, headers=headers)
        return TurnResponse(
            runner,
            turn,
            ResponsesWriter(encoder, _now),
            admission=admission,
            timing=self._timing(request),
            headers=headers,
            finish=partial(self._state.keep, past, encoder) if past.keep else None,
        )

    def _unkept(self, body: JsonObject, turn: TurnRequest) -> TurnRequest:
        """Name a wish to be kept that cannot be met."""
        unmet = body.get("store") is True and not self._state.on
        return replace(turn, ignored=(*turn.ignored, "store")) if unmet else turn

    def _runner_for(self, mode: OutputMode) -> Runner:
        return self._runner if mode == "openai-json" else self._calls_in_text

    def _without_system_prompt(self, turn: TurnRequest) -> TurnRequest:
        """Leave the client's system prompt out, and say so, if the operator wants that."""
        if not self._rules.ignore_system_prompt:
            return turn
        kept = tuple(item for item in turn.items if not isinstance(item, Message) or item.role != "developer")
        if kept == turn.items:
            return turn
        return replace(turn, items=kept, ignored=(*turn.ignored, "messages (system)"))

    def _without_tools(self, turn: TurnRequest) -> TurnRequest:
        """Leave the client's tools out, and say so, if the operator wants that."""
        if not self._rules.omit_response_tools or not turn.tools:
            return turn
        return replace(turn, tools=(), must_call=False, ignored=(*turn.ignored, "tools"))

    def _timing(self, request: Request) -> Timing:
        """Return when to send signs of life; a client that cannot bear them says so."""
        if wants_no_keepalive(request.scope):
            return replace(self._rules.timing, keepalive_s=None)
        return self._rules.timing

    async def _body(self, request: Request) -> tuple[JsonObject, bool]:
        """Return the request's body, and whether it is large.

        Its log line names the model and the stream, whatever is wrong with the rest.
        """
        sent = await read_body(request.scope, request.receive, limit_bytes=self._rules.body_limit_bytes)
        body = await parsed(sent)
        context, model = context_of(request.scope), body.get("model")
        context.model = model if isinstance(model, str) else None
        context.stream = body.get("stream") is True
        return body, is_large(sent)

    async def _check_schemas(self, places: Sequence[SchemaPlace]) -> None:
        """Refuse the request if one of these is no schema, or takes too long to compile."""
        if not places:
            return
        flaw = await self._judge.first_flaw([place.schema for place in places])
        if flaw is None:
            return
        if flaw.which is None:
            raise InvalidRequest(f"Invalid schemas: {flaw.why}", code=CODES["function"], param="tools")
        raise places[flaw.which].refused(flaw.why)

    async def _settle(self, client: str, turn: TurnRequest, *, effort_param: str) -> tuple[TurnRequest, ModelChoice]:
        """Return the turn with Codex's own name for the model, and an effort that it has."""
        if turn.ignored and self._rules.strict_params:
            raise InvalidRequest(
                f"Unsupported parameter: '{turn.ignored[0]}' cannot be honoured through Codex, "
                "and PROXY_STRICT_PARAMS refuses what would be ignored.",
                code="unsupported_parameter",
                param=turn.ignored[0],
            )
        catalog = await self._models.catalog()
        choice = catalog.resolve(turn.model)
        if turn.effort is not None:
            catalog.check_effort(choice.model, turn.effort, param=effort_param)
        effort = turn.effort or choice.effort
        return replace(turn, client=client, model=choice.model.id, effort=effort), choice

    def _headers(self, choice: ModelChoice, turn: TurnRequest, mode: OutputMode) -> dict[str, str]:
        headers = {MODEL_HEADER: choice.model.id}
        if mode != "openai-json":
            headers[MODE_HEADER] = mode
        if turn.ignored:
            # Unknown parameters are the client's own words: only what is safe in a header is repeated.
            names = ", ".join(turn.ignored)[:LONGEST_IGNORED]
            headers[IGNORED_HEADER] = "".join(c if c.isascii() and c.isprintable() else "?" for c in names)
        return headers


def _now() -> int:
    return int(time.time())
