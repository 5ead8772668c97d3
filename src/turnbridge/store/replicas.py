"""Which replicas are alive, and which makes the answer to an `Idempotency-Key`: leases, by the database's clock."""

from collections.abc import Sequence

from turnbridge.engine.sharing import Claim
from turnbridge.store.database import NOW, Database, Transaction

ALIVE = f"""
    INSERT INTO replicas (id, lease_until) VALUES ($1, {NOW} + $2)
    ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until
"""
CLAIM = f"""
    INSERT INTO claims (id, fingerprint, owner, lease_until) VALUES ($1, $2, $3, {NOW} + $4)
    ON CONFLICT (id) DO NOTHING RETURNING id
"""
FINISH = f"UPDATE claims SET answer = $3, lease_until = {NOW} + $4 WHERE id = $1 AND owner = $2"
RENEW = f"""
    UPDATE claims SET lease_until = {NOW} + $3 WHERE id = ANY($1) AND owner = $2 AND answer IS NULL
"""


class Replicas:
    """The store's `ReplicaStore` and `AnswerStore`."""

    _database: Database

    async def replica_alive(self, replica: str, lease_s: float) -> int:
        async def renew(tx: Transaction) -> int:
            await tx.execute(ALIVE, replica, lease_s)
            await tx.execute(f"DELETE FROM replicas WHERE lease_until < {NOW}")
            return await tx.row(int, "SELECT count(*) FROM replicas") or 1

        return await self._database.write(renew)

    async def replica_gone(self, replica: str) -> None:
        await self._database.write(lambda tx: tx.execute("DELETE FROM replicas WHERE id = $1", replica))

    async def claim_answer(self, identity: str, fingerprint: str, owner: str, lease_s: float) -> Claim:
        def existing(known: str, finished: int) -> Claim:
            return Claim.OTHER_REQUEST if known != fingerprint else Claim.FINISHED if finished else Claim.RUNNING

        async def claim(tx: Transaction) -> Claim:
            await tx.execute(f"DELETE FROM claims WHERE lease_until < {NOW}")
            if await tx.row(str, CLAIM, identity, fingerprint, owner, lease_s) is not None:
                return Claim.MINE
            found = "SELECT fingerprint, CASE WHEN answer IS NULL THEN 0 ELSE 1 END FROM claims WHERE id = $1"
            return await tx.row(existing, found, identity) or Claim.RUNNING

        return await self._database.write(claim)

    async def claimed_answer(self, identity: str) -> bytes | None:
        sql = "SELECT answer FROM claims WHERE id = $1 AND answer IS NOT NULL"
        return await self._database.read(lambda tx: tx.row(bytes, sql, identity))

    async def finish_answer(self, identity: str, owner: str, answer: bytes | None, kept_s: float) -> None:
        async def finish(tx: Transaction) -> None:
            if answer is None:
                await tx.execute("DELETE FROM claims WHERE id = $1 AND owner = $2", identity, owner)
            else:
                await tx.execute(FINISH, identity, owner, answer, kept_s)

        await self._database.write(finish)

    async def renew_answers(self, identities: Sequence[str], owner: str, lease_s: float) -> None:
        await self._database.write(lambda tx: tx.execute(RENEW, identities, owner, lease_s))
