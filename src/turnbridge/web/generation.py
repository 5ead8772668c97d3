"""The two routes that generate: decode, choose the model, answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.types import ASGIApp

from turnbridge.engine.admission import Admission
from turnbridge.engine.models import ModelCatalog, ModelChoice
from turnbridge.engine.ports import Backend
from turnbridge.engine.turns import TurnRunner
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.events import TurnEvent, TurnFailed, Usage
from turnbridge.turn.items import JsonObject
from turnbridge.turn.request import TurnRequest
from turnbridge.web.access_log import context_of
from turnbridge.web.auth import client_of
from turnbridge.web.ingress import read_body
from turnbridge.web.turns import Timing, TurnResponse
from turnbridge.wire import sse
from turnbridge.wire.chat import decode as chat_decode
from turnbridge.wire.chat.encode import ChatEncoder
from turnbridge.wire.openai_errors import error_object
from turnbridge.wire.responses import decode as responses_decode
from turnbridge.wire.responses.encode import ResponseEncoder
from turnbridge.wire.validation import parse_body

MODEL_HEADER = "x-turnbridge-model"
IGNORED_HEADER = "x-turnbridge-ignored"
NO_KEEPALIVE = "x-no-keepalive"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRules:
    """The operator's choices that concern these routes."""

    body_limit_bytes: int
    timing: Timing
    strict_params: bool
    default_model: str | None
    aliases: Mapping[str, str]


class Models:
    """What can be asked for, read from Codex each time: it changes with its login and its version."""

    def __init__(self, backend: Backend, rules: GenerationRules) -> None:
        self._backend = backend
        self._rules = rules

    async def catalog(self) -> ModelCatalog:
        """Return the models and every name for them."""
        default = self._rules.default_model or await self._backend.default_model()
        return ModelCatalog(await self._backend.models(), default=default, aliases=self._rules.aliases)


class Generation:
    """Handlers of `POST /v1/chat/completions` and `POST /v1/responses`."""

    def __init__(
        self,
        runner: TurnRunner,
        models: Models,
        rules: GenerationRules,
        admission: Admission,
        *,
        new_id: Callable[[str], str],
        now: Callable[[], int],
    ) -> None:
        self._runner = runner
        self._models = models
        self._rules = rules
        self._admission = admission
        self._new_id = new_id
        self._now = now

    async def chat(self, request: Request) -> ASGIApp:
        """Answer a Chat Completions request."""
        decoded = chat_decode.decode(await self._body(request))
        turn, choice = await self._settle(request, decoded.turn, effort_param="reasoning_effort")
        encoder = ChatEncoder(decoded, completion_id=self._new_id("chatcmpl-"), created=self._now())
        return TurnResponse(
            self._runner,
            turn,
            _ChatWriter(encoder),
            choices=decoded.choices,
            admission=self._admission.admitted(client_of(request.scope), decoded.choices),
            timing=self._timing(request),
            headers=_headers(choice, turn),
        )

    async def responses(self, request: Request) -> ASGIApp:
        """Answer a Responses request."""
        decoded = responses_decode.decode(await self._body(request))
        turn, choice = await self._settle(request, decoded.turn, effort_param="reasoning.effort")
        shown = replace(decoded, turn=replace(decoded.turn, effort=turn.effort))
        encoder = ResponseEncoder(shown, choice.model, response_id=self._new_id("resp_"), created_at=self._now())
        return TurnResponse(
            self._runner,
            turn,
            _ResponsesWriter(encoder, self._now),
            admission=self._admission.admitted(client_of(request.scope)),
            timing=self._timing(request),
            headers=_headers(choice, turn),
        )

    def _timing(self, request: Request) -> Timing:
        """Return when to send signs of life; a client that cannot bear them says so."""
        if request.headers.get(NO_KEEPALIVE) == "1" or request.query_params.get("no_keepalive") == "1":
            return replace(self._rules.timing, keepalive_s=None)
        return self._rules.timing

    async def _body(self, request: Request) -> JsonObject:
        body = await read_body(request.scope, request.receive, limit_bytes=self._rules.body_limit_bytes)
        return parse_body(body)

    async def _settle(
        self, request: Request, turn: TurnRequest, *, effort_param: str
    ) -> tuple[TurnRequest, ModelChoice]:
        """Return the turn with Codex's own name for the model, and an effort that it has."""
        context_of(request.scope).model = turn.model
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
        return replace(turn, client=client_of(request.scope), model=choice.model.id, effort=effort), choice


class _ChatWriter:
    def __init__(self, encoder: ChatEncoder) -> None:
        self._encoder = encoder

    @property
    def failure(self) -> TurnFailed | None:
        return self._encoder.failure

    @property
    def usage(self) -> Usage:
        return self._encoder.usage

    def opening(self) -> bytes:
        return b"".join(map(sse.data_frame, self._encoder.opening()))

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        return b"".join(sse.data_frame(chunk) for event in events for chunk in self._encoder.feed(index, event))

    def closing(self) -> bytes:
        if self._encoder.failure is not None:
            return sse.data_frame({"error": error_object(self._encoder.failure.error)})
        return b"".join(map(sse.data_frame, self._encoder.closing())) + sse.DONE

    def keepalive(self) -> bytes:
        return sse.comment("keepalive")

    def whole(self) -> JsonObject:
        return self._encoder.completion


class _ResponsesWriter:
    def __init__(self, encoder: ResponseEncoder, now: Callable[[], int]) -> None:
        self._encoder = encoder
        self._now = now

    @property
    def failure(self) -> TurnFailed | None:
        return self._encoder.failure

    @property
    def usage(self) -> Usage:
        return self._encoder.usage

    def opening(self) -> bytes:
        return _named(self._encoder.opening())

    def frames(self, index: int, events: Sequence[TurnEvent]) -> bytes:
        del index  # This API has one answer only.
        return b"".join(_named(self._encoder.feed(event, now=self._now())) for event in events)

    def closing(self) -> bytes:
        return b""

    def keepalive(self) -> bytes:
        return _named([self._encoder.still_in_progress()])

    def whole(self) -> JsonObject:
        return self._encoder.response


def _named(events: Sequence[JsonObject]) -> bytes:
    return b"".join(sse.named_frame(str(event["type"]), event) for event in events)


def _headers(choice: ModelChoice, turn: TurnRequest) -> dict[str, str]:
    headers = {MODEL_HEADER: choice.model.id}
    if turn.ignored:
        # Unknown parameters are the client's own words: only what is safe in a header is repeated.
        names = ", ".join(turn.ignored)
        headers[IGNORED_HEADER] = "".join(c if c.isascii() and c.isprintable() else "?" for c in names)[:1000]
    return headers
