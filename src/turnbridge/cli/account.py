"""`turnbridge login`, `logout` and `whoami`: the account behind Codex."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

import click
from click.exceptions import Exit

from turnbridge.cli.chosen_account import chosen_account, existing_account
from turnbridge.cli.console import EXIT_UNAVAILABLE, print_json, progress, refuse, usable_settings, warn
from turnbridge.cli.gateway_client import Endpoint, NotTurnbridge, configured_endpoint
from turnbridge.cli.plan import described_account, described_limits
from turnbridge.codex.account import (
    AccountSession,
    Identity,
    LoginMethod,
    LoginStarted,
    PlanLimit,
    account_session,
    home_for_login,
    identity_as_json,
    limits_as_json,
    log_out,
    store_access_token,
)
from turnbridge.codex.setup import codex_with
from turnbridge.logs.setup import configure_logging
from turnbridge.settings.accounts import account_home, login_command, named_accounts
from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import Settings
from turnbridge.turn.errors import GatewayError

T = TypeVar("T")

EXIT_NOBODY = 1
EXIT_FAILED = 1
# A Codex starts in a second; without a network it first waits for the account's models.
NOTICE_S = 15.0
POLL_S = 0.2
ASKING = "Asking Codex who is logged in ..."


def login(*, device: bool, api_key: bool, access_token: bool, account: str | None, as_json: bool) -> None:
    """Log in to ChatGPT in a browser, by a device code or an access token, or to OpenAI with an API key."""
    if device + api_key + access_token > 1:
        raise click.UsageError("Choose one of --device, --api-key and --access-token.")
    settings, account = usable_settings(), chosen_account(account)
    key = _read_secret("API key", "OPENAI_API_KEY", "--api-key") if api_key else None
    token = _read_secret("access token", "CODEX_ACCESS_TOKEN", "--access-token") if access_token else None

    async def log_in(session: AccountSession) -> Identity:
        if token is not None:
            await store_access_token(codex_with(settings, None, account)[0], token)
        elif key is not None:
            await session.store_api_key(key)
        else:
            await _log_in_by_browser(session, "chatgptDeviceCode" if device else "chatgpt", as_json=as_json)
        return await session.identity()

    with _codex_home(account_home(settings, account), chosen=account is None):
        identity = _with_account(settings, account, log_in)
        if token is not None:
            # By another Codex: one that runs already does not read what the login command has written.
            identity = _with_account(settings, account, lambda session: session.identity())
    if as_json:
        print_json({"event": "completed", **identity_as_json(identity)})
    else:
        click.echo("Logged in." if identity.account is None else f"Logged in: {described_account(identity)}.")
        if account is None:
            wait_for_gateway(configured_endpoint(settings))
        else:
            click.echo(f"Make a key for it: {own_command('keys', 'create', 'NAME', '--account', account)}")
    if not identity.login_needed:
        warn(f"the configured provider `{identity.provider}` does not use this login.")


def logout(*, account: str | None, as_json: bool) -> None:
    """Log out: revoke the login, and remove it from your Codex home."""
    settings = usable_settings()
    account, home = existing_account(settings, account)

    codex_home = codex_with(settings, None, account)[0].home
    identity = _with_account(settings, account, lambda session: log_out(session, codex_home, home))
    if as_json:
        print_json({"logged_out": identity.known, **identity_as_json(identity)})
    elif identity.known:
        who = "" if identity.account is None else f": {described_account(identity)}"
        click.echo(f"Logged out{who}. Every Codex that uses {home} is logged out, too.")
    else:
        click.echo("Nobody is logged in.")


def whoami(*, account: str | None, as_json: bool) -> None:
    """Show who is logged in, and how much of the plan is used."""
    settings = usable_settings()
    account, _ = existing_account(settings, account)
    with progress(ASKING):
        identity, limits, problem = _with_account(settings, account, _read_account)
    if as_json:
        print_json({**identity_as_json(identity), "limits": limits_as_json(limits), "limits_problem": problem})
    else:
        click.echo(described_account(identity))
        for line in described_limits(limits):
            click.echo(line)
        if problem is not None:
            warn(f"the plan's limits cannot be read: {problem}")
        if not identity.usable:
            click.echo(f"Log in: {login_command(account)}")
        others = [name for name in named_accounts(settings) if account is None]
        if others:
            click.echo(f"Other accounts, shown by `--account`: {', '.join(others)}")
    if not identity.usable:
        raise Exit(EXIT_NOBODY)


AccountState: TypeAlias = tuple[Identity, tuple[PlanLimit, ...], str | None]
"""Who is logged in, the limits of the plan, and why these cannot be read."""


def account_of(settings: Settings, account: str | None = None) -> AccountState:
    """Return the state of an account; raises `GatewayError` or `OSError` if Codex cannot be asked."""
    with progress(ASKING):
        return _in_session(settings, account, _read_account)


async def account_while_serving(settings: Settings) -> AccountState:
    """Return the account in a process that serves, which has prepared Codex's home; raises like `account_of`."""
    async with account_session(codex_with(settings, None)[0]) as session:
        return await _read_account(session)


async def _read_account(session: AccountSession) -> AccountState:
    identity = await session.identity()
    if identity.account is None or identity.account.type != "chatgpt":
        return identity, (), None
    try:
        return identity, await session.limits(), None
    except GatewayError as error:
        return identity, (), error.message


def _with_account(settings: Settings, account: str | None, work: Callable[[AccountSession], Awaitable[T]]) -> T:
    """Return the result of work with Codex's account calls; exit with the error if it fails."""
    try:
        return _in_session(settings, account, work)
    except GatewayError as error:
        refuse(error.message, status=EXIT_FAILED)
    except OSError as error:
        refuse(f"Cannot use {error.filename or settings.data_dir}: {error.strerror}.", status=EXIT_UNAVAILABLE)


def _in_session(settings: Settings, account: str | None, work: Callable[[AccountSession], Awaitable[T]]) -> T:
    configure_logging("critical")  # Errors are printed as the command's own.

    async def run() -> T:
        async with _session(settings, account) as session:
            return await work(session)

    return asyncio.run(run())


@asynccontextmanager
async def _session(settings: Settings, account: str | None) -> AsyncIterator[AccountSession]:
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    spec, prepare = codex_with(settings, None, account)
    prepare()
    async with account_session(spec) as session:
        yield session


async def _log_in_by_browser(session: AccountSession, method: LoginMethod, *, as_json: bool) -> None:
    started = await session.start_login(method)
    if as_json:
        print_json({"event": "started", "url": started.url, "code": started.user_code})
    else:
        click.echo(_invitation(started))
    completed = await session.login_completed(started)
    if not completed.success:
        refuse(f"The login failed: {completed.error or 'Codex gives no reason.'}", status=EXIT_FAILED)


def _invitation(started: LoginStarted) -> str:
    waiting = "Waiting for the login. Ctrl-C cancels it."
    if started.user_code is not None:
        code = f"  {started.url}\n\nand enter this code, which only you should use:\n\n  {started.user_code}"
        return f"Open this page in a browser on any device, log in,\n\n{code}\n\n{waiting}"
    port = _callback_port(started.url)
    hint = ""
    if os.environ.get("SSH_CONNECTION"):
        hint = (
            f"The browser has to reach port {port} of this machine. Over ssh, either use `{login_command()} --device`, "
            f"or connect with `ssh -L {port}:127.0.0.1:{port} ...`.\n\n"
        )
    return f"Open this page in a browser on this machine, and log in:\n\n  {started.url}\n\n{hint}{waiting}"


def _callback_port(url: str) -> int:
    """Return the port to which the browser is sent after the login; Codex listens there."""
    redirects = parse_qs(urlsplit(url).query).get("redirect_uri", [])
    return next((port for each in redirects if (port := urlsplit(each).port)), 1455)


def _read_secret(what: str, variable: str, option: str) -> str:
    """Return a secret from a pipe or a prompt: arguments would be visible to other users and kept in histories."""
    if sys.stdin is None or not sys.stdin.isatty():
        secret = sys.stdin.readline() if sys.stdin is not None else ""
    else:
        secret = click.prompt(what[0].upper() + what[1:], hide_input=True, default="", show_default=False)
    if not secret.strip():
        refuse(f"No {what} was given. For example: printenv {variable} | {own_command('login', option)}")
    return str(secret).strip()


def wait_for_gateway(endpoint: Endpoint) -> None:
    """Tell when a running gateway has noticed the login; it restarts Codex for it."""
    deadline = time.monotonic() + NOTICE_S
    try:
        readiness = endpoint.readiness()
        if readiness is None:
            return
        if readiness.status == "ready":
            click.echo(f"The gateway on {endpoint.base_url} uses it within half a minute.")
            return
        while readiness is not None and readiness.status != "ready" and time.monotonic() < deadline:
            time.sleep(POLL_S)
            readiness = endpoint.readiness()
    except NotTurnbridge:
        return
    if readiness is not None and readiness.status == "ready":
        click.echo(f"The gateway on {endpoint.base_url} is ready.")
    else:
        click.echo(f"The gateway on {endpoint.base_url} is not ready yet. See: {own_command('status')}")


@contextmanager
def _codex_home(home: Path, *, chosen: bool) -> Iterator[None]:
    """Create the Codex home of an account, in which its login is kept; the default one is chosen by a setting."""
    with ExitStack() as stack:
        try:
            stack.enter_context(home_for_login(home))
        except OSError as error:
            variable = "CODEX_HOME" if chosen else "PROXY_DATA_DIR"
            refuse(f"Cannot create {home}: {error.strerror}. Choose another directory in {variable}.")
        yield
