"""The composition root: settings → every part, joined."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import codex_cli_bin
import uvicorn
from starlette.types import ASGIApp

from turnbridge import __version__
from turnbridge.appserver.backend import CodexBackend
from turnbridge.appserver.files import write_private
from turnbridge.appserver.home import login_state, prepare_bare_home, prepare_home
from turnbridge.appserver.pool import Bounds, Pool
from turnbridge.appserver.worker import CodexSpec, Worker, start_worker
from turnbridge.engine.admission import Admission, AdmissionRules
from turnbridge.engine.ports import Backend, MediaLoader
from turnbridge.engine.timing import Patience, Watch
from turnbridge.engine.tool_calls import OpenCalls
from turnbridge.engine.turns import TurnRunner
from turnbridge.engine.warm_threads import WarmRules, WarmThreads
from turnbridge.media.loader import HttpMediaLoader
from turnbridge.settings import Settings
from turnbridge.tokens import OpenAITokenizer
from turnbridge.turn.errors import BackendUnavailable
from turnbridge.web.app import build_app
from turnbridge.web.generation import Generation, GenerationRules, Models
from turnbridge.web.metrics import Metrics
from turnbridge.web.rate_limit import RequestRates
from turnbridge.web.turns import Timing

BYTES_PER_MB = 1024 * 1024
KEY_FILE = "api-key"
# How long open answers may take to be written to their end once their turns are over.
STOP_GRACE_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The running gateway: its application, and what keeps its state."""

    app: ASGIApp
    pool: Pool
    calls: OpenCalls
    warm: WarmThreads
    admission: Admission
    watch: Watch

    async def drain(self, within_s: float) -> None:
        """Let nobody in any more, wait for the turns that run, and end the rest with an error."""
        self.admission.close()
        if not await self.admission.drained(within_s):
            self.watch.stop(BackendUnavailable("The gateway is shutting down.", code="shutting_down"))
            await self.admission.drained(STOP_GRACE_S)


@contextlib.asynccontextmanager
async def running_gateway(settings: Settings, *, api_key: str, provider: str | None = None) -> AsyncIterator[Gateway]:
    """Start everything but the listener; Codex starts in the background, and ends with the context.

    `provider` is the base URL of a Responses API to put behind Codex instead of the user's login.
    """
    async with contextlib.AsyncExitStack() as stack:
        spec = user_spec(settings) if provider is None else provider_spec(settings, provider)
        prepare = (
            partial(prepare_home, spec.home, settings.codex_home)
            if provider is None
            else partial(prepare_bare_home, spec.home)
        )
        native_spec = replace(spec, direct_tools=False)
        pool = worker_pool(native_spec if settings.tool_mode == "native" else spec, prepare, settings)
        native = worker_pool(native_spec, prepare, settings, on_demand=True) if settings.tool_mode == "auto" else None
        for each in filter(None, (pool, native)):
            stack.push_async_callback(_end, asyncio.create_task(each.run()))
        media = HttpMediaLoader()
        stack.push_async_callback(media.aclose)
        calls = OpenCalls(ttl_s=settings.parked_turn_ttl_s)
        warm = WarmThreads(
            WarmRules(
                most=settings.warm_threads_max,
                ttl_s=settings.warm_threads_ttl_s,
                most_characters=settings.warm_threads_mb * BYTES_PER_MB,
            )
        )
        stack.callback(calls.close)
        stack.callback(warm.close)
        rates = RequestRates(settings.rate_limit, settings.rate_limit_storage) if settings.rate_limit else None
        if rates is not None:
            stack.push_async_callback(rates.aclose)
        backend = CodexBackend(pool, native=native)
        yield assemble(settings, pool, backend, media, calls, warm, rates, api_key=api_key)


def assemble(
    settings: Settings,
    pool: Pool,
    backend: Backend,
    media: MediaLoader,
    calls: OpenCalls,
    warm: WarmThreads,
    rates: RequestRates | None,
    *,
    api_key: str,
) -> Gateway:
    """Join the parts."""
    watch = Watch(Patience(silence_s=settings.idle_timeout_ms / 1000, whole_s=settings.timeout_ms / 1000))
    runner = TurnRunner(backend, media, OpenAITokenizer(), calls, warm, watch)
    admission = Admission(_admission_rules(settings))
    rules = _generation_rules(settings)
    models = Models(backend, rules)
    generation = Generation(runner, models, rules, admission, new_id=new_id, now=lambda: int(time.time()))
    app = build_app(
        generation,
        models,
        problem=lambda: "The gateway is shutting down." if admission.closed else pool.readiness().reason,
        api_key=api_key,
        metrics=_metrics(admission, pool, calls, warm),
        metrics_token=settings.metrics_token,
        allowed_origins=settings.cors_allowed_origins,
        rates=rates,
        body_limit_bytes=rules.body_limit_bytes,
    )
    return Gateway(app=app, pool=pool, calls=calls, warm=warm, admission=admission, watch=watch)


def _admission_rules(settings: Settings) -> AdmissionRules:
    return AdmissionRules(
        turns=settings.max_turns,
        waiting=settings.queue_max,
        patience_s=settings.queue_timeout_ms / 1000,
        turns_per_client=settings.key_max_turns,
    )


def _generation_rules(settings: Settings) -> GenerationRules:
    return GenerationRules(
        body_limit_bytes=int(settings.max_body_mb * BYTES_PER_MB),
        timing=Timing(
            hold_s=settings.stream_hold_ms / 1000,
            keepalive_s=settings.sse_keepalive_ms / 1000 if settings.sse_keepalive_ms else None,
            whole_s=settings.timeout_ms / 1000,
        ),
        strict_params=settings.strict_params,
        default_model=settings.codex_model,
        aliases=settings.model_aliases,
    )


def _metrics(admission: Admission, pool: Pool, calls: OpenCalls, warm: WarmThreads) -> Metrics:
    metrics = Metrics()
    metrics.watch("turnbridge_turns_running", "Turns that run now.", lambda: admission.running)
    metrics.watch("turnbridge_requests_waiting", "Requests that wait for a turn.", lambda: admission.waiting)
    metrics.watch("turnbridge_turns_parked", "Turns that wait for the outputs of their calls.", lambda: len(calls))
    metrics.watch("turnbridge_threads_warm", "Threads kept for a next request.", lambda: len(warm))
    metrics.watch("turnbridge_workers", "App-servers that take turns.", lambda: len(pool.workers))
    metrics.watch("turnbridge_worker_deaths", "App-servers that ended by themselves.", lambda: pool.restarts)
    return metrics


def worker_pool(spec: CodexSpec, prepare: Callable[[], None], settings: Settings, *, on_demand: bool = False) -> Pool:
    """Return a pool of app-servers in a home that is prepared at each of their starts."""

    async def start() -> Worker:
        prepare()
        return await start_worker(spec)

    return Pool(
        start,
        login_state=lambda: login_state(spec.home),
        login_help=login_help(settings, spec),
        count=settings.worker_count,
        bounds=Bounds(threads=settings.worker_max_threads),
        on_demand=on_demand,
    )


def http_server(app: ASGIApp) -> uvicorn.Server:
    """Return the HTTP server around the application."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=STOP_GRACE_S,
        )
    )


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loop where there is one."""
    return uvicorn.Config(None, loop="auto", log_config=None).get_loop_factory()  # type: ignore[arg-type]  # No application is loaded.


def new_id(prefix: str) -> str:
    """Return a fresh id in OpenAI's style."""
    return prefix + secrets.token_hex(16)


def user_spec(settings: Settings) -> CodexSpec:
    """Return Codex with the user's own login and models."""
    return _spec(settings, "codex-home", ())


def provider_spec(settings: Settings, base_url: str) -> CodexSpec:
    """Return Codex with one provider on the command line, and no user."""
    provider = {"name": "demo", "base_url": base_url, "wire_api": "responses"}
    overrides = [f'model_providers.demo.{key}="{value}"' for key, value in provider.items()]
    retries = [f"model_providers.demo.{kind}_max_retries=0" for kind in ("request", "stream")]
    return _spec(settings, "demo-home", ('model_provider="demo"', *overrides, *retries))


def login_help(settings: Settings, spec: CodexSpec) -> str:
    """Return what to do when nobody is logged in."""
    return (
        f"Codex is not logged in: {settings.codex_home / 'auth.json'} has no usable login. "
        f"Run `CODEX_HOME={settings.codex_home} {spec.binary} login` (add `--device-auth` on a machine without a "
        f"browser, or `--with-api-key` for an API key), then try again; Turnbridge need not be restarted. "
        f"If your Codex keeps its login in the system keyring, use `CODEX_HOME={spec.home}` instead."
    )


def stored_key(data_dir: Path) -> str:
    """Return the key of this installation, made at the first start and readable by its user only."""
    path = data_dir / KEY_FILE
    with contextlib.suppress(FileNotFoundError):
        if kept := path.read_text(encoding="utf-8").strip():
            return kept
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = f"sk-turnbridge-{secrets.token_urlsafe(24)}"
    write_private(path, f"{key}\n")
    return key


def _spec(settings: Settings, home: str, overrides: tuple[str, ...]) -> CodexSpec:
    return CodexSpec(
        binary=settings.codex_bin or codex_cli_bin.bundled_codex_path(),
        home=settings.data_dir / home,
        workdir=settings.data_dir / "empty-workdir",
        overrides=overrides,
        version=__version__,
    )


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
