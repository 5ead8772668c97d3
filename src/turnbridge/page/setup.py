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
from turnbridge.codex.setup import codex_with
from turnbridge.engine.admission import Admission
from turnbridge.page.account import AccountDesk
from turnbridge.page.owner import CommandData, OwnerDesk
from turnbridge.page.recent import RecentRequests
from turnbridge.page.routes import Access, Page, PageView
from turnbridge.page.sessions import Sessions
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
    """Return what only the owner may see and do; account and plan are those of the default login."""
    account = None if demo else AccountDesk(partial(_account_session, settings), lambda: backend.default.pool.plan)
    return OwnerDesk(account, commands)


def page_of(
    settings: Settings,
    running: Running,
    desk: OwnerDesk,
    *,
    admission: Admission,
    models: Models,
    usage: OrganizationUsage,
    problem: Callable[[], str],
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
    calls, warm, pool = running.calls, running.warm, running.backend.default.pool
    view = PageView(
        problem=problem,
        fidelity=running.backend.fidelity,
        codex_version=lambda: next((worker.binary.rpartition("-")[0] for worker in pool.workers), None),
        models=models.list,
        usage=usage.completions,
        gauges=lambda: {
            "running": admission.running,
            "queued": admission.waiting,
            "parked": len(calls),
            "warm": len(warm),
            "plan": desk.windows(),
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
async def _account_session(settings: Settings) -> AsyncIterator[AccountSession]:
    """Run a Codex for calls about the user's account."""
    spec, prepare = codex_with(settings, None)
    for directory in (settings.data_dir, settings.codex_home):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    prepare()
    async with account_session(spec) as session:
        yield session
