"""The gateway's own key: every route asks for it, except those that say whether the gateway is well.

Because of the key, a web page that reaches the gateway under a false host name (DNS rebinding) gets nothing
but 401 from them, so the Host header is not checked.
"""

import hmac
from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.turn.errors import InvalidApiKey
from turnbridge.web.headers import header_value

MASKABLE_LENGTH = 12
"""Of a key at least this long, the five characters that `masked` shows say nothing useful about the rest."""

HOW_TO_GIVE_IT = (
    "Send the header 'Authorization: Bearer YOUR_KEY' (in OpenAI's SDKs: api_key or OPENAI_API_KEY), "
    "where YOUR_KEY is the PROXY_API_KEY of this server."
)


class RequireKey:
    """Lets a request pass when it brings a key or asks for one of `open_paths`."""

    def __init__(self, app: ASGIApp, *, api_key: str, open_paths: Collection[str]) -> None:
        self._app = app
        # Several clients may have a key each.
        self._keys = [key.strip().encode() for key in api_key.split(",") if key.strip()]
        if not self._keys:
            raise ValueError("The API key is empty: anyone could use the gateway.")
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or raise `InvalidApiKey`."""
        if scope["path"] not in self._open_paths:
            given = bearer_token(scope)
            if given is None:
                raise InvalidApiKey(f"You didn't provide an API key. {HOW_TO_GIVE_IT}")
            # Every key is compared, so that the time tells nothing.
            if sum(hmac.compare_digest(given, key) for key in self._keys) == 0:
                raise InvalidApiKey(f"Incorrect API key provided: {masked(given)}. {HOW_TO_GIVE_IT}")
        await self._app(scope, receive, send)


def client_of(scope: Scope) -> str:
    """Return whom a request counts for: its key."""
    return (bearer_token(scope) or b"").decode("latin-1")


def bearer_token(scope: Scope) -> bytes | None:
    """Return what follows `Bearer` in the request's Authorization header, if anything does."""
    header = header_value(scope, b"authorization")
    if header is None:
        return None
    scheme, _, token = header.strip().partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def masked(key: bytes) -> str:
    """Return enough of a wrong key for its owner to recognise it, and no more."""
    text = key.decode(errors="replace")
    return f"{text[:3]}***{text[-2:]}" if len(text) >= MASKABLE_LENGTH else "***"
