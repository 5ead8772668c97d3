"""Settings → Codex: which binary is run how, and the pools of its processes."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import codex_cli_bin

from turnbridge import __version__
from turnbridge.codex import self_check as selfcheck
from turnbridge.codex.process.home import (
    login_state,
    prepare_bare_home,
    prepare_home,
    provider_overrides,
)
from turnbridge.codex.process.pool import Bounds, Pool
from turnbridge.codex.process.worker import (
    CodexSpec,
    Tap,
    Worker,
    start_worker,
)
from turnbridge.codex.protocol.permissions import HostRules
from turnbridge.settings.fields import Settings


def codex_pools(
    settings: Settings, *, provider: str | None, tap: Callable[[int], Tap] | None
) -> tuple[Pool, Pool | None]:
    """Return the pool that serves, and if need be one for models that are left their own tool mode."""
    spec, prepare = codex_with(settings, provider)
    native_spec = replace(spec, direct_tools=False)
    pool_of = partial(_pool, prepare=prepare, settings=settings, tap=tap)
    pool = pool_of(native_spec if settings.tool_mode == "native" else spec)
    return pool, pool_of(native_spec, on_demand=True) if settings.tool_mode == "auto" else None


def _pool(
    spec: CodexSpec,
    *,
    prepare: Callable[[], None],
    settings: Settings,
    tap: Callable[[int], Tap] | None,
    on_demand: bool = False,
) -> Pool:
    """Return a pool of app-servers in a home that is prepared at each of their starts."""

    async def start() -> Worker:
        prepare()
        return await _checked(spec, await start_worker(spec, tap=tap))

    return Pool(
        start,
        login_state=lambda: login_state(spec.home),
        login_help=login_help(settings, spec),
        count=settings.worker_count,
        bounds=Bounds(threads=settings.worker_max_threads),
        first_backoff_s=_in_seconds(settings.worker_backoff_initial_ms),
        longest_backoff_s=_in_seconds(settings.worker_backoff_max_ms),
        on_demand=on_demand,
    )


async def _checked(spec: CodexSpec, worker: Worker) -> Worker:
    """Return the app-server once it is known what its binary adds to requests; ends it if that could do harm."""
    try:
        worker.extras = (await selfcheck.check(spec, worker)).findings
    except BaseException:
        await worker.process.stop()
        raise
    return worker


def codex_with(settings: Settings, provider: str | None) -> tuple[CodexSpec, Callable[[], None]]:
    """Return how to run Codex, and what prepares its home at each start.

    `provider` is the base URL of a Responses API to put behind Codex instead of the user's login.
    """
    if provider is None:
        spec = user_spec(settings)
        return spec, partial(prepare_home, spec.home, settings.codex_home)
    spec = _spec(settings, "demo-home", provider_overrides(provider))
    return spec, partial(prepare_bare_home, spec.home)


def user_spec(settings: Settings) -> CodexSpec:
    """Return Codex with the user's own login and models."""
    provider = settings.codex_force_provider
    return _spec(settings, "codex-home", () if provider is None else (f"model_provider={json.dumps(provider)}",))


def login_help(settings: Settings, spec: CodexSpec) -> str:
    """Return what to do when nobody is logged in."""
    return (
        f"Codex is not logged in: {settings.codex_home / 'auth.json'} has no usable login. "
        f"Run `{login_command(settings)}` (add `--device-auth` on a machine without a browser, or `--with-api-key` for "
        f"an API key), then try again; Turnbridge need not be restarted. If your Codex keeps its login in the system "
        f"keyring, run `{_login_in(spec.home, spec.binary)}` instead."
    )


def login_command(settings: Settings) -> str:
    """Return a line for a shell that logs in the user's Codex."""
    home = shlex.quote(str(settings.codex_home))
    # Codex refuses a home that does not exist, unless it is its own default.
    return f"mkdir -p {home} && {_login_in(settings.codex_home, user_spec(settings).binary)}"


def _login_in(home: Path, binary: Path) -> str:
    return f"CODEX_HOME={shlex.quote(str(home))} {shlex.quote(str(binary))} login"


def _spec(settings: Settings, home: str, overrides: tuple[str, ...]) -> CodexSpec:
    return CodexSpec(
        binary=settings.codex_bin or codex_cli_bin.bundled_codex_path(),
        home=settings.data_dir / home,
        workdir=settings.codex_workdir or settings.data_dir / "empty-workdir",
        overrides=overrides,
        model=settings.codex_model,
        version=__version__,
        connect_timeout_s=settings.connect_timeout_ms / 1000,
        startup_timeout_s=_in_seconds(settings.worker_startup_timeout_ms),
        call_timeout_s=_in_seconds(settings.worker_request_timeout_ms),
        exit_grace_s=_in_seconds(settings.worker_shutdown_grace_ms),
        rules=HostRules(
            sandbox=settings.sandbox_mode,
            approval_policy=settings.approval_policy,
            apply_patch=settings.include_apply_patch_tool,
            plain_messages=settings.responses_skip_turn,
        ),
        dialect=None if settings.dialect == "auto" else settings.dialect,
        validate_rpc=settings.validate_rpc,
        notes=settings.data_dir / "binaries",
    )


def _in_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
