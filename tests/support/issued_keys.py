"""Keys in a store that a gateway uses, as `turnbridge keys` makes them, and what a gateway says to them."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.support.gateway import Bridge
from tests.support.waiting import until
from turnbridge.engine.keys import create_key, revoke_key, rotate_key
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.clients import ClientLimits

T = TypeVar("T")


async def in_store(url: str, work: Callable[[SqlStore], Awaitable[T]]) -> T:
    """Return the result of work on a store, by a connection of its own."""
    store = await open_store(url)
    try:
        return await work(store)
    finally:
        await store.aclose()


async def issued(
    url: str, name: str, limits: ClientLimits | None = None, *, admin: bool = False, expires_at: int | None = None
) -> str:
    """Return a new key."""
    chosen, now = limits or ClientLimits(), int(time.time())
    made = await in_store(
        url, lambda store: create_key(store, name, limits=chosen, admin=admin, expires_at=expires_at, now=now)
    )
    return made.key


async def rotated(url: str, name: str) -> str:
    """Return the key in place of an old one."""
    now = int(time.time())
    return (await in_store(url, lambda store: rotate_key(store, name, expires_at=None, now=now))).key


async def revoked(url: str, name: str) -> None:
    """Revoke a key."""
    await in_store(url, lambda store: revoke_key(store, name, now=int(time.time())))


async def known(bridge: Bridge, *keys: str) -> None:
    """Wait until a gateway accepts these keys."""
    await until(lambda: all(bridge.gateway.keyring.find(key.encode()) is not None for key in keys))


async def unknown(bridge: Bridge, key: str) -> None:
    """Wait until a gateway accepts a key no more."""
    await until(lambda: bridge.gateway.keyring.find(key.encode()) is None)


def bearer(key: str) -> dict[str, str]:
    """Return the header with a key."""
    return {"authorization": f"Bearer {key}"}
