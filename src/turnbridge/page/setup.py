"""Settings → the page: who may look, what it shows of the gateway, and the Codex that is asked for the account."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sized
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from turnbridge.api.models import Models
from turnbridge.codex.account import AccountSession, account_session
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.setup import codex_with
from turnbridge.engine.admission import Admission
from turnbridge.page.account import AccountDesk
from turnbridge.page.owner import CommandData, OwnerDesk
from turnbridge.page.recent import RecentRequests
from turnbridge.page.routes import Access, Page, PageView
from turnbridge.page.sessions import Sessions
from turnbridge.settings.fields import Settings
from turnbridge.web.middleware.keyring import Keyring


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The parts of a running gateway that the page looks at."""

    pool: Pool
    admission: Admission
    keyring: Keyring
    calls: Sized
    warm: Sized
    models: Models
    problem: Callable[[], str]
    fidelity: Callable[[], str]


def owner_desk(settings: Settings, *, demo: bool, commands: CommandData | None) -> OwnerDesk:
    """Return what only the owner may see and do."""
    return OwnerDesk(None if demo else AccountDesk(partial(_account_session, settings)), commands)


def page_of(settings: Settings, running: Running, desk: OwnerDesk) -> Page | None:
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
    admission, calls, warm, pool = running.admission, running.calls, running.warm, running.pool
    view = PageView(
        problem=running.problem,
        fidelity=running.fidelity,
        codex_version=lambda: next((worker.binary.rpartition("-")[0] for worker in pool.workers), None),
        models=running.models.list,
        gauges=lambda: {
            "running": admission.running,
            "queued": admission.waiting,
            "parked": len(calls),
            "warm": len(warm),
        },
        closing=lambda: admission.leaving,
        demo=desk.demo,
        traced=settings.log_proto,
    )
    return Page(view, access, RecentRequests(), desk.handlers(running.models.list))


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
