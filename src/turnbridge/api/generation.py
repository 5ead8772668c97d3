"""What every route that generates does around its own format: body, schemas, model, run, answer."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from turnbridge.api.models import Models
from turnbridge.api.output_mode import MODE_HEADER, OutputMode
from turnbridge.api.shared.obsidian_xml import calls_as_text
from turnbridge.api.shared.schema_budget import SchemaPlace
from turnbridge.api.shared.strict_schema import CODES
from turnbridge.engine.admission import Admission
from turnbridge.engine.models import ModelChoice
from turnbridge.engine.ports import Judge
from turnbridge.engine.run import Encoder, Run
from turnbridge.engine.turns import TurnRunner
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import JsonObject
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import replace, size
from turnbridge.web.answer import Answer, Timing
from turnbridge.web.bodies import is_large, parsed
from turnbridge.web.http import wants_no_keepalive
from turnbridge.web.middleware.access_log import context_of
from turnbridge.web.middleware.auth import client_of
from turnbridge.web.middleware.ingress import read_body

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A turn that is ready to run: the model is chosen, and what cannot be honoured is known."""

    turn: TurnRequest
    choice: ModelChoice
    mode: OutputMode

    @property
    def headers(self) -> dict[str, str]:
        """Return what the answer's headers say of it."""
        headers = {MODEL_HEADER: self.choice.model.id}
        if self.mode != "openai-json":
            headers[MODE_HEADER] = self.mode
        if self.turn.ignored:
            # Unknown parameters are the client's own words: only what is safe in a header is repeated.
            names = ", ".join(self.turn.ignored)[:LONGEST_IGNORED]
            headers[IGNORED_HEADER] = "".join(c if c.isascii() and c.isprintable() else "?" for c in names)
        return headers


class Generation:
    """Runs the turns of requests, whatever their API."""

    def __init__(
        self, runner: TurnRunner, models: Models, judge: Judge, rules: GenerationRules, admission: Admission
    ) -> None:
        self._runner = runner
        self._judge = judge
        self._admission = admission
        self.models = models
        self.rules = rules

    async def body(self, request: Request) -> tuple[JsonObject, bool]:
        """Return the request's body, and whether it is large.

        Its log line names the model and the stream, whatever is wrong with the rest.
        """
        sent = await read_body(request.scope, request.receive, limit_bytes=self.rules.body_limit_bytes)
        body = await parsed(sent)
        context, model = context_of(request.scope), body.get("model")
        context.model = model if isinstance(model, str) else None
        context.stream = body.get("stream") is True
        return body, is_large(sent)

    async def check_schemas(self, places: Sequence[SchemaPlace]) -> None:
        """Refuse the request if one of these is no schema, or takes too long to compile."""
        if not places:
            return
        flaw = await self._judge.first_flaw([place.schema for place in places])
        if flaw is None:
            return
        if flaw.which is None:
            raise InvalidRequest(f"Invalid schemas: {flaw.why}", code=CODES["function"], param="tools")
        raise places[flaw.which].refused(flaw.why)

    async def settle(self, request: Request, turn: TurnRequest, mode: OutputMode, *, effort_param: str) -> Settled:
        """Return the turn with Codex's own name for the model, and an effort that it has."""
        if turn.ignored and self.rules.strict_params:
            raise InvalidRequest(
                f"Unsupported parameter: '{turn.ignored[0]}' cannot be honoured through Codex, "
                "and PROXY_STRICT_PARAMS refuses what would be ignored.",
                code="unsupported_parameter",
                param=turn.ignored[0],
            )
        catalog = await self.models.catalog()
        choice = catalog.resolve(turn.model)
        if turn.effort is not None:
            catalog.check_effort(choice.model, turn.effort, param=effort_param)
        settled = replace(
            turn,
            client=client_of(request.scope),
            model=choice.model.id,
            effort=turn.effort or choice.effort,
            # Calls in the text are answered in the text too, so nothing waits for their outputs.
            awaits_outputs=turn.awaits_outputs and mode == "openai-json",
        )
        return Settled(turn=settled, choice=choice, mode=mode)

    def run(self, request: Request, settled: Settled, encoder: Encoder, *, choices: int = 1) -> Run:
        """Return the run of a request, which begins when its frames are asked for."""
        turn = settled.turn
        return Run(
            [self._runner.start(turn) for _ in range(choices)],
            encoder,
            self._admission.admitted(turn.client, choices, partial(size, turn)),
            at_once=self._admission.at_once(choices),
            reshape=None if settled.mode == "openai-json" else calls_as_text,
            on_output=context_of(request.scope).mark_first_output,
        )

    def answer(
        self, request: Request, run: Run, settled: Settled, finish: Callable[[], Awaitable[None]] | None
    ) -> Answer:
        """Return the answer that runs a run, streamed or whole; see `Answer` for `finish`."""
        timing = self.rules.timing
        if wants_no_keepalive(request.scope):
            timing = replace(timing, keepalive_s=None)
        return Answer(run, streamed=settled.turn.streamed, timing=timing, headers=settled.headers, finish=finish)


def now() -> int:
    """Return the time as the APIs tell it."""
    return int(time.time())
