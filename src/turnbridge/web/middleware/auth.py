"""The gateway's own keys: every route asks for one, except those that say whether the gateway is well.

A request's client is resolved here, once; nothing after it holds a key.

No right depends on where a request comes from: behind a reverse proxy on this machine, everybody seems to be here.

Because of the key, a web page that reaches the gateway under a false host name (DNS rebinding) gets nothing but 401.
The open routes ask for the key too when they are reached under a name that is not the gateway's.
"""

import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.turn.errors import InvalidApiKey, RateLimited
from turnbridge.web.http import header_value
from turnbridge.web.middleware.access_log import Client, context_of
from turnbridge.web.middleware.key_throttle import KeyBrake
from turnbridge.web.server.peers import address_of, names_us

MASKABLE_LENGTH = 12
"""Of a key at least this long, the five characters that `masked` shows say nothing useful about the rest."""

HOW_TO_GIVE_IT = (
    "Send the header 'Authorization: Bearer YOUR_KEY' (in OpenAI's SDKs: api_key or OPENAI_API_KEY), "
    "where YOUR_KEY is the {setting} of this server."
)

NAME_DIGITS = 8
"""Of a key's digest, as logs show it: enough to tell clients apart, and of no use for finding the key."""

HOST_ECHO_LIMIT = 100
"""The refusal repeats the host, since a proxy in between may have set it."""


class Keys:
    """The keys that are accepted, each with the name of its client, and the brake on guessing them."""

    def __init__(self, keys: Iterable[str], *, setting: str = "PROXY_API_KEY") -> None:
        """`setting` is where the operator has chosen them."""
        self._clients = {key: client_with(key) for key in (given.strip().encode() for given in keys) if key}
        if not self._clients:
            raise ValueError("The API key is empty: anyone could use the gateway.")
        self._help = HOW_TO_GIVE_IT.format(setting=setting)
        self._brake = KeyBrake()

    def check(self, scope: Scope) -> Client:
        """Return the client whose key a request brings; raises `InvalidApiKey`, or `RateLimited`."""
        given = bearer_token(scope)
        if given is None:
            raise InvalidApiKey(f"You didn't provide an API key. {self._help}")
        client = self._judged(scope, given)
        if client is None:
            raise InvalidApiKey(f"Incorrect API key provided: {masked(given)}. {self._help}")
        return client

    def recognise(self, scope: Scope) -> Client | None:
        """Return the client whose key a request brings, if it brings one."""
        given = bearer_token(scope)
        try:
            return None if given is None else self._judged(scope, given)
        except RateLimited:
            return None

    def _judged(self, scope: Scope, given: bytes) -> Client | None:
        # Every key is compared, so that the time tells nothing.
        found = [client for key, client in self._clients.items() if hmac.compare_digest(given, key)]
        client = found[0] if found else None
        self._brake.judge(address_of(scope), None if client is None else client.name)
        return client


class RequireKey:
    """Lets a request pass when it brings a key, or asks for an open route under a name that is the gateway's."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str,
        open_paths: Collection[str],
        other_keys: Mapping[str, Keys] | None = None,
        own_names: Collection[str] = (),
    ) -> None:
        """`other_keys` says which paths ask for another key; `own_names` are the gateway's besides its addresses."""
        self._app = app
        # Several clients may have a key each.
        self._keys = Keys(api_key.split(","))
        self._open_paths = frozenset(open_paths)
        self._other_keys = other_keys or {}
        self._own_names = frozenset(name.lower() for name in own_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or raise `InvalidApiKey`."""
        path = scope["path"]
        if path in self._open_paths:
            context_of(scope).client = self._open(scope)
        else:
            context_of(scope).client = self._other_keys.get(path, self._keys).check(scope)
        await self._app(scope, receive, send)

    def _open(self, scope: Scope) -> Client | None:
        """Return whose key a request for an open route brings, if it brings one; others have to know our name."""
        client = self._keys.recognise(scope)
        if client is None and not names_us(scope, self._own_names):
            host = (header_value(scope, b"host") or b"")[:HOST_ECHO_LIMIT].decode("latin-1")
            raise InvalidApiKey(
                f"The host '{host}' is not a name of this server, which asks for the key then. "
                f"Use the server's address instead. Or: {HOW_TO_GIVE_IT.format(setting='PROXY_API_KEY')}"
            )
        return client


def client_with(key: bytes) -> Client:
    """Return the client that a key stands for. Neither of its names tells anything of the key."""
    return Client(
        id=hashlib.sha256(b"turnbridge owner\0" + key).hexdigest(),
        name=f"key-{hashlib.sha256(b'turnbridge client' + bytes(1) + key).hexdigest()[:NAME_DIGITS]}",
    )


def client_of(scope: Scope) -> str:
    """Return the id of the client that makes a request: whom it counts for, and whose data it sees."""
    client = context_of(scope).client
    if client is None:
        raise AssertionError("A route that knows clients asks for the key.")
    return client.id


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
