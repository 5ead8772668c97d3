"""Clients, their keys and their limits.

A client owns what it stores. Its key may change, and its data stay its own. Of a key only a digest is kept.
"""

import re

import msgspec

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.usage import TokenLimit

# A name stands in headers, log lines and labels of metrics.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
# The names of the clients whose keys are settings.
RESERVED_PREFIX = "key-"
NAME_RULE = (
    "A name has 1 to 64 letters, digits, dots, dashes, underscores or @. It begins with a letter or digit, "
    f"and not with `{RESERVED_PREFIX}`."
)
# The directory of an account has its name; on some systems, letters of both cases are the same there.
ACCOUNT_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")
ACCOUNT_RULE = (
    "A name has 1 to 64 small letters, digits, dots, dashes, underscores or @. It begins with a letter or digit."
)
DEFAULT_ACCOUNT = "default"
"""How people name the account of the user's own Codex home."""
MOST_KEYS = 10_000
"""All of them are in the memory of every gateway, some 1 KB each."""


class ClientLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one client may do; None is no limit of its own."""

    models: tuple[str, ...] | None = None
    """Names of models, as clients write them."""
    rate: str | None = None
    """Requests, in the words of PROXY_RATE_LIMIT, in place of that setting."""
    turns: int | None = None
    """Turns at once, running or queued, in place of PROXY_KEY_MAX_TURNS."""
    tokens: tuple[TokenLimit, ...] = ()
    account: str | None = None
    """The Codex account that its turns run on, for as long as it lives; None is the default one."""


NO_LIMITS = ClientLimits()


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request."""

    id: str
    """Under which its data are stored and its limits counted."""
    name: str
    """As logs, metrics and usage show it."""
    admin: bool = False
    """Whether it may see the figures of all clients."""
    limits: ClientLimits = NO_LIMITS


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A client in the store, and its key."""

    name: str
    client: str
    """The client's id."""
    digest: str
    hint: str
    """The last characters of the key, by which people tell keys apart."""
    admin: bool
    limits: ClientLimits
    created_at: int
    rotated_at: int | None = None
    expires_at: int | None = None
    revoked_at: int | None = None

    def ended(self, now: float) -> str | None:
        """Return why the key is not accepted any more: `revoked` or `expired`; None if it is accepted."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else None

    def as_client(self) -> Client:
        """Return whom requests with this key are of."""
        return Client(id=self.client, name=self.name, admin=self.admin, limits=self.limits)


def check_name(name: str) -> None:
    """Raise `InvalidRequest` if a client cannot have this name."""
    if NAME.fullmatch(name) is None or name.lower().startswith(RESERVED_PREFIX):
        raise InvalidRequest(NAME_RULE, param="name")
