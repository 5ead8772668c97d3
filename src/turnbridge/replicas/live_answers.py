"""Answers to `Idempotency-Key` that other replicas read while they are made: each in a stream in Redis.

Nobody asks for most answers, so nothing is published until a replica does, by a message to the maker.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from turnbridge.engine.sharing import FramesSoFar, SharedChunk
from turnbridge.replicas.redis_frames import SEALED, RedisFrames
from turnbridge.replicas.replica import channel

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from turnbridge.replicas.redis import SharedRedis
    from turnbridge.replicas.replica import Replica

WATCH, UNWATCH = "watch", "unwatch"


class RedisLiveAnswers:
    """`LiveAnswers` in Redis. The stream has the name of its claim, so that no later answer is taken for it."""

    def __init__(self, replica: "Replica", redis: "SharedRedis", owner: Callable[[str], str | None]) -> None:
        """`owner` returns the name of this replica's claim to an answer."""
        self._replica = replica.id
        self._redis = redis
        self._owner = owner
        self._frames = RedisFrames(redis)
        self.on_watched: Callable[[str, str, bool], None] = lambda *_: None
        replica.on_message[WATCH] = partial(self._asked, wanted=True)
        replica.on_message[UNWATCH] = partial(self._asked, wanted=False)

    async def place(self, identity: str) -> str | None:
        """Return where an answer is or was published, if its maker does that; None if nobody makes it."""

        async def find(client: "Redis") -> bytes | None:
            return await cast("Awaitable[bytes | None]", client.hget(f"turnbridge:once:{identity}", "owner"))

        owner = await self._redis.run(find)
        return None if owner is None else _place(owner.decode(), identity)

    async def watch(self, place: str, *, wanted: bool) -> None:
        """Ask the maker to publish there, or let it know that this replica reads no more."""
        maker = place.partition(":")[0]
        message = f"{WATCH if wanted else UNWATCH} {place} {self._replica}"
        await self._redis.run(lambda client: cast("Awaitable[object]", client.publish(channel(maker), message)))

    async def read(self, place: str, position: int) -> FramesSoFar:
        """Return what was published after the first `position` bytes."""
        return await self._frames.after(place, position)

    async def publish(self, identity: str, *, after: int, piece: bytes) -> bool:
        """Add to an answer that is made here; False if others cannot read on, and wait until it is whole."""
        return await self._add(identity, after, SharedChunk(after + len(piece), piece))

    async def seal(self, identity: str, *, after: int) -> None:
        """Let readers know that this is all; not if Redis has lost some of it."""
        await self._add(identity, after, SharedChunk(SEALED, b""))

    async def _add(self, identity: str, after: int, chunk: SharedChunk) -> bool:
        owner = self._owner(identity)
        return (
            owner is not None and await self._frames.add(_place(owner, identity), after=after, chunk=chunk) == chunk[0]
        )

    def _asked(self, rest: str, *, wanted: bool) -> None:
        place, _, reader = rest.partition(" ")
        owner, _, identity = place.partition("/")
        if owner == self._owner(identity):
            self.on_watched(identity, reader, wanted)


def _place(owner: str, identity: str) -> str:
    return f"{owner}/{identity}"
