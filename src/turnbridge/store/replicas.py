"""Which replicas are alive: each has a lease, by the clock of the database."""

from turnbridge.store.database import NOW, Database, Transaction

ALIVE = f"""
    INSERT INTO replicas (id, lease_until) VALUES ($1, {NOW} + $2)
    ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until
"""


class Replicas:
    """The store's `ReplicaStore`."""

    _database: Database

    async def replica_alive(self, replica: str, lease_s: float) -> int:
        async def renew(tx: Transaction) -> int:
            await tx.execute(ALIVE, replica, lease_s)
            await tx.execute(f"DELETE FROM replicas WHERE lease_until < {NOW}")
            return await tx.row(int, "SELECT count(*) FROM replicas") or 1

        return await self._database.write(renew)

    async def replica_gone(self, replica: str) -> None:
        await self._database.write(lambda tx: tx.execute("DELETE FROM replicas WHERE id = $1", replica))
