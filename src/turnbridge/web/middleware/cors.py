"""CORS: which web pages and desktop apps may call the gateway from a browser engine."""

import re
from collections.abc import Iterable
from typing import NoReturn

import structlog
from starlette.types import Scope

from turnbridge.turn.errors import Forbidden
from turnbridge.web.http import header_value, wants_websocket
from turnbridge.web.middleware.observability import RequestContext, context_of

# Obsidian on the desktop, and Capacitor apps such as Obsidian on a phone.
WELL_KNOWN_ORIGINS = frozenset({b"app://obsidian.md", b"capacitor://localhost"})
LOOPBACK_ORIGIN = re.compile(rb"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?")

# A header name of RFC 9110; anything else must not be echoed into a header.
HEADER_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
ALLOWED_METHODS = b"GET, POST, DELETE, OPTIONS, HEAD"

# How long a browser may cache a preflight; Safari's maximum.
PREFLIGHT_SECONDS = b"600"
PREFLIGHT_VARY = b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"

ALWAYS_EXPOSED = ("x-request-id", "retry-after", "server-timing")

# The error and the log contain the origin, so that it can be copied into the setting; real ones are far shorter.
ORIGIN_ECHO_LIMIT = 200


class Origins:
    """Which origins may call.

    Loopback origins may, and two apps whose origin is the same for everybody; the operator allows others. Requests
    without an Origin header do not come from a page, and pass.
    """

    def __init__(self, origins: Iterable[str], exposed_headers: Iterable[str]) -> None:
        given = {origin.strip().rstrip("/").lower().encode() for origin in origins}
        self._any_origin = b"*" in given
        self._origins = WELL_KNOWN_ORIGINS | given - {b"*"}
        self._exposed = ", ".join(dict.fromkeys((*ALWAYS_EXPOSED, *exposed_headers))).encode()
        self._log = structlog.get_logger()

    def check(self, scope: Scope) -> list[tuple[bytes, bytes]] | None:
        """Add the CORS headers of the answer; return the further ones of a preflight, if the request is one."""
        context = context_of(scope)
        origin = context.headers.get(b"origin")
        if origin is None:
            return None
        granted = self._granted(origin)
        preflight = scope["method"] == "OPTIONS" and header_value(scope, b"access-control-request-method") is not None
        if not granted and (preflight or wants_websocket(scope)):
            self._refuse(origin, context)
        if not preflight:
            exposed = [(b"access-control-expose-headers", self._exposed)] if granted else []
            context.response_headers += [(b"vary", b"Origin"), *granted, *exposed]
            return None
        context.response_headers += [(b"vary", PREFLIGHT_VARY), *granted]
        return _preflight_headers(scope)

    def _refuse(self, origin: bytes, context: RequestContext) -> NoReturn:
        """Refuse an origin: browsers keep a page from other answers, but let it use any WebSocket."""
        context.response_headers.append((b"vary", PREFLIGHT_VARY))
        shown = origin[:ORIGIN_ECHO_LIMIT].decode("latin-1")
        self._log.info("origin_refused", origin=shown, request_id=context.request_id)
        raise Forbidden(
            f"The origin {shown} may not call this server from a browser. "
            "Add it to PROXY_CORS_ALLOWED_ORIGINS to allow it."
        )

    def _granted(self, origin: bytes) -> list[tuple[bytes, bytes]]:
        if origin in self._origins or LOOPBACK_ORIGIN.fullmatch(origin):
            return [(b"access-control-allow-origin", origin), (b"access-control-allow-credentials", b"true")]
        # No credentials with "*": a page that was not allowed by name must not use the browser's cookies.
        return [(b"access-control-allow-origin", b"*")] if self._any_origin else []


def _preflight_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    headers = [(b"access-control-allow-methods", ALLOWED_METHODS), (b"access-control-max-age", PREFLIGHT_SECONDS)]
    asked = header_value(scope, b"access-control-request-headers") or b""
    names = [name for part in asked.split(b",") if HEADER_TOKEN.fullmatch(name := part.strip())]
    if names:
        headers.append((b"access-control-allow-headers", b", ".join(names)))
    if header_value(scope, b"access-control-request-private-network") == b"true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers
