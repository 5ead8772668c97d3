"""Who looks at the page: one-time codes, and the sessions that a code or a key opens.

A session is a cookie and a token, and a request needs both. Browsers send a cookie to every port of a host, so another
server on this machine may see it. The token is known to the page's own origin only.
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple

from msgspec import structs
from starlette.types import Scope

from turnbridge.turn.clients import Client
from turnbridge.turn.errors import Forbidden, InvalidApiKey
from turnbridge.web.http import PAGE_TOKEN, header_value

# Long enough to finish a coffee; whoever finds the link in a scrollback later gets nothing by it.
CODE_LIFE_S = 3600.0
# A working day. Who comes back later clicks a new link, or enters the key.
SESSION_LIFE_S = 12 * 3600.0
MOST_CODES = 16
MOST_SESSIONS = 64
SECRET_BYTES = 24

ENDED = "This session of the page has ended. Open the link that `serve` prints at its start, or enter a key."
ELSEWHERE = "Another page may not use the session of this one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who looks at the page."""

    client: Client
    owner: bool
    """Whether they see what concerns all clients: account, plan, keys, settings."""


class Opened(NamedTuple):
    """The secrets of a new session."""

    cookie: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    token: bytes
    visitor: Visitor
    ends_at: float


class Sessions:
    """Codes and sessions, in memory: they end with the gateway. The oldest are evicted."""

    def __init__(
        self, *, current: Callable[[Client], Client | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`current` returns a client with the limits that it has now; None if it has no key any more."""
        self._current = current
        self._clock = clock
        self._codes: OrderedDict[bytes, float] = OrderedDict()
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def new_code(self) -> str:
        """Return a code that opens one session."""
        code = secrets.token_urlsafe(SECRET_BYTES)
        self._codes[_digest(code)] = self._clock() + CODE_LIFE_S
        if len(self._codes) > MOST_CODES:
            self._codes.popitem(last=False)
        return code

    def redeem(self, code: str) -> bool:
        """Tell whether a code is valid; it is not any more."""
        ends_at = self._codes.pop(_digest(code), None)
        return ends_at is not None and self._clock() < ends_at

    def open(self, visitor: Visitor) -> Opened:
        """Begin a session."""
        opened = Opened(secrets.token_urlsafe(SECRET_BYTES), secrets.token_urlsafe(SECRET_BYTES))
        ends_at = self._clock() + SESSION_LIFE_S
        self._sessions[_digest(opened.cookie)] = _Session(token=_digest(opened.token), visitor=visitor, ends_at=ends_at)
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return opened

    def end_of(self, clients: frozenset[str]) -> None:
        """End the sessions of clients one of whose keys, maybe that of the session, is not accepted any more."""
        for digest in [digest for digest, each in self._sessions.items() if each.visitor.client.id in clients]:
            del self._sessions[digest]

    def close(self, scope: Scope) -> None:
        """End the session of a request."""
        if (cookie := _cookie(scope)) is not None:
            self._sessions.pop(_digest(cookie), None)

    def visitor(self, scope: Scope) -> Visitor:
        """Return who makes a request; raises `InvalidApiKey` or `Forbidden`."""
        # Browsers tell it of themselves, and no page can change it. Other clients leave it out.
        if header_value(scope, b"sec-fetch-site") not in (None, b"same-origin"):
            raise Forbidden(ELSEWHERE)
        cookie, token = _cookie(scope), header_value(scope, PAGE_TOKEN) or b""
        session = None if cookie is None else self._sessions.get(_digest(cookie))
        if session is None or not hmac.compare_digest(session.token, _digest(token.decode("latin-1"))):
            raise InvalidApiKey(ENDED)
        client = self._current(session.visitor.client)
        if client is None or self._clock() >= session.ends_at:
            self.close(scope)
            raise InvalidApiKey(ENDED)
        # The code's session sees all, also where its key is one of several.
        return replace(session.visitor, client=structs.replace(client, admin=client.admin or session.visitor.owner))


def cookie_name(scope: Scope) -> str:
    """Return the cookie's name: several gateways on a host share its cookies, and differ by their ports."""
    _, port = scope.get("server") or ("", None)
    return f"turnbridge_{port or 'page'}"


def _cookie(scope: Scope) -> str | None:
    try:
        cookies = SimpleCookie((header_value(scope, b"cookie") or b"").decode("latin-1"))
    except CookieError:
        return None
    found = cookies.get(cookie_name(scope))
    return None if found is None else found.value


def _digest(secret: str) -> bytes:
    """Return what is kept of a secret: looking it up by its digest tells nothing by the time that it takes."""
    return hashlib.sha256(secret.encode()).digest()
