"""What the parts of the store share."""

from collections.abc import Callable

from turnbridge.store.database import Database, Transaction
from turnbridge.store.segments import remove_step


class Part:
    """A part of the store: a database, and what time it is."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    async def _remove(self, kind: str, hide: str, row_id: str, owner: str) -> bool:
        """Remove a row and what only it needs; False if there is none.

        It is hidden at first, as something very old that belongs to nobody. The rest takes as many transactions as it
        takes; if the process ends meanwhile, the next pruning goes on with it.
        """

        async def begin(tx: Transaction) -> int | None:
            found = await tx.row(str, f"{hide} WHERE id = $1 AND owner = $2 RETURNING id", row_id, owner)
            return None if found is None else (await remove_step(tx, kind, row_id))[0]

        removed = await self._database.write(begin)
        while removed == 0:
            removed, _ = await self._database.write(lambda tx: remove_step(tx, kind, row_id))
        return removed is not None
