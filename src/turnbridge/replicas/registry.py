"""Which replicas are alive: each renews a lease in Postgres, by the clock of the database, and counts the others."""

import asyncio
import secrets
import socket

import structlog

from turnbridge.engine.sharing import ReplicaStore
from turnbridge.turn.errors import GatewayError

log = structlog.get_logger(__name__)

# How often the lease is renewed, and the others are counted.
HEARTBEAT_S = 2.0
# How long a replica counts as alive after its last heartbeat: an outage of the store of a few seconds changes nothing.
LEASE_S = 15.0
# Of the host's name, in the replica's id.
LONGEST_NAME = 40


def new_replica_id() -> str:
    """Return an id that no other replica has, nor this one after its next start."""
    host = "".join(each for each in socket.gethostname() if each.isascii() and (each.isalnum() or each in "-."))
    return f"{host[:LONGEST_NAME] or 'replica'}-{secrets.token_hex(4)}"


class Registry:
    """This replica among the others."""

    def __init__(self, replica: str, store: ReplicaStore | None) -> None:
        """`store` is shared by all replicas; without one, somebody else has to tell how many there are."""
        self.replica = replica
        self.live = 1
        """How many replicas there are, as far as is known."""
        self._store = store

    def share(self, limit: int) -> int:
        """Return this replica's part of a limit; at least 1."""
        return max(limit // self.live, 1)

    def told(self, live: int) -> None:
        """Note how many replicas Redis counts, if no store does."""
        if self._store is None:
            self.live = max(live, 1)

    async def beat(self) -> None:
        """Renew the lease and count the replicas; raises `GatewayError` if the store cannot be used."""
        if self._store is not None:
            self.live = max(await self._store.replica_alive(self.replica, LEASE_S), 1)

    async def run(self) -> None:
        """Renew the lease from time to time, until cancelled; then end it."""
        failing = False
        try:
            while self._store is not None:
                try:
                    await self.beat()
                except GatewayError as error:
                    if not failing:
                        log.warning("replicas_not_counted", reason=error.message, live=self.live)
                    failing = True
                else:
                    failing = False
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            await self._leave()

    async def _leave(self) -> None:
        try:
            if self._store is not None:
                await self._store.replica_gone(self.replica)
        except GatewayError as error:
            log.warning("replica_not_removed", reason=error.message, consequence=f"it counts for {LEASE_S:g} s more")
