"""CORS: which web pages and desktop apps may call the gateway from a browser engine.

Loopback origins may, and two apps whose origin is the same for everybody; the operator allows others. Requests without
an Origin header do not come from a page, and pass.
"""

import re
from collections.abc import Iterable

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.turn.errors import Forbidden
from turnbridge.web.http import header_value
from turnbridge.web.middleware.access_log import context_of

log = structlog.get_logger(__name__)

# Obsidian on the desktop, and Capacitor apps such as Obsidian on a phone.
WELL_KNOWN_ORIGINS = frozenset({b"app://obsidian.md", b"capacitor://localhost"})
LOOPBACK_ORIGIN = re.compile(rb"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?")

# A header name of RFC 9110; anything else must not be echoed into a header.
HEADER_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
ALLOWED_METHODS = b"GET, POST, DELETE, OPTIONS, HEAD"

# How long a browser may cache a preflight; Safari's maximum.
PREFLIGHT_SECONDS = b"600"
PREFLIGHT_VARY = b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"

ALWAYS_EXPOSED = ("x-request-id", "retry-after")

# The error and the log contain the origin, so that it can be copied into the setting; real ones are far shorter.
ORIGIN_ECHO_LIMIT = 200


class AllowOrigins:
    """Answers preflights, and adds the CORS headers of allowed origins to responses."""

    def __init__(self, app: ASGIApp, *, origins: Iterable[str], exposed_headers: Iterable[str]) -> None:
        given = {origin.strip().rstrip("/").lower().encode() for origin in origins}
        self._app = app
        self._any_origin = b"*" in given
        self._origins = WELL_KNOWN_ORIGINS | given - {b"*"}
        self._exposed = ", ".join(dict.fromkeys((*ALWAYS_EXPOSED, *exposed_headers))).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = header_value(scope, b"origin")
        if origin is None:
            await self._app(scope, receive, send)
            return
        granted = self._granted(origin)
        headers = context_of(scope).response_headers
        wanted_method = header_value(scope, b"access-control-request-method")
        if scope["method"] == "OPTIONS" and wanted_method is not None:
            headers.append((b"vary", PREFLIGHT_VARY))
            if not granted:
                shown = origin[:ORIGIN_ECHO_LIMIT].decode("latin-1")
                log.info("origin_refused", origin=shown, request_id=context_of(scope).request_id)
                raise Forbidden(
                    f"The origin {shown} may not call this server from a browser. "
                    "Add it to PROXY_CORS_ALLOWED_ORIGINS to allow it."
                )
            headers.extend(granted)
            await send({"type": "http.response.start", "status": 204, "headers": _preflight_headers(scope)})
            await send({"type": "http.response.body", "body": b""})
            return
        headers.append((b"vary", b"Origin"))
        if granted:
            headers.extend(granted)
            headers.append((b"access-control-expose-headers", self._exposed))
        await self._app(scope, receive, send)

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
