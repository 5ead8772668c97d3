"""The keys that are accepted now: those of the settings, and a snapshot of those in the store.

A request looks its key up in memory. The snapshot is renewed beside the requests: the store has a number that changes
with its keys, and is asked for it several times a second. While the store is away, the snapshot stays as it is
(docs/decisions/0028-keys-and-clients.md).
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from turnbridge.engine.keys import KEY_PREFIX, key_digest
from turnbridge.engine.records import KeyStore
from turnbridge.logs.redaction import OwnKeys
from turnbridge.turn.clients import RESERVED_PREFIX, Client, KeyRecord
from turnbridge.turn.errors import GatewayError

NAME_DIGITS = 8
"""Of a key's digest, as logs show it: enough to tell clients apart, and of no use for finding the key."""

log = structlog.get_logger(__name__)


class Keyring:
    """Finds the client of a key."""

    # A revoked key has to stop within a second, on a busy machine too.
    poll_s = 0.4

    def __init__(self, keys: str, store: KeyStore | None = None, *, now: Callable[[], float] = time.time) -> None:
        """`keys` are those of the settings, separated by commas. A single one is the owner's."""
        own = [key.strip() for key in keys.split(",") if key.strip()]
        if not own:
            raise ValueError("The API key is empty: anyone could use the gateway.")
        self.secrets = OwnKeys(own)
        """Finds the keys of the settings in texts; those of the store are known by their looks."""
        # The holder of one of several keys may not see the usage of the others.
        alone = len(set(own)) == 1
        self._own = {key_digest(key.encode()): client_with(key.encode(), admin=alone) for key in own}
        self._own_ids = frozenset(client.id for client in self._own.values())
        self._store = store
        self._now = now
        self._version: int | None = None
        self._records: Sequence[KeyRecord] = ()
        self._by_name: Mapping[str, KeyRecord] = {}
        self._clients: Mapping[bytes, Client] = self._own
        self._ended: Mapping[bytes, str] = {}
        self._next_expiry = math.inf
        self.barred: frozenset[str] = frozenset()
        """The ids of clients that had a key while this gateway ran, and have none any more."""
        self.on_change: list[Callable[[frozenset[str]], None]] = []
        """Called after a change, with the ids of clients one of whose keys is not accepted any more."""

    def __len__(self) -> int:
        """Return how many keys are accepted."""
        return len(self._clients)

    def clients(self) -> Iterable[Client]:
        """Return the clients whose keys are accepted."""
        return self._clients.values()

    def find(self, key: bytes) -> Client | None:
        """Return the client of a key. Its digest is looked up, so the time tells nothing of other keys."""
        return self._clients.get(hashlib.sha256(key).digest())

    def first(self) -> Client:
        """Return the client of the first key of the settings: whoever started the gateway has it."""
        return next(iter(self._own.values()))

    def current(self, client: Client) -> Client | None:
        """Return a client as it is now; None if it has no key any more."""
        return next((each for each in self._clients.values() if each.id == client.id), None)

    def named(self, name: str) -> KeyRecord | None:
        """Return a key of the store by its name, also one that is not accepted any more."""
        return self._by_name.get(name)

    def ended(self, key: bytes) -> str | None:
        """Return why a key that was found nowhere is not accepted any more; None if there never was such a key."""
        return self._ended.get(key_digest(key))

    def may_know_later(self, key: bytes) -> bool:
        """Tell whether a key that was found nowhere may be in a store that could not be read yet."""
        return self._store is not None and self._version is None and key.startswith(KEY_PREFIX.encode())

    def is_from_settings(self, client: Client) -> bool:
        """Tell whether a client's key is one of the settings."""
        return client.id in self._own_ids

    async def load(self) -> None:
        """Read the store for the first time; a store that fails is only logged."""
        try:
            await self.renew()
        except GatewayError as error:
            log.warning("keys_not_read", reason=error.message, consequence="only keys of the settings are accepted")

    async def watch(self) -> None:
        """Follow the changes in the store, until cancelled."""
        failing = False
        while self._store is not None:
            await asyncio.sleep(self.poll_s)
            try:
                await self.renew()
            except GatewayError as error:
                # A store may be away for hours: one warning is enough.
                if not failing:
                    log.warning("keys_not_renewed", reason=error.message, consequence="known keys are still accepted")
                failing = True
            else:
                if failing:
                    log.info("keys_renewed")
                failing = False

    async def renew(self) -> None:
        """Read the store if its keys have changed; raises `GatewayError` if it cannot be read."""
        if self._next_expiry <= self._now():
            self._accept(self._records)
        if self._store is None or await self._store.keys_version() == self._version:
            return
        self._version, records = await self._store.keys()
        self._accept(records)

    def _accept(self, records: Sequence[KeyRecord]) -> None:
        """Accept the keys of these records, and those of the settings, and no others."""
        now, before = self._now(), self._clients
        states = [(bytes.fromhex(record.digest), record, record.ended(now)) for record in records]
        self._records = records
        self._by_name = {record.name: record for record in records}
        self._clients = {digest: record.as_client() for digest, record, ended in states if ended is None} | self._own
        self._ended = {digest: ended for digest, _, ended in states if ended is not None}
        self._next_expiry = min(
            (record.expires_at for _, record, ended in states if record.expires_at is not None and ended is None),
            default=math.inf,
        )
        self.barred = (self.barred | _ids(before.values())) - _ids(self._clients.values())
        lost = _ids(client for digest, client in before.items() if digest not in self._clients)
        for listener in self.on_change:
            listener(lost)


def _ids(clients: Iterable[Client]) -> frozenset[str]:
    return frozenset(client.id for client in clients)


def client_with(key: bytes, *, admin: bool = False) -> Client:
    """Return the client that a key of the settings stands for. Neither of its names tells anything of the key."""
    return Client(
        id=hashlib.sha256(b"turnbridge owner\0" + key).hexdigest(),
        name=RESERVED_PREFIX + hashlib.sha256(b"turnbridge client\0" + key).hexdigest()[:NAME_DIGITS],
        admin=admin,
    )
