"""The account behind Codex, for the page: who is logged in, the plan's windows, and a login that the page begins."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import structlog

from turnbridge.codex.account import (
    AccountSession,
    Identity,
    LoginMethod,
    identity_as_json,
)
from turnbridge.codex.protocol.plan import Plan
from turnbridge.engine.ports import PlanWindow
from turnbridge.turn.errors import GatewayError
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

    def as_json(self) -> JsonObject:
        """Return it as the page reads it."""
        identity: JsonObject = {} if self.identity is None else identity_as_json(self.identity)
        return {**identity, "limits_problem": self.problem}


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


class AccountDesk:
    """Answers for the account; several who ask at once get one reading."""

    def __init__(
        self, open_session: OpenSession, plan: Callable[[], Plan], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`plan` returns the windows that the gateway knows, which the metrics show too; a reading updates them."""
        self._open = open_session
        self._plan = plan
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read: AccountState | None = None
        self._read_at = 0.0
        self.login = Login()

    async def state(self) -> AccountState:
        """Return the account as it was within the last minute."""
        async with self._lock:
            if self._read is None or self._clock() - self._read_at >= FRESH_S:
                self._read = await self._now()
                self._read_at = self._clock()
            return self._read

    def windows(self) -> list[Json]:
        """Return how the windows of the plan stand."""
        return windows_as_json(self._plan().windows(time.time()))

    async def start_login(self, method: LoginMethod) -> Login:
        """Begin a login in place of one that is pending; return it once there is something to show."""
        await self.cancel_login()
        login = self.login = Login(state="pending")
        login.task = asyncio.create_task(self._log_in(login, method))
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

    async def _now(self) -> AccountState:
        try:
            async with self._open() as session:
                identity = await session.identity()
                if identity.account is None or identity.account.type != "chatgpt":
                    return AccountState(identity=identity)
                try:
                    for limit in await session.limits():
                        self._plan().update(limit)
                    return AccountState(identity=identity)
                except GatewayError as error:
                    return AccountState(identity=identity, problem=error.message)
        except GatewayError as error:
            return AccountState(identity=None, problem=error.message)
        except OSError as error:
            return AccountState(identity=None, problem=f"Codex cannot be started: {error.strerror}.")

    async def _log_in(self, login: Login, method: LoginMethod) -> None:
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S), self._open() as session:
                started = await session.start_login(method)
                login.url, login.code = started.url, started.user_code
                login.started.set()
                completed = await session.login_completed(started)
            login.state = "done" if completed.success else "failed"
            login.problem = None if completed.success else FAILED + (completed.error or "Codex gives no reason.")
        except TimeoutError:
            login.state, login.problem = "failed", "Nobody completed the login in time. Start it again."
        except GatewayError as error:
            login.state, login.problem = "failed", error.message
        except OSError as error:
            login.state, login.problem = "failed", f"Codex cannot be started: {error.strerror}."
        finally:
            login.started.set()
            # The next reading shows who is logged in now.
            self._read = None
            log.info("page_login_ended", state=login.state)


def windows_as_json(windows: Mapping[str, PlanWindow]) -> list[Json]:
    """Return the windows of the plan as the page reads them."""
    return [
        {"window": name, "window_minutes": each.minutes, "used_percent": each.used_percent, "resets_at": each.resets_at}
        for name, each in windows.items()
    ]
