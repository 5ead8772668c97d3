"""Settings → Codex: how the binary is run, and the pools of its processes."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from turnbridge import __version__
from turnbridge.codex import versions
from turnbridge.codex.process.backend import AccountBackend, CodexBackend
from turnbridge.codex.process.budget import Budget
from turnbridge.codex.process.home import login_state, prepare_bare_home, prepare_home, provider_overrides
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.worker import CodexSpec, Tap, Worker, start_worker
from turnbridge.codex.protocol.encode import HostRules
from turnbridge.settings.accounts import account_home, login_command, named_accounts
from turnbridge.settings.fields import Settings
from turnbridge.turn.clients import DEFAULT_ACCOUNT


def codex_backend(settings: Settings, *, provider: str | None, tap: Callable[[int], Tap] | None) -> CodexBackend:
    """Return the backend of all accounts, none of which runs yet. The demo has no named ones."""
    backend_of = partial(_account_backend, settings, provider, tap, Budget(settings.worker_count))
    if provider is not None:
        return CodexBackend(backend_of(None), named=backend_of)
    return CodexBackend(backend_of(None), exists=lambda name: account_home(settings, name).is_dir(), named=backend_of)


def _account_backend(
    settings: Settings,
    provider: str | None,
    tap: Callable[[int], Tap] | None,
    budget: Budget,
    account: str | None,
) -> AccountBackend:
    """Return a pool that serves an account, and an on-demand one for models that keep their own tool mode."""
    spec, prepare = codex_with(settings, provider, account)
    native_spec = replace(spec, direct_tools=False)
    help_text = login_help(settings, account)
    pool_of = partial(_pool, prepare=prepare, settings=settings, tap=tap, budget=budget, help_text=help_text)
    pool = pool_of(native_spec if settings.tool_mode == "native" else spec, on_demand=account is not None)
    return AccountBackend(pool, native=pool_of(native_spec, on_demand=True) if settings.tool_mode == "auto" else None)


def _pool(
    spec: CodexSpec,
    *,
    prepare: Callable[[], None],
    settings: Settings,
    tap: Callable[[int], Tap] | None,
    budget: Budget,
    help_text: str,
    on_demand: bool,
) -> Pool:
    """Return a pool of app-servers whose home is prepared at each start."""

    async def start() -> Worker:
        prepare()
        worker = await start_worker(spec, tap=tap)
        # It has a server of its own, which would delay the gateway's.
        from turnbridge.codex import self_check  # noqa: PLC0415

        try:
            worker.extras = (await self_check.check(spec, worker)).findings
        except BaseException:
            await worker.process.stop()
            raise
        return worker

    pool = Pool(
        start,
        login_state=lambda: login_state(spec.home),
        login_help=help_text,
        budget=budget,
        on_demand=on_demand,
    )
    pool.max_growth_bytes = settings.worker_max_growth_mb * 1024 * 1024
    pool.first_backoff_s = _seconds(settings.worker_backoff_initial_ms, pool.first_backoff_s)
    pool.longest_backoff_s = _seconds(settings.worker_backoff_max_ms, pool.longest_backoff_s)
    return pool


def account_problems(settings: Settings, backend: CodexBackend) -> dict[str, str]:
    """Return why turns cannot be run now, or nothing, by account; nothing at all if there is only the default one."""
    named = named_accounts(settings)
    return {name or DEFAULT_ACCOUNT: backend.readiness(name).reason for name in (None, *named) if named}


def codex_with(
    settings: Settings, provider: str | None, account: str | None = None
) -> tuple[CodexSpec, Callable[[], None]]:
    """Return how to run Codex for an account, and a function that prepares its home at each start.

    `provider` is the base URL of a Responses API to use instead of the user's login.
    """
    if provider is None:
        spec = user_spec(settings, account)
        return spec, partial(prepare_home, spec.home, account_home(settings, account))
    spec = _spec(settings, "demo-home", provider_overrides(provider))
    return spec, partial(prepare_bare_home, spec.home)


def user_spec(settings: Settings, account: str | None = None) -> CodexSpec:
    """Return Codex with the login and models of an account."""
    if account is not None:
        # The provider and model of the settings are those of the default account.
        return replace(_spec(settings, f"account-homes/{account}", ()), model=None)
    provider = settings.codex_force_provider
    return _spec(settings, "codex-home", () if provider is None else (f"model_provider={json.dumps(provider)}",))


def login_help(settings: Settings, account: str | None = None) -> str:
    """Return the instructions for a missing login."""
    who = "Codex" if account is None else f"The Codex account `{account}`"
    return (
        f"{who} is not logged in: {account_home(settings, account) / 'auth.json'} has no usable login. Run "
        f"`{login_command(account)}` (add `--device` on a machine without a browser, or `--api-key` for an API key), "
        "then try again; Turnbridge need not be restarted."
    )


def _spec(settings: Settings, home: str, overrides: tuple[str, ...]) -> CodexSpec:
    return CodexSpec(
        binary=settings.codex_bin or versions.binary(settings.data_dir),
        home=settings.data_dir / home,
        workdir=settings.codex_workdir or settings.data_dir / "empty-workdir",
        overrides=overrides,
        model=settings.codex_model,
        version=__version__,
        connect_timeout_s=settings.connect_timeout_ms / 1000,
        startup_timeout_s=_seconds(settings.worker_startup_timeout_ms, CodexSpec.startup_timeout_s),
        call_timeout_s=_seconds(settings.worker_request_timeout_ms, CodexSpec.call_timeout_s),
        exit_grace_s=_seconds(settings.worker_shutdown_grace_ms, CodexSpec.exit_grace_s),
        rules=HostRules(
            sandbox=settings.sandbox_mode,
            approval_policy=settings.approval_policy,
            apply_patch=settings.include_apply_patch_tool,
            plain_messages=settings.responses_skip_turn,
        ),
        dialect=None if settings.dialect == "auto" else settings.dialect,
        validate_rpc=settings.validate_rpc,
        cache=settings.data_dir / "binaries",
    )


def _seconds(milliseconds: int | None, default: float) -> float:
    return default if milliseconds is None else milliseconds / 1000
