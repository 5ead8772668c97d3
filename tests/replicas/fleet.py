"""Replicas in one process, without gateways around them. Their Redis is real, their registry a stand-in."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from turnbridge.replicas.redis import RedisTiming, SharedRedis
from turnbridge.replicas.registry import Registry
from turnbridge.replicas.replica import Replica

QUICK = RedisTiming(timeout_s=0.4, retry_s=0.02, settle_s=0.1)


class CountingStore:
    """Counts the replicas that are alive, as the store does."""

    def __init__(self) -> None:
        self.alive: set[str] = set()

    async def replica_alive(self, replica: str, _lease_s: float) -> int:
        self.alive.add(replica)
        return len(self.alive)

    async def replica_gone(self, replica: str) -> None:
        self.alive.discard(replica)


@dataclass(frozen=True, slots=True)
class TestReplica:
    """A replica of a test."""

    __test__ = False

    replica: Replica
    shared: SharedRedis | None

    @property
    def redis(self) -> SharedRedis:
        """Return its connection to Redis."""
        assert self.shared is not None
        return self.shared


@contextlib.asynccontextmanager
async def replicas(url: str | None, count: int, timing: RedisTiming = QUICK) -> AsyncIterator[list[TestReplica]]:
    """Run replicas that know of one another."""
    store, fleet = CountingStore(), []
    async with contextlib.AsyncExitStack() as stack:
        for number in range(count):
            redis = None if url is None else SharedRedis(url, timing)
            replica = Replica(Registry(f"replica-{number}", store), redis)
            await stack.enter_async_context(replica.running())
            fleet.append(TestReplica(replica, redis))
        for each in fleet:
            await each.replica.registry.beat()
        yield fleet
