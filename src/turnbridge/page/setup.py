"""Settings → the page: who may look, what it shows of the gateway, and the Codex that is asked for the account."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sized
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

from turnbridge.api.models import Models
from turnbridge.api.usage import OrganizationUsage
from turnbridge.codex.account import AccountSession, account_session
from turnbridge.codex.process.backend import CodexBackend
from turnbridge.codex.setup import codex_with, user_spec
from turnbridge.engine.admission import Admission
from turnbridge.page.account import AccountDesk, AccountParts
from turnbridge.page.accounts import Accounts
from turnbridge.page.owner import CommandData, OwnerDesk
from turnbridge.page.recent import RecentRequests
from turnbridge.page.routes import Access, Page, PageView
from turnbridge.page.sessions import Sessions
from turnbridge.settings.accounts import account_home, named_accounts
from turnbridge.settings.fields import Settings
from turnbridge.web.middleware.keyring import Keyring


class Running(Protocol):
    """The parts of a running gateway that the page looks at."""

    @property
    def keyring(self) -> Keyring:
        """Return the keys that are accepted."""
        ...

    @property
    def calls(self) -> Sized:
        """Return the parked turns."""
        ...

    @property
    def warm(self) -> Sized:
        """Return the warm threads."""
        ...

    @property
    def backend(self) -> CodexBackend:
        """Return what runs turns."""
        ...


def owner_desk(settings: Settings, backend: CodexBackend, *, demo: bool, commands: CommandData | None) -> OwnerDesk:
    """Return what only the owner may see and do. The demo has no accounts."""
    if demo:
        return OwnerDesk(None, commands)
    accounts = Accounts(
        named=partial(named_accounts, settings),
        problem=lambda account: backend.readiness(account).reason,
        plan=backend.plan,
        desk_of=partial(_account_desk, settings, backend),
    )
    return OwnerDesk(accounts, commands)


def _account_desk(settings: Settings, backend: CodexBackend, account: str | None) -> AccountDesk:
    """Return who answers for an account."""
    parts = AccountParts(
        open=partial(_account_session, settings, account),
        plan=lambda: backend.of(account).pool.plan,
        user_home=account_home(settings, account),
        home=user_spec(settings, account).home,
    )
    return AccountDesk(parts)


def page_of(
    settings: Settings,
    running: Running,
    desk: OwnerDesk,
    *,
    admission: Admission,
    models: Models,
    usage: OrganizationUsage,
    problem: Callable[[str | None], str],
) -> Page | None:
    """Return the page for browsers, unless it is switched off."""
    if not settings.page:
        return None
    keyring = running.keyring
    sessions = Sessions(current=keyring.current)
    keyring.on_change.append(sessions.end_of)
    access = Access(
        sessions=sessions,
        owner=keyring.first(),
        own_names=own_names(settings),
    )
    calls, warm, backend = running.calls, running.warm, running.backend
    view = PageView(
        problem=problem,
        fidelity=backend.fidelity,
        codex_version=lambda: next((worker.binary.rpartition("-")[0] for worker in backend.workers()), None),
        models=models.list,
        usage=usage.completions,
        gauges=lambda: {
            "running": admission.running,
            "queued": admission.waiting,
            "parked": len(calls),
            "warm": len(warm),
            "accounts": desk.accounts(),
        },
        closing=lambda: admission.leaving,
        demo=desk.demo,
        others=desk.others,
        traced=settings.log_proto,
    )
    return Page(view, access, RecentRequests(), desk.handlers(models.list))


def own_names(settings: Settings) -> tuple[str, ...]:
    """Return names of this server besides its addresses: of a page that the operator allows, the host is one."""
    origins = (urlsplit(origin).hostname for origin in settings.cors_allowed_origins if origin != "*")
    return (settings.host, *filter(None, origins))


@contextlib.asynccontextmanager
async def _account_session(settings: Settings, account: str | None) -> AsyncIterator[AccountSession]:
    """Run a Codex for calls about an account."""
    spec, prepare = codex_with(settings, None, account)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    prepare()
    async with account_session(spec) as session:
        yield session
