"""The gateway's own keys, and throttling of those who guess them.

Every route asks for a key, except those that say whether the gateway is well. A request's client is resolved here,
once; nothing after it holds a key.

No right depends on where a request comes from: behind a reverse proxy on this machine, everybody seems to be here.

Because of the key, a web page that reaches the gateway under a false host name (DNS rebinding) gets nothing but 401.
The open routes ask for the key too when they are reached under a name that is not the gateway's.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from starlette.types import Scope

from turnbridge.turn.clients import Client
from turnbridge.turn.errors import BackendUnavailable, Forbidden, InvalidApiKey, RateLimited
from turnbridge.web.http import header_value, is_loopback, names_us, network_of
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.observability import CONTEXT_KEY, context_of

MASKABLE_LENGTH = 12
"""Of a key at least this long, the five characters that `masked` shows say nothing useful about the rest."""

HOW_TO_GIVE_IT = (
    "Send the header 'Authorization: Bearer YOUR_KEY' (in OpenAI's SDKs: api_key or OPENAI_API_KEY), "
    "where YOUR_KEY is {setting}."
)

ANY_KEY = "a key of this server: PROXY_API_KEY, or one that its operator made by `turnbridge keys create`"

HOST_ECHO_LIMIT = 100
"""The refusal repeats the host, since a proxy in between may have set it."""

# A misconfigured client sends a few before it is noticed.
MOST_WRONG_KEYS = 20
# How long wrong keys count, and so the longest time for which a peer is throttled.
WINDOW_S = 60.0
# Peers with wrong keys, and pairs of a peer and a valid key; the oldest are evicted.
MOST_REMEMBERED = 4096
KEYS_UNREAD = "The store, which has the keys of clients, cannot be read yet. Try again later."
# How often an opening of the store is tried.
STORE_RETRY_S = 2.0
ENDED = {"revoked": "This API key was revoked", "expired": "This API key has expired"}
FOR_OPERATORS = "This is for the keys of the operator: those of PROXY_API_KEY, or made by `keys create --admin`."
TOO_MANY = "Too many wrong keys came from this address. Check the key, and try again later."


@dataclass(slots=True)
class _Guesses:
    ends_at: float
    count: int = 0


class KeyBrake:
    """Counts wrong keys per peer.

    A valid key that this peer has used before is always accepted, so that clients behind the same address are not
    affected. From loopback every valid key is, since a reverse proxy there serves all clients, new ones included.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, _Guesses] = OrderedDict()
        self._right: OrderedDict[tuple[str, str], None] = OrderedDict()

    def judge(self, address: str, client: str | None) -> None:
        """Count a peer's key, which is wrong if `client` is None; raises `RateLimited` after too many wrong ones."""
        network = network_of(address)
        trusted = client is not None and (is_loopback(address) or (network, client) in self._right)
        guesses = self._wrong.get(network)
        if guesses is not None and guesses.count >= MOST_WRONG_KEYS and not trusted:
            left = guesses.ends_at - self._clock()
            if left > 0:
                # Also for a valid key: otherwise this would answer the guess.
                raise RateLimited(TOO_MANY, code="too_many_wrong_keys", retry_after=left)
        if client is None:
            self._note_wrong(network)
        elif not is_loopback(address):
            self._note_right(network, client)

    def _note_right(self, network: str, client: str) -> None:
        self._right[network, client] = None
        self._right.move_to_end((network, client))
        if len(self._right) > MOST_REMEMBERED:
            self._right.popitem(last=False)

    def _note_wrong(self, network: str) -> None:
        now = self._clock()
        guesses = self._wrong.get(network)
        if guesses is None or guesses.ends_at <= now:
            self._wrong.pop(network, None)
            guesses = self._wrong[network] = _Guesses(ends_at=now + WINDOW_S)
        guesses.count += 1
        if len(self._wrong) > MOST_REMEMBERED:
            self._wrong.popitem(last=False)


class Keys:
    """The keys that are accepted, and the brake on guessing them."""

    def __init__(self, keyring: Keyring, *, setting: str = ANY_KEY) -> None:
        """`setting` says where the operator has them from."""
        self._keyring = keyring
        self._help = HOW_TO_GIVE_IT.format(setting=setting)
        self._brake = KeyBrake()

    def check(self, scope: Scope) -> Client:
        """Return the client whose key a request brings; raises `InvalidApiKey`, or `RateLimited`."""
        context = context_of(scope)
        given = context.dialect.key(scope)
        if given is None:
            raise InvalidApiKey(f"You didn't provide an API key. {self._help}")
        client = self._keyring.find(given)
        if client is None and self._keyring.may_know_later(given):
            # Not counted as a guess: keys of this form cannot be guessed.
            raise BackendUnavailable(KEYS_UNREAD, code="store_unavailable", retry_after=STORE_RETRY_S)
        ended = self._keyring.ended(given) if client is None else None
        if ended is not None:
            # Not a guess either: a program that still has it must not stop others behind its address.
            raise InvalidApiKey(f"{ENDED[ended]}: {masked(given)}. {self._help}")
        self._brake.judge(context.peer, None if client is None else client.name)
        if client is None:
            raise InvalidApiKey(f"Incorrect API key provided: {masked(given)}. {self._help}")
        return client

    def check_operator(self, scope: Scope) -> Client:
        """Return the client, unless its key was made for somebody who may not see the figures of others."""
        client = self.check(scope)
        if not client.admin and not self._keyring.is_from_settings(client):
            raise Forbidden(FOR_OPERATORS)
        return client


class Authentication:
    """Which keys a path asks for. An open one asks for none, if it is reached under a name that is the gateway's."""

    def __init__(
        self,
        keys: Keys,
        *,
        open_paths: Collection[str],
        other_checks: Mapping[str, Callable[[Scope], Client]],
        own_names: Collection[str],
        visitor: Callable[[Scope], Client] | None = None,
    ) -> None:
        """`other_checks` has paths with a rule of their own; `own_names` are the gateway's besides its addresses.

        `visitor` finds who makes a request of the page; it raises `InvalidApiKey` or `Forbidden`.
        """
        self._visitor = visitor
        self._keys = keys
        self._open_paths = frozenset(open_paths)
        self._other_checks = other_checks
        self._own_names = frozenset(name.lower() for name in own_names)

    def client(self, scope: Scope) -> Client | None:
        """Return whose key a request brings; None if it needs none. Raises `InvalidApiKey`, or `RateLimited`."""
        if self._visitor is not None and context_of(scope).from_page:
            return self._visitor(scope)
        path = scope["path"]
        if path not in self._open_paths:
            return self._other_checks.get(path, self._keys.check)(scope)
        try:
            return self._keys.check(scope)
        except (InvalidApiKey, RateLimited, BackendUnavailable):
            if names_us(scope, self._own_names):
                return None
        host = (header_value(scope, b"host") or b"")[:HOST_ECHO_LIMIT].decode("latin-1")
        raise InvalidApiKey(
            f"The host '{host}' is not a name of this server, which asks for the key then. "
            f"Use the server's address instead. Or: {HOW_TO_GIVE_IT.format(setting=ANY_KEY)}"
        )


def caller(scope: Scope) -> Client:
    """Return the client that makes a request."""
    client: Client | None = scope[CONTEXT_KEY].client
    if client is None:
        raise AssertionError("A route that knows clients asks for the key.")
    return client


def client_of(scope: Scope) -> str:
    """Return the id of the client that makes a request: whom it counts for, and whose data it sees."""
    return caller(scope).id


def masked(key: bytes) -> str:
    """Return enough of a wrong key for its owner to recognise it, and no more."""
    text = key.decode(errors="replace")
    return f"{text[:3]}***{text[-2:]}" if len(text) >= MASKABLE_LENGTH else "***"
