"""The keys that are accepted now."""

import asyncio
import timeit
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from tests.support.waiting import until
from turnbridge.engine.keys import key_digest
from turnbridge.turn.clients import NO_LIMITS, KeyRecord
from turnbridge.turn.errors import BackendUnavailable
from turnbridge.turn.items import replace
from turnbridge.web.middleware.keyring import Keyring

pytestmark = pytest.mark.anyio


class Store:
    """Keys in memory, and how often they were read."""

    def __init__(self, *records: KeyRecord) -> None:
        self.records: Sequence[KeyRecord] = records
        self.version = 1
        self.reads = 0
        self.away = False

    def change(self, *records: KeyRecord) -> None:
        self.records, self.version = records, self.version + 1

    async def keys_version(self) -> int:
        if self.away:
            raise BackendUnavailable("away")
        return self.version

    async def keys(self) -> tuple[int, Sequence[KeyRecord]]:
        self.reads += 1
        return self.version, self.records

    async def add_key(self, record: KeyRecord) -> None:
        raise NotImplementedError

    async def change_key(self, record: KeyRecord) -> None:
        raise NotImplementedError

    async def delete_key(self, name: str) -> None:
        raise NotImplementedError


def record(name: str, *, key: bytes | None = None, expires_at: int | None = None) -> KeyRecord:
    digest = key_digest(name.encode() if key is None else key).hex()
    return KeyRecord(
        name=name,
        client=f"id-{name}",
        digest=digest,
        hint="",
        admin=False,
        limits=NO_LIMITS,
        created_at=0,
        expires_at=expires_at,
    )


def found(keyring: Keyring, key: bytes) -> str | None:
    client = keyring.find(key)
    return None if client is None else client.name


async def test_a_change_is_read_once() -> None:
    store = Store(record("alice"))
    keyring = Keyring("own", store)
    assert found(keyring, b"alice") is None

    for _ in range(5):
        await keyring.renew()

    assert (found(keyring, b"alice"), store.reads, len(keyring)) == ("alice", 1, 2)
    store.change(record("alice"), record("bob"))
    await keyring.renew()
    assert (found(keyring, b"bob"), store.reads, len(keyring)) == ("bob", 2, 3)


async def test_what_ended_is_told_to_those_who_run_it() -> None:
    alice, bob = record("alice"), record("bob")
    store = Store(alice, bob)
    keyring = Keyring("own", store)
    await keyring.renew()
    told: list[tuple[frozenset[str], frozenset[str]]] = []
    keyring.on_change.append(lambda lost: told.append((lost, keyring.barred)))

    store.change(replace(alice, revoked_at=1), replace(bob, digest=key_digest(b"other").hex()))
    await keyring.renew()

    assert told == [(frozenset({"id-alice", "id-bob"}), frozenset({"id-alice"}))]
    assert (keyring.ended(b"alice"), keyring.ended(b"bob"), found(keyring, b"other")) == ("revoked", None, "bob")

    store.change(replace(alice, digest=key_digest(b"again").hex()))
    await keyring.renew()
    assert told[1:] == [(frozenset({"id-bob"}), frozenset({"id-bob"}))]

    store.change(record("carol"))
    await keyring.renew()
    store.change()
    await keyring.renew()
    assert keyring.barred == {"id-alice", "id-bob", "id-carol"}, "nobody is forgotten for another"


async def test_a_key_expires_by_the_clock_also_without_a_store() -> None:
    now = [100.0]
    store = Store(record("alice", expires_at=200))
    keyring = Keyring("own", store, now=lambda: now[0])
    await keyring.renew()
    store.away = True
    now[0] = 199.9
    with pytest.raises(BackendUnavailable):
        await keyring.renew()
    assert found(keyring, b"alice") == "alice"

    now[0] = 200.0
    with pytest.raises(BackendUnavailable):
        await keyring.renew()

    assert (found(keyring, b"alice"), keyring.ended(b"alice")) == (None, "expired")
    assert keyring.barred == {"id-alice"}
    changes: list[object] = []
    keyring.on_change.append(changes.append)
    with pytest.raises(BackendUnavailable):
        await keyring.renew()
    assert changes == [], "a key expires once"


async def test_known_keys_are_accepted_while_the_store_is_away() -> None:
    store = Store(record("alice"))
    keyring = Keyring("own", store)
    keyring.poll_s = 0.001
    await keyring.load()
    with capture_logs() as logs:
        watching = asyncio.create_task(keyring.watch())
        store.away = True
        await until(lambda: bool(logs))
        assert found(keyring, b"alice") == "alice"
        store.away = False
        store.change()
        await until(lambda: found(keyring, b"alice") is None)
        watching.cancel()
        await asyncio.wait((watching,))

    assert [(line["event"], line.get("consequence")) for line in logs] == [
        ("keys_not_renewed", "known keys are still accepted"),
        ("keys_renewed", None),
    ]


async def test_a_store_that_cannot_be_read_at_the_start_does_not_make_keys_wrong() -> None:
    store = Store()
    store.away = True
    keyring = Keyring("own", store)
    with capture_logs() as logs:
        await keyring.load()

    assert [line["event"] for line in logs] == ["keys_not_read"]
    assert keyring.may_know_later(b"sk-turnbridge-abc")
    assert not keyring.may_know_later(b"sk-other")
    store.away = False
    await keyring.load()
    assert not keyring.may_know_later(b"sk-turnbridge-abc")


def test_the_only_key_of_the_settings_is_the_owners() -> None:
    def admins(keyring: Keyring, *keys: bytes) -> list[bool]:
        return [client.admin for key in keys if (client := keyring.find(key)) is not None]

    assert admins(Keyring("own"), b"own") == [True]
    assert admins(Keyring("own, other"), b"own", b"other") == [False, False]
    with pytest.raises(ValueError, match="empty"):
        Keyring(" , ")


def test_a_change_is_noticed_in_less_than_a_second() -> None:
    assert Keyring.poll_s <= 0.5


async def test_a_thousand_keys_take_no_longer_than_one() -> None:
    few, many = Keyring("own"), Keyring("own", Store(*(record(f"n{number}") for number in range(1000))))
    await many.renew()
    assert len(many) == 1001

    def best(keyring: Keyring) -> float:
        return min(timeit.repeat(lambda: keyring.find(b"own"), number=2000, repeat=15))

    # To compare all of them one by one takes a hundred times as long.
    assert best(many) < 5 * best(few)
