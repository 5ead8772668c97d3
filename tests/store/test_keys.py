"""Keys in the store, on both databases."""

import asyncio

import pytest

from turnbridge.engine.keys import create_key, find_key, key_digest, revoke_key, rotate_key
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.clients import NAME_RULE, NO_LIMITS, ClientLimits
from turnbridge.turn.errors import InvalidRequest, NotFound
from turnbridge.turn.items import replace

pytestmark = pytest.mark.anyio

LIMITS = ClientLimits(models=("gpt-5.5", "fast"), rate="60/minute", turns=4)


async def test_a_key_is_stored_as_its_digest_only(store: SqlStore) -> None:
    key, record = await create_key(store, "alice", limits=LIMITS, admin=True, expires_at=99, now=7)

    version, (found,) = await store.keys()

    assert found == record
    assert (found.limits, found.admin, found.created_at, found.expires_at) == (LIMITS, True, 7, 99)
    assert found.digest == key_digest(key.encode()).hex()
    assert key not in repr(found)
    assert version == await store.keys_version()


async def test_every_change_has_another_version(store: SqlStore) -> None:
    versions = [await store.keys_version()]
    await create_key(store, "alice", limits=NO_LIMITS, admin=False, expires_at=None, now=1)
    versions.append(await store.keys_version())
    await rotate_key(store, "alice", expires_at=None, now=2)
    versions.append(await store.keys_version())
    await revoke_key(store, "alice", now=3)
    versions.append(await store.keys_version())
    await store.delete_key("alice")
    versions.append(await store.keys_version())

    assert versions == sorted(set(versions))
    assert (await store.keys())[1] == []


async def test_a_rotated_key_has_the_client_and_the_limits_of_the_old_one(store: SqlStore) -> None:
    old_key, old = await create_key(store, "alice", limits=LIMITS, admin=True, expires_at=50, now=1)

    new_key, new = await rotate_key(store, "alice", expires_at=None, now=2)

    assert new_key != old_key
    assert new == replace(old, digest=new.digest, hint=new_key[-4:], rotated_at=2)
    assert await find_key(store, "alice") == new


async def test_rotation_brings_back_a_key_that_was_revoked_or_has_expired(store: SqlStore) -> None:
    await create_key(store, "alice", limits=NO_LIMITS, admin=False, expires_at=50, now=1)
    revoked = await revoke_key(store, "alice", now=2)
    assert (revoked.ended(3), revoked.revoked_at) == ("revoked", 2)
    assert (await revoke_key(store, "alice", now=9)).revoked_at == 2

    _, back = await rotate_key(store, "alice", expires_at=None, now=60)

    assert (back.ended(10**10), back.expires_at) == (None, None)


async def test_a_name_is_given_once(url: str, store: SqlStore) -> None:
    other = await open_store(url)
    try:
        made = await asyncio.gather(
            *(
                create_key(each, "alice", limits=NO_LIMITS, admin=False, expires_at=None, now=1)
                for each in (store, other, store, other)
            ),
            return_exceptions=True,
        )
    finally:
        await other.aclose()

    refused = [each for each in made if isinstance(each, InvalidRequest)]
    assert [error.message for error in refused] == ["There is a key `alice` already."] * 3
    assert len((await store.keys())[1]) == 1


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "-a", "key-1", "Key-1", "a\n", "a\x00", "\x1b[31m", "é", "a" * 65, "a" * 1_000_000, "../x"]
)
async def test_a_client_has_a_name_that_is_safe_everywhere(store: SqlStore, name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await create_key(store, name, limits=NO_LIMITS, admin=False, expires_at=None, now=1)

    assert refused.value.message == NAME_RULE


async def test_what_is_not_there_cannot_be_changed(store: SqlStore) -> None:
    with pytest.raises(NotFound):
        await revoke_key(store, "nobody", now=1)
    with pytest.raises(NotFound):
        await store.delete_key("nobody")
