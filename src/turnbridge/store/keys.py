"""The keys of clients. A counter changes with them, so that gateways notice a change by reading one number."""

from collections.abc import Sequence

import msgspec

from turnbridge.store.database import Database, Transaction, Value
from turnbridge.turn.clients import MOST_KEYS, ClientLimits, KeyRecord
from turnbridge.turn.errors import InvalidRequest, NotFound

VERSION = "SELECT version FROM keys_version"
# It also locks the row: changes come one after another, and names are looked up before they are added.
NEXT_VERSION = "UPDATE keys_version SET version = version + 1"
COLUMNS = "name, client, digest, hint, admin, limits, created_at, rotated_at, expires_at, revoked_at"
INSERT = f"INSERT INTO keys ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
UPDATE = """
    UPDATE keys SET digest = $2, hint = $3, admin = $4, limits = $5, rotated_at = $6, expires_at = $7, revoked_at = $8
    WHERE name = $1 RETURNING name
"""


class ClientKeys:
    """The store's `KeyStore`."""

    _database: Database

    async def keys_version(self) -> int:
        return await self._database.read(lambda tx: tx.row(int, VERSION)) or 0

    async def keys(self) -> tuple[int, Sequence[KeyRecord]]:
        async def read(tx: Transaction) -> tuple[int, Sequence[KeyRecord]]:
            version = await tx.row(int, VERSION)
            return version or 0, await tx.rows(_record, f"SELECT {COLUMNS} FROM keys ORDER BY name")

        return await self._database.read(read)

    async def add_key(self, record: KeyRecord) -> None:
        values = _values(record)

        async def add(tx: Transaction) -> None:
            await tx.execute(NEXT_VERSION)
            if await tx.row(str, "SELECT name FROM keys WHERE name = $1", record.name) is not None:
                raise InvalidRequest(f"There is a key `{record.name}` already.", param="name")
            if (await tx.row(int, "SELECT count(*) FROM keys") or 0) >= MOST_KEYS:
                raise InvalidRequest(f"There are {MOST_KEYS} keys, which is the most. Delete some.")
            await tx.execute(INSERT, *values)

        await self._database.write(add)

    async def change_key(self, record: KeyRecord) -> None:
        name, _, digest, hint, admin, limits, _, *times = _values(record)
        await self._changed(record.name, UPDATE, name, digest, hint, admin, limits, *times)

    async def delete_key(self, name: str) -> None:
        await self._changed(name, "DELETE FROM keys WHERE name = $1 RETURNING name", name)

    async def _changed(self, name: str, sql: str, *values: Value) -> None:
        async def change(tx: Transaction) -> None:
            await tx.execute(NEXT_VERSION)
            if await tx.row(str, sql, *values) is None:
                raise NotFound(f"There is no key `{name}`.", param="name")

        await self._database.write(change)


def _values(record: KeyRecord) -> list[Value]:
    limits = msgspec.json.encode(record.limits)
    owner: list[Value] = [record.name, record.client, record.digest, record.hint, int(record.admin), limits]
    return [*owner, record.created_at, record.rotated_at, record.expires_at, record.revoked_at]


def _record(name: str, client: str, digest: str, hint: str, admin: int, limits: bytes, *times: int | None) -> KeyRecord:
    created_at, rotated_at, expires_at, revoked_at = times
    return KeyRecord(
        name=name,
        client=client,
        digest=digest,
        hint=hint,
        admin=admin == 1,
        limits=msgspec.json.decode(limits, type=ClientLimits),
        created_at=created_at or 0,
        rotated_at=rotated_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
    )
