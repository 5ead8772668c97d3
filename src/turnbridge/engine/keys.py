"""Making, rotating and revoking the keys of clients. A key itself is returned once, and stored nowhere.

Its digest is a plain SHA-256: keys are 192 random bits, which cannot be guessed, and a slow hash would slow down
every request (docs/decisions/0028-keys-and-clients.md).
"""

import hashlib
import secrets
from typing import NamedTuple

from turnbridge.engine.records import KeyStore
from turnbridge.turn.clients import ClientLimits, KeyRecord, check_name
from turnbridge.turn.errors import NotFound
from turnbridge.turn.items import replace

KEY_PREFIX = "sk-turnbridge-"
"""Redaction, and scanners for secrets, know keys by their beginning."""
KEY_BYTES = 24
HINT_CHARACTERS = 4
CLIENT_BYTES = 16


class NewKey(NamedTuple):
    """A key as its user needs it, and its record."""

    key: str
    record: KeyRecord


def new_key() -> str:
    """Return a fresh key."""
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def key_digest(key: bytes) -> bytes:
    """Return what is kept of a key."""
    return hashlib.sha256(key).digest()


async def create_key(
    store: KeyStore, name: str, *, limits: ClientLimits, admin: bool, expires_at: int | None, now: int
) -> NewKey:
    """Add a client with its key; raises `InvalidRequest` if it cannot have this name."""
    check_name(name)
    key = new_key()
    record = KeyRecord(
        name=name,
        client=f"client_{secrets.token_hex(CLIENT_BYTES)}",
        digest=key_digest(key.encode()).hex(),
        hint=key[-HINT_CHARACTERS:],
        admin=admin,
        limits=limits,
        created_at=now,
        expires_at=expires_at,
    )
    await store.add_key(record)
    return NewKey(key, record)


async def find_key(store: KeyStore, name: str) -> KeyRecord:
    """Return the client of this name; raises `NotFound`."""
    _, records = await store.keys()
    found = next((record for record in records if record.name == name), None)
    if found is None:
        raise NotFound(f"There is no key `{name}`.", param="name")
    return found


async def rotate_key(store: KeyStore, name: str, *, expires_at: int | None, now: int) -> NewKey:
    """Give a client another key in place of its old one, also if that was revoked or has expired.

    A key that has expired needs a new `expires_at`, if it is to expire again.
    """
    key, old = new_key(), await find_key(store, name)
    if expires_at is None and old.ended(now) is None:
        expires_at = old.expires_at
    record = replace(
        old,
        digest=key_digest(key.encode()).hex(),
        hint=key[-HINT_CHARACTERS:],
        rotated_at=now,
        expires_at=expires_at,
        revoked_at=None,
    )
    await store.change_key(record)
    return NewKey(key, record)


async def revoke_key(store: KeyStore, name: str, *, now: int) -> KeyRecord:
    """Let a client's key be accepted no more; its data stay."""
    old = await find_key(store, name)
    record = old if old.revoked_at is not None else replace(old, revoked_at=now)
    await store.change_key(record)
    return record
