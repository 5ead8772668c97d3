"""What every route that generates does around its own format: body, schemas, model, stored calls, run, answer."""

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from msgspec import Struct
from starlette.requests import Request
from starlette.types import Scope

from turnbridge.api.shared.output_mode import MODE_HEADER, OutputMode, calls_as_text, output_mode
from turnbridge.api.shared.schema_budget import SchemaPlace
from turnbridge.api.shared.strict_schema import CODES
from turnbridge.api.shared_legs import SharedLegs
from turnbridge.engine.admission import Admission
from turnbridge.engine.kept_threads import Leg, ParkedTurns
from turnbridge.engine.models import ModelCatalog, ModelChoice
from turnbridge.engine.ports import Backend, Judge, ModelOffer
from turnbridge.engine.records import Store
from turnbridge.engine.run import Encoder, Run
from turnbridge.engine.turns import TurnRunner
from turnbridge.turn.clients import Client
from turnbridge.turn.errors import GatewayError, InvalidRequest, unknown_file
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    JsonObject,
    is_models,
    media_parts,
    replace,
    size,
)
from turnbridge.turn.mcp import NAMESPACE_PREFIX
from turnbridge.turn.request import ThreadSpec, TurnRequest
from turnbridge.web.answer import Answer, Timing
from turnbridge.web.bodies import Bodies, is_large, parsed
from turnbridge.web.http import wants_no_keepalive
from turnbridge.web.middleware.auth import caller
from turnbridge.web.middleware.observability import context_of

log = structlog.get_logger(__name__)

MODEL_HEADER = "x-turnbridge-model"
MODE_FIELD = MODE_HEADER.lower().encode()
IGNORED_HEADER = "x-turnbridge-ignored"
LONGEST_IGNORED = 1000

NOTHING_KEPT = (
    "This gateway keeps nothing (PROXY_STORE_TTL_DAYS is 0): send the whole conversation in `input`, "
    "or ask its operator to keep responses."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRules:
    """The operator's choices that concern these routes."""

    timing: Timing
    model_aliases: Mapping[str, str]
    strict_params: bool
    ignore_system_prompt: bool
    """Whether system and developer messages of chat clients are left out."""
    responses_output_mode: OutputMode
    omit_response_tools: bool
    """Whether the tools of Responses clients are left out: they describe them in their own words."""


class Settled(Struct, frozen=True, kw_only=True):
    """A turn that is ready to run: the model is chosen, and what cannot be honoured is known."""

    turn: TurnRequest
    choice: ModelChoice
    mode: OutputMode

    @property
    def headers(self) -> dict[str, str]:
        """Return what the answer's headers say of it."""
        headers = {MODEL_HEADER: self.choice.name}
        if self.mode != "openai-json":
            headers[MODE_HEADER] = self.mode
        if self.turn.ignored:
            # Unknown parameters are the client's own words: only what is safe in a header is repeated.
            names = ", ".join(self.turn.ignored)[:LONGEST_IGNORED]
            headers[IGNORED_HEADER] = "".join(c if c.isascii() and c.isprintable() else "?" for c in names)
        return headers


class State:
    """The store, and the model's calls that are found there after a restart."""

    def __init__(
        self,
        store: Store | None,
        calls: ParkedTurns,
        *,
        decode: Callable[[Sequence[JsonObject]], Sequence[Item]],
        encode: Callable[[Sequence[Item]], Sequence[JsonObject]],
        shared: SharedLegs | None = None,
    ) -> None:
        """`decode` reads the items of stored answers, which `encode` writes; `shared` are the legs of all replicas."""
        self._store = store
        self._calls = calls
        self._decode = decode
        self._encode = encode
        self.shared = shared

    @property
    def store(self) -> Store:
        """Return the store; raises `InvalidRequest` if storing is off."""
        if self._store is None:
            raise InvalidRequest(NOTHING_KEPT, code="nothing_is_stored")
        return self._store

    @property
    def on(self) -> bool:
        """Tell whether anything is stored."""
        return self._store is not None

    def legs(self, client: str, call_ids: Sequence[str], *, told: bool = False) -> dict[str, Sequence[JsonObject]]:
        """Return what was said up to these calls, the first ones of their answers, with the model's reasoning.

        The gateway's own words are among it; its outputs for calls that the client was not given come last. If the
        client is `told` all that the model said, only legs in which the gateway intervened are returned.
        """
        found = {call_id: self._calls.leg(client, call_id) for call_id in call_ids}
        return {
            call_id: self._encode((*leg.items, *leg.presets))
            for call_id, leg in found.items()
            if leg is not None and (leg.intervened or not told)
        }

    async def check_files(self, client: str, items: Sequence[Item]) -> None:
        """Refuse a request with the id of a file that this client has not uploaded.

        The content is loaded when the turn runs. A background response would only fail then.
        """
        places = {part.file_id: part.param for part in media_parts(items) if part.file_id}
        if not places:
            return
        known = set() if self._store is None else await self._store.known_files(client, list(places))
        for file_id, param in places.items():
            if file_id not in known:
                raise unknown_file(file_id, param)

    async def restore_calls(self, client: str, items: Sequence[Item]) -> None:
        """Load the items around calls that were made before the gateway was started.

        The request can be served without them, so a store that fails is only logged.
        """
        if self._store is None:
            return
        # Parallel calls are found by the first of them.
        firsts = [
            item
            for before, item in itertools.pairwise((None, *items))
            if isinstance(item, FunctionCall) and not isinstance(before, FunctionCall)
        ]
        unknown = [call.call_id for call in firsts if not self._calls.knows(client, call.call_id)]
        if not unknown:
            return
        try:
            if self.shared is not None:
                found = await self._restore_shared(self.shared, client, unknown, _awaited(firsts, items))
                unknown = [call_id for call_id in unknown if call_id not in found]
            answers = await self._store.answers_with_calls(client, unknown) if unknown else ()
        except GatewayError as error:
            log.warning("calls_not_restored", reason=error.message)
            return
        for answer in answers:
            leg = leg_of(tuple(self._decode(answer)))
            if leg.shown:
                self._calls.remember(client, leg)

    async def _restore_shared(
        self, shared: SharedLegs, client: str, call_ids: Sequence[str], awaited: str | None
    ) -> set[str]:
        """Load legs that other replicas have made; return the calls that were found."""
        records = await shared.find(client, call_ids, awaited)
        for record in records:
            self._calls.remember(client, leg_of(tuple(self._decode(record.items))))
        return {record.call_id for record in records}


def _awaited(firsts: Sequence[FunctionCall], items: Sequence[Item]) -> str | None:
    """Return the first of the calls that this request brings the outputs of: the model has said nothing since."""
    after = itertools.takewhile(lambda item: not isinstance(item, FunctionCall), reversed(items))
    return None if any(map(is_models, after)) else firsts[-1].call_id


def leg_of(said: tuple[Item, ...]) -> Leg:
    """Return a leg from what was said in it; outputs after all else are for calls that the client was not given."""
    end = len(said) - len(list(itertools.takewhile(_is_output, reversed(said))))
    answered = {item.call_id for item in said if isinstance(item, FunctionCallOutput)}
    return Leg(
        items=said[:end],
        shown=tuple(item.call_id for item in said if isinstance(item, FunctionCall) and item.call_id not in answered),
        presets=tuple(item for item in said[end:] if isinstance(item, FunctionCallOutput)),
        intervened=not all(map(is_models, said)),
        # Those of MCP servers, which the client has as well.
        served=frozenset(
            item.call_id
            for item in said
            if isinstance(item, FunctionCall)
            and item.call_id in answered
            and (item.namespace or "").startswith(NAMESPACE_PREFIX)
        ),
    )


def _is_output(item: Item) -> bool:
    return isinstance(item, FunctionCallOutput)


def _chosen(spec: ThreadSpec, client: Client, choice: ModelChoice) -> ThreadSpec:
    """Return the thread of a client, with the model that was chosen for it."""
    return replace(
        spec,
        client=client.id,
        account=client.limits.account,
        model=choice.model.id,
        provider=choice.provider,
        effort=spec.effort or choice.effort,
    )


class Generation:
    """Runs the turns of requests, whatever their API."""

    def __init__(
        self,
        runner: TurnRunner,
        backend: Backend,
        judge: Judge,
        admission: Admission,
        *,
        state: State,
        bodies: Bodies,
        rules: GenerationRules,
    ) -> None:
        self._runner = runner
        self._judge = judge
        self._admission = admission
        self._catalogs: dict[str | None, tuple[ModelOffer, dict[tuple[str, ...] | None, ModelCatalog]]] = {}
        self.backend = backend
        self.state = state
        self.bodies = bodies
        self.rules = rules

    async def catalog(self, scope: Scope) -> ModelCatalog:
        """Return the models that a client may use and every name for them.

        They are read from Codex each time: they change with its login.
        """
        limits = caller(scope).limits
        offer = await self.backend.offer(limits.account)
        known = self._catalogs.get(limits.account)
        # Made anew only when Codex has others: that takes 7 µs.
        if known is None or known[0] is not offer:
            known = self._catalogs[limits.account] = (
                offer,
                {None: ModelCatalog(offer, aliases=self.rules.model_aliases)},
            )
        catalogs, names = known[1], limits.models
        if names is not None and names not in catalogs:
            catalogs[names] = catalogs[None].limited(names)
        return catalogs[names]

    async def body(self, request: Request) -> tuple[JsonObject, bool]:
        """Return the request's body, and whether it is large.

        Its log line names the model and the stream, whatever is wrong with the rest.
        """
        sent = await self.bodies.read(request.scope, request.receive)
        body = await parsed(sent)
        context, model = context_of(request.scope), body.get("model")
        context.model = model if isinstance(model, str) else None
        context.stream = body.get("stream") is True
        return body, is_large(sent)

    async def settle(
        self,
        request: Request,
        turn: TurnRequest,
        schemas: Sequence[SchemaPlace],
        *,
        store: bool | None,
        mode: OutputMode,
        effort_param: str,
    ) -> Settled:
        """Return the turn with Codex's own name for the model, and an effort that it has.

        `schemas` are those that must be compiled first, and `mode` is what a request without its header gets.
        """
        if schemas:
            await self._check_schemas(schemas)
        if (wanted := context_of(request.scope).headers.get(MODE_FIELD)) is not None:
            mode = output_mode(wanted.decode("latin-1"))
        if store and not self.state.on:
            turn = replace(turn, ignored=(*turn.ignored, "store"))
        if turn.ignored and self.rules.strict_params:
            raise InvalidRequest(
                f"Unsupported parameter: '{turn.ignored[0]}' cannot be honoured through Codex, "
                "and PROXY_STRICT_PARAMS refuses what would be ignored.",
                code="unsupported_parameter",
                param=turn.ignored[0],
            )
        catalog, spec = await self.catalog(request.scope), turn.spec
        choice = catalog.resolve(spec.model)
        context_of(request.scope).codex_model = choice.name
        if spec.effort is not None:
            catalog.check_effort(choice.model, spec.effort, param=effort_param)
        client = caller(request.scope)
        await self.state.check_files(client.id, turn.items)
        await self.state.restore_calls(client.id, turn.items)
        settled = replace(
            turn,
            spec=_chosen(spec, client, choice),
            # Calls in the text are answered in the text too, so nothing waits for their outputs.
            awaits_outputs=turn.awaits_outputs and mode == "openai-json",
        )
        return Settled(turn=settled, choice=choice, mode=mode)

    async def _check_schemas(self, places: Sequence[SchemaPlace]) -> None:
        """Refuse the request if one of these is no schema, or takes too long to compile."""
        flaw = await self._judge.first_flaw([place.schema for place in places])
        if flaw is None:
            return
        if flaw.which is None:
            raise InvalidRequest(f"Invalid schemas: {flaw.why}", code=CODES["function"], param="tools")
        raise places[flaw.which].refused(flaw.why)

    def run(self, request: Request, settled: Settled, encoder: Encoder, *, choices: int = 1) -> Run:
        """Return the run of a request, which begins when its frames are asked for."""
        turn, most = settled.turn, caller(request.scope).limits.turns
        return Run(
            [self._runner.start(turn) for _ in range(choices)],
            encoder,
            self._admission.admitted(turn.spec.client, choices, partial(size, turn), most),
            at_once=self._admission.at_once(choices, most),
            reshape=None if settled.mode == "openai-json" else calls_as_text,
            model=settled.choice.name,
            on_stage=context_of(request.scope).mark,
        )

    def answer(
        self, request: Request, run: Run, settled: Settled, finish: Callable[[], Awaitable[None]] | None
    ) -> Answer:
        """Return the answer that runs a run, streamed or whole; see `Answer` for `finish`."""
        timing = self.rules.timing
        if wants_no_keepalive(request.scope):
            timing = replace(timing, keepalive_s=None)
        return Answer(run, streamed=settled.turn.streamed, timing=timing, headers=settled.headers, finish=finish)
