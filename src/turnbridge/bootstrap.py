"""The composition root: settings → every part, joined."""

import asyncio
import contextlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
from starlette.types import ASGIApp

from turnbridge.api.anthropic.models import SharedModels
from turnbridge.api.anthropic.openapi import PART as ANTHROPIC
from turnbridge.api.anthropic.routes import Messages
from turnbridge.api.chat.openapi import PART as CHAT
from turnbridge.api.chat.routes import ChatCompletions
from turnbridge.api.files.openapi import PART as FILES
from turnbridge.api.files.routes import Files
from turnbridge.api.generation import Generation, GenerationRules, State
from turnbridge.api.images.openapi import PART as IMAGES
from turnbridge.api.images.routes import Images
from turnbridge.api.models import Models
from turnbridge.api.ollama.listener import LISTENER as OLLAMA
from turnbridge.api.ollama.listener import build_listener
from turnbridge.api.ollama.routes import Ollama
from turnbridge.api.own_listener import OwnListener
from turnbridge.api.responses.background import BackgroundRuns, Count
from turnbridge.api.responses.compaction import Seal
from turnbridge.api.responses.conversations import Conversations
from turnbridge.api.responses.decode import decode_items, encode_items
from turnbridge.api.responses.elsewhere import CANCEL, Shared
from turnbridge.api.responses.openapi import PART as RESPONSES
from turnbridge.api.responses.routes import Responses
from turnbridge.api.responses.websocket import ResponsesOverWebSocket
from turnbridge.api.shared_legs import LET_GO, SharedLegs
from turnbridge.api.unserved import Unserved
from turnbridge.api.usage import OrganizationUsage
from turnbridge.app import EXPOSED_HEADERS, Api, Probes, build_app
from turnbridge.codex.process.backend import CodexBackend
from turnbridge.codex.process.home import write_private
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.setup import account_problems
from turnbridge.engine.admission import Admission
from turnbridge.engine.input_tokens import InputCounter
from turnbridge.engine.kept_threads import ParkedTurns, WarmThreads
from turnbridge.engine.shared_admission import SharedAdmission
from turnbridge.engine.turn_rules import Watch
from turnbridge.engine.turns import TurnRunner
from turnbridge.gauges import observe, observe_shared
from turnbridge.page.owner import CommandData, OwnerDesk
from turnbridge.page.routes import Page
from turnbridge.page.setup import own_names, owner_desk, page_of
from turnbridge.parts import Parts, begun_parts, ended
from turnbridge.replicas.answers import shared_answers
from turnbridge.replicas.messages import Messages as ReplicaMessages
from turnbridge.replicas.replica import Replica
from turnbridge.replicas.runs import SharedRuns
from turnbridge.replicas.slots import SharedSlots
from turnbridge.settings.fields import Settings
from turnbridge.store.sql_store import SqlStore
from turnbridge.tokens import OpenAITokenizer
from turnbridge.trace.trace import Trace
from turnbridge.trace.web import TraceHttp
from turnbridge.turn.clients import Client
from turnbridge.turn.errors import BackendUnavailable, GatewayError
from turnbridge.turn.events import Usage
from turnbridge.turn.usage import USAGE_DAYS
from turnbridge.web.answer import Timing
from turnbridge.web.bodies import Bodies
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.meter import Meter
from turnbridge.web.middleware.observability import Metrics, context_of
from turnbridge.web.server.http_server import STOP_GRACE_S

log = structlog.get_logger(__name__)

# What `/openapi.json` has of each API.
DESCRIBED = CHAT, RESPONSES, IMAGES, FILES, ANTHROPIC
BYTES_PER_MB = 1024 * 1024
SECONDS_PER_DAY = 24 * 3600
# The part of the store that the files of one key may take, so that they do not evict all its answers.
FILES_SHARE = 4
# Old answers may stay a little longer than they must.
PRUNING_INTERVAL_S = 900.0
# How long a replica that stops waits for a balancer that goes on to send it requests.
MOST_NOTICE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The running gateway: its application, and what keeps its state."""

    app: ASGIApp
    backend: CodexBackend
    calls: ParkedTurns
    warm: WarmThreads
    admission: Admission
    watch: Watch
    keyring: Keyring
    meter: Meter
    page: Page | None
    """The page for browsers, unless it is switched off."""
    replica: Replica | None
    """This gateway among others, if it shares a Postgres or a Redis with them."""
    shared: SharedRuns | None
    """What it shares with other replicas of what it runs, if there may be some."""
    others: Mapping[str, ASGIApp]
    """The applications of the APIs that have a listener of their own, by their names."""

    @property
    def pool(self) -> Pool:
        """Return the app-servers of the default account."""
        return self.backend.default.pool

    async def drain(self, within_s: float) -> None:
        """Let nobody in any more, wait for the turns that run, and end the rest with an error.

        One of several replicas first waits until the balancer has noticed: a refused request is a failed one.
        """
        began = time.monotonic()
        if self.replica is not None and self.replica.registry.live > 1:
            await self.admission.left_alone(min(within_s / 2, MOST_NOTICE_S))
        self.admission.close()
        if not await self.admission.drained(within_s - (time.monotonic() - began)):
            self.watch.stop(BackendUnavailable("The gateway is shutting down.", code="shutting_down"))
            await self.admission.drained(STOP_GRACE_S)


def own_listeners(settings: Settings) -> list[tuple[OwnListener, str]]:
    """Return the APIs that get a listener of their own, and what their settings say of it."""
    return [] if settings.ollama is None else [(OLLAMA, settings.ollama)]


@contextlib.asynccontextmanager
async def running_gateway(
    settings: Settings,
    *,
    api_key: str,
    provider: str | None = None,
    alone: bool = False,
    commands: CommandData | None = None,
) -> AsyncIterator[Gateway]:
    """Start everything but the listener; Codex starts in the background, and ends with the context.

    `provider` is the base URL of a Responses API to put behind Codex instead of the user's login. A gateway that is
    `alone` opens no store: it knows only `api_key`. `commands` is what the page shows of what commands know.
    """
    async with contextlib.AsyncExitStack() as stack:
        parts = begun_parts(settings, stack, api_key=api_key, provider=provider, alone=alone)
        if parts.spans is not None:
            stack.push_async_callback(asyncio.to_thread, parts.spans.close)
        desk = owner_desk(settings, parts.backend, demo=provider is not None, commands=commands)
        stack.push_async_callback(desk.aclose)
        legs = None if parts.shared is None else _legs(parts.shared)
        state = State(parts.answers, parts.calls, decode=decode_items, encode=encode_items, shared=legs)
        gateway, background = _assemble(settings, parts, desk, state)
        if parts.replica is not None:
            await stack.enter_async_context(parts.replica.running())
        if parts.shared is not None and legs is not None:
            _share(parts.shared.messages, parts.calls, legs, background)
            stack.push_async_callback(ended, asyncio.create_task(parts.shared.messages.run()))
            stack.push_async_callback(ended, asyncio.create_task(legs.write()))
        if parts.store is not None:
            stack.push_async_callback(ended, asyncio.create_task(_look_after(parts.store.for_maintenance(), settings)))
        if parts.answers is not None:
            stack.push_async_callback(ended, asyncio.create_task(background.watch()))
            stack.push_async_callback(background.aclose)
        # Whoever connects meanwhile waits, and is not told that a key in the store is wrong.
        await parts.keyring.load()
        await parts.meter.load()
        stack.push_async_callback(ended, asyncio.create_task(parts.keyring.watch()))
        stack.push_async_callback(parts.meter.aclose)
        stack.push_async_callback(ended, asyncio.create_task(parts.meter.run()))
        yield gateway


def _legs(shared: SharedRuns) -> SharedLegs:
    return SharedLegs(shared.store, shared.messages, encode_items, shared.alone)


def _share(messages: ReplicaMessages, calls: ParkedTurns, legs: SharedLegs, background: BackgroundRuns) -> None:
    """Let other replicas go on with what was begun here, and end it."""
    calls.share = legs.share
    messages.on(LET_GO, 2, lambda client, call_id: calls.drop((client, call_id)))
    messages.on(CANCEL, 1, background.end_unwanted)


def _assemble(settings: Settings, parts: Parts, desk: OwnerDesk, state: State) -> tuple[Gateway, BackgroundRuns]:
    """Join the parts."""
    watch = Watch(silence_s=settings.idle_timeout_ms / 1000, whole_s=settings.timeout_ms / 1000)
    tokenizer, clients = OpenAITokenizer(), partial(_clients, settings, parts.keyring)
    kept = parts.calls, parts.warm, watch, parts.servers
    runner, metrics = TurnRunner(parts.backend, parts.media, tokenizer, parts.judge, *kept), Metrics()
    admission = _admission(settings, parts, clients=clients, on_wait=metrics.waited)
    counter = InputCounter(parts.media, tokenizer, parts.servers, clients=clients)
    rules, bodies = _generation_rules(settings), Bodies(int(settings.max_body_mb * BYTES_PER_MB))
    background = _background(parts, state, rules.timing.keepalive_s, metrics)
    generation = Generation(runner, parts.backend, parts.judge, admission, state=state, bodies=bodies, rules=rules)
    sockets = ResponsesOverWebSocket(bodies, lambda: admission.leaving)
    observe(metrics, admission, parts, sockets)
    parts.keyring.on_change.append(partial(_on_keys_changed, parts.keyring, admission, watch, sockets))
    models, usage = Models(generation), OrganizationUsage(parts.store)
    problem = partial(_problem, parts.backend, admission)
    page = page_of(settings, parts, desk, admission=admission, models=models, usage=usage, problem=problem)
    apis = [*_apis(settings, generation, background, counter), sockets, SharedModels(generation, models), usage]
    app = build_app(
        apis,
        probes=Probes(problem, parts.backend.fidelity, partial(account_problems, settings, parts.backend)),
        leaving=lambda: admission.leaving,
        spans=parts.spans,
        replica=parts.replica,
        claims=None if parts.replica is None else shared_answers(parts.replica, parts.store),
        keyring=parts.keyring,
        metrics=metrics,
        metrics_token=settings.metrics_token,
        own_names=own_names(settings),
        allowed_origins=settings.cors_allowed_origins,
        rates=parts.rates,
        meter=parts.meter,
        plan=parts.backend.plan,
        bodies=bodies,
        page=page,
        described=DESCRIBED,
    )
    others = _others(settings, generation, apis, parts, admission, metrics, page)
    return _gateway(_traced(app, parts.trace), others, parts, admission, watch, page), background


def _apis(settings: Settings, generation: Generation, background: BackgroundRuns, counter: InputCounter) -> list[Api]:
    """Return the APIs that generate, and that of files."""
    seal = Seal(partial(seal_secret, settings))
    responses = Responses(generation, background, counter.count, seal)
    files = _files(settings, generation.state, generation.bodies)
    messages = Messages(generation, counter.count)
    return [ChatCompletions(generation), Images(generation), responses, Conversations(generation), files, messages]


def _background(parts: Parts, state: State, keepalive_s: float | None, metrics: Metrics) -> BackgroundRuns:
    shared = None
    if (runs := parts.shared) is not None:
        shared = Shared(peers=runs.messages, frames=runs.frames, store=runs.store, alone=runs.alone)
    background = BackgroundRuns(state, keepalive_s=keepalive_s, count=_count(metrics, parts.meter), shared=shared)
    if runs is not None and state.shared is not None and background.elsewhere is not None:
        observe_shared(metrics, state.shared.counts, background.elsewhere, runs.messages.connected.is_set)
    return background


def _gateway(
    app: ASGIApp, others: Mapping[str, ASGIApp], parts: Parts, admission: Admission, watch: Watch, page: Page | None
) -> Gateway:
    return Gateway(
        app=app,
        backend=parts.backend,
        calls=parts.calls,
        warm=parts.warm,
        admission=admission,
        watch=watch,
        keyring=parts.keyring,
        meter=parts.meter,
        replica=parts.replica,
        shared=parts.shared,
        others=others,
        page=page,
    )


def _files(settings: Settings, state: State, bodies: Bodies) -> Files:
    lifetime_s = int(settings.store_ttl_days * SECONDS_PER_DAY)
    return Files(state, bodies, lifetime_s=lifetime_s, size=settings.store_max_mb * BYTES_PER_MB // FILES_SHARE)


def _count(metrics: Metrics, meter: Meter) -> Count:
    """Return what counts the turn of a background response."""

    def count(usage: Usage, served_by: str, model: str | None, client: Client | None) -> None:
        metrics.turn_ended(usage, served_by, model, client)
        meter.turn_ended(usage, model, client)

    return count


def _clients(settings: Settings, keyring: Keyring) -> int:
    """Return how many clients there may be: one for each key, and who needs none on a listener of its own."""
    return len(keyring) + len(own_listeners(settings))


def _others(
    settings: Settings,
    generation: Generation,
    apis: list[Api],
    parts: Parts,
    admission: Admission,
    metrics: Metrics,
    page: Page | None,
) -> dict[str, ASGIApp]:
    """Return the applications of the APIs that have a listener of their own."""
    if settings.ollama is None:
        return {}
    app = build_listener(
        Ollama(generation),
        [Unserved(), *apis],
        keyring=parts.keyring,
        metrics=metrics,
        leaving=lambda: admission.leaving,
        spans=parts.spans,
        allowed_origins=settings.cors_allowed_origins,
        exposed_headers=EXPOSED_HEADERS,
        replica=None if parts.replica is None else parts.replica.id,
        rates=parts.rates,
        meter=parts.meter,
        bodies=generation.bodies,
        on_end=None if page is None else page.side().on_end,
    )
    return {OLLAMA.name: _traced(app, parts.trace)}


def _traced(app: ASGIApp, trace: Trace | None) -> ASGIApp:
    return app if trace is None else TraceHttp(app, trace, request_id=lambda scope: context_of(scope).request_id)


def _on_keys_changed(
    keyring: Keyring, admission: Admission, watch: Watch, sockets: ResponsesOverWebSocket, lost: frozenset[str]
) -> None:
    """End what runs for clients without a key; those with another one may finish what they began with the old one."""
    admission.bar(keyring.barred)
    watch.bar(keyring.barred)
    sockets.retire(lost)


def _problem(backend: CodexBackend, admission: Admission, account: str | None = None) -> str:
    """Return why turns of an account cannot be run now, or nothing."""
    return "The gateway is shutting down." if admission.leaving else backend.readiness(account).reason


async def _look_after(store: SqlStore, settings: Settings) -> None:
    """Remove what is too old or too much, now and then, until cancelled."""
    while True:
        try:
            await store.prune_usage(int(time.time() - USAGE_DAYS * SECONDS_PER_DAY))
            if settings.store_ttl_days:
                await store.prune(
                    made_before=int(time.time() - settings.store_ttl_days * SECONDS_PER_DAY),
                    most_bytes=settings.store_max_mb * BYTES_PER_MB,
                )
        except GatewayError as error:
            log.warning("store_not_pruned", reason=error.message)
        await asyncio.sleep(PRUNING_INTERVAL_S)


def _admission(
    settings: Settings, parts: Parts, *, clients: Callable[[], int], on_wait: Callable[[float], None]
) -> Admission:
    make = Admission if parts.replica is None else partial(SharedAdmission, SharedSlots(parts.replica))
    return make(
        clients=clients,
        turns=settings.max_turns,
        waiting=settings.queue_max,
        patience_s=settings.queue_timeout_ms / 1000,
        turns_per_client=settings.key_max_turns,
        on_wait=on_wait,
    )


def _generation_rules(settings: Settings) -> GenerationRules:
    return GenerationRules(
        timing=Timing(
            hold_s=settings.stream_hold_ms / 1000,
            keepalive_s=settings.sse_keepalive_ms / 1000 if settings.sse_keepalive_ms else None,
            whole_s=settings.timeout_ms / 1000,
        ),
        model_aliases=settings.model_aliases,
        strict_params=settings.strict_params,
        ignore_system_prompt=settings.ignore_client_system_prompt,
        responses_output_mode=settings.responses_output_mode,
        omit_response_tools=settings.responses_omit_tool_manifest,
    )


def seal_secret(settings: Settings) -> bytes:
    """Return the secret that seals compacted histories: gateways that share a store and a key have the same one.

    Else it is in a file that only its user can read, and made if there is none.
    """
    if settings.store_is_shared and settings.api_key:
        return hmac.digest(settings.api_key.encode(), b"compaction", "sha256")
    file = settings.data_dir / "compaction-secret"
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, secrets.token_hex(32))
    return file.read_bytes()
