"""This replica: its place in the registry, its connection to Redis, and the renewal of what it holds there."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from turnbridge.engine.sharing import ReplicaStore, SharedStateAway
from turnbridge.replicas.registry import Registry, new_replica_id
from turnbridge.turn.errors import GatewayError

if TYPE_CHECKING:
    from turnbridge.replicas.redis import SharedRedis

log = structlog.get_logger(__name__)

# What a replica holds in Redis lapses this long after its last renewal: a replica that was killed holds it no longer.
LEASE_S = 25.0
RENEWAL_S = 8.0


class Replica:
    """A gateway that shares its store, its Redis or both with others."""

    def __init__(self, registry: Registry, redis: "SharedRedis | None") -> None:
        self.registry = registry
        self.redis = redis
        self.share = registry.share
        self.renewals: list[Callable[[], Awaitable[None]]] = []
        """Called every few seconds while Redis can be used; each may raise `SharedStateAway`."""

    @property
    def id(self) -> str:
        """Return the id of this replica."""
        return self.registry.replica

    def degraded_since(self) -> float | None:
        """Return since when Redis cannot be used, in Unix time; None if it can be, or there is none."""
        return None if self.redis is None else self.redis.away_since

    def degraded(self) -> str:
        """Return what does not work as it should, or nothing."""
        since = self.degraded_since()
        if since is None:
            return ""
        held = f"1/{self.registry.live}" if self.registry.live > 1 else "the whole"
        return f"Redis cannot be used for {time.time() - since:.0f} s; this replica holds {held} of every limit."

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Be one of the replicas, until the context ends."""
        try:
            await self.registry.beat()
        except GatewayError as error:
            log.warning("replicas_not_counted", reason=error.message, live=self.registry.live)
        if self.redis is not None:
            await self.redis.open()
        tasks = [asyncio.create_task(self.registry.run()), asyncio.create_task(self._renew())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.redis is not None:
                await self.redis.aclose()

    async def _renew(self) -> None:
        while self.redis is not None:
            await asyncio.sleep(RENEWAL_S)
            # What could not be renewed is registered again when Redis is back.
            with contextlib.suppress(SharedStateAway):
                for renew in self.renewals:
                    await renew()


def replica_of(store: ReplicaStore | None, redis_url: str | None) -> Replica | None:
    """Return this replica; None for a gateway that shares nothing. `store` is one that replicas share, if any."""
    if store is None and redis_url is None:
        return None
    redis = None
    if redis_url is not None:
        # An optional extra, imported only by those who use it.
        from turnbridge.replicas.redis import SharedRedis  # noqa: PLC0415

        redis = SharedRedis(redis_url)
    return Replica(Registry(new_replica_id(), store), redis)
