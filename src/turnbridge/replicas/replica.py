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
LISTEN_AGAIN_S = 0.5


def channel(replica: str) -> str:
    """Return the channel of messages to a replica: a word, a space, and whatever the word is about."""
    return f"turnbridge:to:{replica}"


class Replica:
    """A gateway that shares its store, its Redis or both with others."""

    def __init__(self, registry: Registry, redis: "SharedRedis | None") -> None:
        self.registry = registry
        self.redis = redis
        self.share = registry.share
        self.renewals: list[Callable[[], Awaitable[None]]] = []
        """Called at the start and every few seconds; each may raise `SharedStateAway`."""
        self.on_message: dict[str, Callable[[str], None]] = {}
        """Called with what other replicas tell this one, by the first word (`channel`)."""
        self.endings: list[Callable[[], Awaitable[None]]] = []
        """Called when this replica stops; each may raise `SharedStateAway`."""

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
        work = (self.registry.run(), self._renew(), self._listen())
        tasks = [asyncio.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.redis is not None:
                # What cannot be given back now lapses.
                with contextlib.suppress(SharedStateAway):
                    for end in self.endings:
                        await end()
                await self.redis.aclose()

    async def _listen(self) -> None:
        """Hear what other replicas tell this one. What is told while Redis is away is lost: it is news, not data."""
        while self.redis is not None:
            with contextlib.suppress(SharedStateAway):
                async for message in self.redis.messages(channel(self.id)):
                    word, _, rest = message.partition(" ")
                    if word in self.on_message:
                        self.on_message[word](rest)
            await asyncio.sleep(LISTEN_AGAIN_S)

    async def _renew(self) -> None:
        while True:
            # What could not be renewed is registered again when Redis is back.
            with contextlib.suppress(SharedStateAway):
                for renew in self.renewals:
                    await renew()
            await asyncio.sleep(RENEWAL_S)


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
