"""What a replica knows of the others, as the engine, the APIs and HTTP see it."""

from typing import Protocol


class SharedStateAway(Exception):
    """Redis cannot be used now: each replica falls back to its share, or to what it knows itself."""


class Fleet(Protocol):
    """The replicas of this gateway."""

    @property
    def replica(self) -> str:
        """Return the id of this replica: another one after each start."""
        ...

    def share(self, limit: int) -> int:
        """Return how much of a limit this replica may use while nothing counts for all of them; at least 1."""
        ...


class ReplicaStore(Protocol):
    """Stores which replicas are alive, by the clock of the database."""

    async def replica_alive(self, replica: str, lease_s: float) -> int:
        """Renew the lease of a replica, and return how many replicas have one."""

    async def replica_gone(self, replica: str) -> None:
        """End the lease of a replica that stops."""
