"""The account behind Codex, for the page: who is logged in, the plan's windows, login and logout."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import structlog

from turnbridge.codex.account import (
    LOGIN_FILE,
    AccountSession,
    Identity,
    LoginMethod,
    PlanLimit,
    home_for_login,
    identity_as_json,
    log_out,
)
from turnbridge.codex.protocol.plan import Plan
from turnbridge.engine.ports import PlanWindow
from turnbridge.turn.errors import BackendUnavailable, GatewayError
from turnbridge.turn.items import Json, JsonObject

log = structlog.get_logger(__name__)

OpenSession: TypeAlias = Callable[[], AbstractAsyncContextManager[AccountSession]]
LoginState: TypeAlias = Literal["none", "pending", "done", "failed"]

# Each reading starts a Codex, and asks the account's server. Windows of hours do not change sooner.
FRESH_S = 60.0
# A device code is valid for a quarter of an hour.
LOGIN_TIMEOUT_S = 15 * 60.0
FAILED = "The login failed. "


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """Who is logged in, and why the limits of the plan cannot be read."""

    identity: Identity | None
    problem: str | None = None
    login_at: float | None = None
    """When the login that was read was written; it may be another one by now."""

    def as_json(self) -> JsonObject:
        """Return it as the page reads it."""
        identity: JsonObject = {} if self.identity is None else identity_as_json(self.identity)
        return {**identity, "limits_problem": self.problem, "login_at": self.login_at}


@dataclass(slots=True, kw_only=True)
class Login:
    """A login that the user completes in a browser."""

    state: LoginState = "none"
    url: str | None = None
    code: str | None = None
    problem: str | None = None
    task: "asyncio.Task[None] | None" = None
    started: asyncio.Event = field(default_factory=asyncio.Event)

    def as_json(self) -> JsonObject:
        """Return it as the page reads it."""
        return {"state": self.state, "url": self.url, "code": self.code, "problem": self.problem}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountParts:
    """What an account consists of."""

    open: OpenSession
    plan: Callable[[], Plan]
    """Returns the windows that the gateway knows, which the metrics show too; a reading updates them."""
    user_home: Path
    """The Codex home with the login."""
    home: Path
    """The gateway's Codex home, with a link to it."""


class AccountDesk:
    """Answers for one account; several who ask at once get one reading."""

    def __init__(self, parts: AccountParts, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read: AccountState | None = None
        self._read_at = 0.0
        self._login_at: float | None = None
        self._limits: tuple[PlanLimit, ...] = ()
        self._told: Plan | None = None
        self.login = Login()

    async def state(self) -> AccountState:
        """Return the account as it was within the last minute."""
        async with self._lock:
            login_at = self.login_at()
            if self._read is None or self._clock() - self._read_at >= FRESH_S or login_at != self._login_at:
                self._login_at, self._limits = login_at, ()
                self._read = replace(await self._now(), login_at=login_at)
                self._read_at = self._clock()
            return self._read

    def login_at(self) -> float | None:
        """Return when the login was last written, by whoever it was; None if there is no file with it."""
        try:
            return (self._parts.user_home / LOGIN_FILE).stat().st_mtime
        except OSError:
            return None

    def tell_plan(self) -> None:
        """Let the gateway know the plan that was read last; after a login, it forgets what it knew a moment later."""
        if not self._limits or self.login_at() != self._login_at:
            return
        plan = self._parts.plan()
        if plan is not self._told:
            self._told = plan
            for limit in self._limits:
                plan.update(limit)

    async def start_login(self, method: LoginMethod | None, api_key: str = "") -> Login:
        """Begin a login in place of one that is pending; return it once there is something to show.

        Without a method, the login is the API key.
        """
        await self.cancel_login()
        login = self.login = Login(state="pending")
        login.task = asyncio.create_task(self._log_in(login, method, api_key))
        await login.started.wait()
        return login

    async def cancel_login(self) -> None:
        """Cancel a login that is pending."""
        task = self.login.task
        if task is not None and not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.login = Login()

    async def log_out(self) -> Identity:
        """Revoke and forget the login; return who was logged in."""
        try:
            async with self._parts.open() as session:
                return await log_out(session, self._parts.home, self._parts.user_home)
        finally:
            self._read = None

    async def _now(self) -> AccountState:
        try:
            async with self._parts.open() as session:
                identity = await session.identity()
                if identity.account is None or identity.account.type != "chatgpt":
                    return AccountState(identity=identity)
                try:
                    self._limits, self._told = await session.limits(), None
                    self.tell_plan()
                    return AccountState(identity=identity)
                except GatewayError as error:
                    return AccountState(identity=identity, problem=error.message)
        except GatewayError as error:
            return AccountState(identity=None, problem=error.message)
        except OSError as error:
            return AccountState(identity=None, problem=f"Codex cannot be started: {error.strerror}.")

    async def _log_in(self, login: Login, method: LoginMethod | None, api_key: str) -> None:
        try:
            async with contextlib.AsyncExitStack() as starting:
                # Two Codex that start in a home which is new disturb each other.
                await starting.enter_async_context(self._lock)
                with home_for_login(self._parts.user_home):
                    async with asyncio.timeout(LOGIN_TIMEOUT_S), self._parts.open() as session:
                        await _complete(session, login, method, api_key, starting)
            login.state = "done"
        except TimeoutError:
            login.state, login.problem = "failed", "Nobody completed the login in time. Start it again."
        except GatewayError as error:
            login.state, login.problem = "failed", error.message
        except OSError as error:
            login.state, login.problem = "failed", f"Cannot use {error.filename or 'Codex'}: {error.strerror}."
        finally:
            login.started.set()
            # The next reading shows who is logged in now.
            self._read = None
            log.info("page_login_ended", state=login.state)


async def _complete(
    session: AccountSession,
    login: Login,
    method: LoginMethod | None,
    api_key: str,
    starting: contextlib.AsyncExitStack,
) -> None:
    """Log in; raises a `GatewayError` with the reason if that fails. `starting` is left once there is what to show."""
    if method is None:
        await session.store_api_key(api_key)
        return
    started = await session.start_login(method)
    login.url, login.code = started.url, started.user_code
    login.started.set()
    await starting.aclose()
    completed = await session.login_completed(started)
    if not completed.success:
        raise BackendUnavailable(FAILED + (completed.error or "Codex gives no reason."))


def windows_as_json(windows: Mapping[str, PlanWindow]) -> list[Json]:
    """Return the windows of the plan as the page reads them."""
    return [
        {"window": name, "window_minutes": each.minutes, "used_percent": each.used_percent, "resets_at": each.resets_at}
        for name, each in windows.items()
    ]
