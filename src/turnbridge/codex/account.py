"""The account behind Codex: who is logged in, login, logout and the plan's windows, by Codex's own `account/*` calls.

Each session is a short-lived app-server in the gateway's Codex home. The login file there is a link to the user's.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from turnbridge.codex.process.binary import spawn
from turnbridge.codex.process.connection import CallRefused, CodexFaulted, Connection
from turnbridge.codex.process.handshake import ACCOUNT_UNREACHABLE
from turnbridge.codex.process.home import codex_environment
from turnbridge.codex.process.process import AppServerProcess
from turnbridge.codex.process.worker import CodexSpec
from turnbridge.codex.protocol.encode import initialize_params
from turnbridge.codex.protocol.jsonrpc import LineSplitter, decode_as, decode_line
from turnbridge.codex.protocol.messages import RateLimits, RateLimitWindow, Wire
from turnbridge.turn.errors import BackendLost, BackendUnavailable, GatewayError
from turnbridge.turn.items import Json, JsonObject

LoginMethod: TypeAlias = Literal["chatgpt", "chatgptDeviceCode"]

LOGIN_FILE = "auth.json"
LOGIN_COMPLETED = "account/login/completed"
# Codex revokes the tokens at the issuer first; without a network it gives up by itself.
LOGOUT_TIMEOUT_S = 60.0
# The issuer is asked for a code; a proxy that swallows connections must not hang the command.
LOGIN_START_TIMEOUT_S = 60.0
# The account's server is asked; who is logged in is known without it.
LIMITS_TIMEOUT_S = 10.0
# Codex answers at once. The command was interrupted already, so nobody wants to wait.
CANCEL_TIMEOUT_S = 2.0
# Codex quotes the answers of servers in its errors.
MOST_REASON_CHARACTERS = 300


class Account(Wire, frozen=True):
    """Who is logged in: `chatgpt` has an address and a plan, `apiKey` and others have neither."""

    type: str
    email: str | None = None
    plan_type: str | None = None


class AccountRead(Wire, frozen=True):
    """The answer to `account/read`."""

    requires_openai_auth: bool
    account: Account | None = None


class Credits(Wire, frozen=True):
    """What may be used beyond the windows."""

    has_credits: bool
    unlimited: bool
    balance: str | None = None


class PlanLimit(RateLimits, frozen=True):
    """One metered limit of the plan."""

    limit_name: str | None = None
    credits: Credits | None = None

    @property
    def windows(self) -> tuple[RateLimitWindow, ...]:
        """Return the windows that the plan has."""
        return tuple(window for window in (self.primary, self.secondary) if window is not None)


class LimitsRead(Wire, frozen=True):
    """The answer to `account/rateLimits/read`."""

    rate_limits: PlanLimit
    rate_limits_by_limit_id: dict[str, PlanLimit] | None = None

    @property
    def limits(self) -> tuple[PlanLimit, ...]:
        """Return all limits, the main one first."""
        others = (self.rate_limits_by_limit_id or {}).values()
        return (self.rate_limits, *(limit for limit in others if limit.limit_id != self.rate_limits.limit_id))


class LoginStarted(Wire, frozen=True):
    """The answer to `account/login/start`: a page to open, and for a device a code to enter there."""

    login_id: str = ""
    auth_url: str | None = None
    verification_url: str | None = None
    user_code: str | None = None

    @property
    def url(self) -> str:
        """Return the page to open."""
        return self.verification_url or self.auth_url or ""


class LoginCompleted(Wire, frozen=True):
    """`account/login/completed`"""

    success: bool
    login_id: str | None = None
    error: str | None = None


class ConfiguredProvider(Wire, frozen=True):
    """The part of `config/read` that names the provider."""

    model_provider: str | None = msgspec.field(default=None, name="model_provider")


class ConfigRead(Wire, frozen=True):
    """The answer to `config/read`."""

    config: ConfiguredProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who is logged in."""

    account: Account | None
    login_needed: bool
    """Whether the configured provider uses OpenAI's login."""
    provider: str
    problem: str | None = None
    """Why a stored login cannot be used now."""
    offline: bool = False
    """Whether the only problem is that the account's server cannot be reached."""

    @property
    def known(self) -> bool:
        """Tell whether there is a login, be it one that cannot be used now."""
        return self.account is not None or self.problem is not None

    @property
    def usable(self) -> bool:
        """Tell whether turns can run."""
        return not self.login_needed or self.account is not None or self.offline


class AccountSession:
    """The `account/*` calls of one app-server."""

    def __init__(self, process: AppServerProcess, *, call_timeout_s: float) -> None:
        self._process = process
        self._lines = LineSplitter()
        self._completed: asyncio.Queue[LoginCompleted] = asyncio.Queue()
        self._connection = Connection(process.write)
        self._connection.call_timeout_s = call_timeout_s
        process.receive_by(self._receive)
        process.exited.add_done_callback(lambda _: self._connection.end(self._exit_error()))

    async def greet(self, version: str) -> None:
        """Exchange the handshake."""
        await self._connection.call("initialize", initialize_params(version, opt_out=False), dict[str, msgspec.Raw])
        self._connection.notify("initialized")

    async def identity(self) -> Identity:
        """Return who is logged in."""
        config = (await self._connection.call("config/read", {}, ConfigRead)).config
        provider = config.model_provider or "openai"
        try:
            read = await self._connection.call("account/read", {}, AccountRead)
        except (CallRefused, CodexFaulted) as refused:
            # Codex has a login, and either cannot use it or cannot reach the account's server.
            offline = ACCOUNT_UNREACHABLE in refused.message
            reason = _shortened(refused.message)
            return Identity(account=None, login_needed=True, provider=provider, problem=reason, offline=offline)
        return Identity(account=read.account, login_needed=read.requires_openai_auth, provider=provider)

    async def limits(self) -> tuple[PlanLimit, ...]:
        """Return the limits of a ChatGPT plan; raises a `GatewayError` if they cannot be read."""
        method = "account/rateLimits/read"
        return (await self._connection.call(method, None, LimitsRead, timeout_s=LIMITS_TIMEOUT_S)).limits

    async def store_api_key(self, key: str) -> None:
        """Log in with an API key."""
        await self._start({"type": "apiKey", "apiKey": key})

    async def start_login(self, method: LoginMethod) -> LoginStarted:
        """Begin a login that the user completes in a browser."""
        return await self._start({"type": method})

    async def login_completed(self, started: LoginStarted) -> LoginCompleted:
        """Wait until the login has succeeded or failed; cancels it if the caller is cancelled."""
        try:
            while True:
                completed = await self._next_completed()
                if completed.login_id in (None, started.login_id):
                    return completed
        except asyncio.CancelledError:
            await self._cancel(started)
            raise

    async def log_out(self) -> None:
        """Revoke the login where possible, and forget it."""
        await self._connection.call("account/logout", None, dict[str, msgspec.Raw], timeout_s=LOGOUT_TIMEOUT_S)

    async def _start(self, params: JsonObject) -> LoginStarted:
        method = "account/login/start"
        try:
            return await self._connection.call(method, params, LoginStarted, timeout_s=LOGIN_START_TIMEOUT_S)
        except CallRefused as refused:
            raise BackendUnavailable(f"Codex refuses this login: {_shortened(refused.message)}") from refused
        except CodexFaulted as fault:
            raise BackendUnavailable(
                f"The login could not be started. {_shortened(fault.message)}. Check the network, and HTTPS_PROXY if "
                "there is a proxy."
            ) from fault

    async def _cancel(self, started: LoginStarted) -> None:
        method, params = "account/login/cancel", {"loginId": started.login_id}
        # The login ends with the app-server in any case.
        with contextlib.suppress(GatewayError):
            await self._connection.call(method, dict(params), dict[str, msgspec.Raw], timeout_s=CANCEL_TIMEOUT_S)

    async def _next_completed(self) -> LoginCompleted:
        getting = asyncio.ensure_future(self._completed.get())
        try:
            await asyncio.wait((getting, self._process.exited), return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                raise self._exit_error()
            return getting.result()
        finally:
            getting.cancel()

    def _receive(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            # Lines that cannot be read are reported by the connection.
            with contextlib.suppress(msgspec.MsgspecError):
                message = decode_line(line)
                if message.method == LOGIN_COMPLETED:
                    self._completed.put_nowait(decode_as(LoginCompleted, message.params))
        self._connection.receive(data)

    def _exit_error(self) -> BackendLost:
        if complaint := self._process.complaint():
            return BackendLost(f"Codex ended (exit status {self._process.exit_status}): {complaint}")
        return BackendLost(f"Codex ended ({self._process.last_words()}).")


@contextlib.asynccontextmanager
async def account_session(spec: CodexSpec) -> AsyncIterator[AccountSession]:
    """Run an app-server for calls about the account; its home must have been prepared."""
    spec.workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = spec.command("app-server")
    process = await spawn(command, home=spec.home, cwd=spec.workdir, exit_grace_s=spec.exit_grace_s)
    try:
        session = AccountSession(process, call_timeout_s=spec.call_timeout_s)
        try:
            async with asyncio.timeout(spec.startup_timeout_s):
                await session.greet(spec.version)
        except TimeoutError as error:
            raise BackendUnavailable("Codex did not finish its handshake in time.") from error
        yield session
    finally:
        await asyncio.shield(process.stop())


@contextlib.contextmanager
def home_for_login(home: Path) -> Iterator[None]:
    """Make the Codex home of an account where there is none; remove it again if the login fails or is cancelled."""
    made = not home.is_dir()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        # One with something in it stays.
        with contextlib.suppress(OSError):
            if made:
                home.rmdir()
        raise


async def log_out(session: AccountSession, home: Path, user_home: Path) -> Identity:
    """Revoke the login where possible, and forget it; return who was logged in.

    `user_home` has the login file, and `home` a link to it.
    """
    identity = await session.identity()
    if identity.known:
        await session.log_out()
        _forget_login_file(home, user_home)
    return identity


async def store_access_token(spec: CodexSpec, token: str) -> None:
    """Log in with an access token of ChatGPT by Codex's own command: app-server has no call for it.

    Raises `BackendUnavailable` with Codex's reason.
    """
    process = await asyncio.create_subprocess_exec(
        *spec.command("login", "--with-access-token"),
        env=codex_environment(spec.home),
        cwd=spec.workdir,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LOGIN_START_TIMEOUT_S):
            _, told = await process.communicate(f"{token}\n".encode())
    except TimeoutError as error:
        raise BackendUnavailable("Codex did not finish the login in time. Check the network.") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = told.decode(errors="replace").strip().splitlines()
        reason = next((line for line in lines if line.lower().startswith("error")), "it gives no reason.")
        raise BackendUnavailable(f"Codex refuses this access token: {_shortened(reason)}")


def _forget_login_file(home: Path, user_home: Path) -> None:
    """Remove the user's login file after a logout: Codex removes only its link to it."""
    if not (home / LOGIN_FILE).is_symlink():
        (user_home / LOGIN_FILE).unlink(missing_ok=True)


def identity_as_json(identity: Identity) -> JsonObject:
    """Return who is logged in as JSON."""
    account = identity.account
    return {
        "usable": identity.usable,
        "login_needed": identity.login_needed,
        "provider": identity.provider,
        "kind": None if account is None else account.type,
        "email": None if account is None else account.email,
        "plan": None if account is None else account.plan_type,
        "problem": identity.problem,
    }


def limits_as_json(limits: Sequence[PlanLimit]) -> Json:
    """Return the windows of the plan as JSON."""
    return [
        {
            "limit": limit.limit_id,
            "window_minutes": window.window_duration_mins,
            "used_percent": window.used_percent,
            "resets_at": window.resets_at,
        }
        for limit in limits
        for window in limit.windows
    ]


def _shortened(reason: str) -> str:
    return reason if len(reason) <= MOST_REASON_CHARACTERS else f"{reason[:MOST_REASON_CHARACTERS]}…"
