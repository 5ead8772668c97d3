"""Messages between replicas over Redis' channels."""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from redis.exceptions import RedisError

from turnbridge.engine.sharing import SharedStateAway
from turnbridge.replicas.messages import CHANNEL, CHECK_S, Messages
from turnbridge.replicas.redis import SharedRedis

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from redis.asyncio.client import PubSub


class RedisMessages(Messages):
    """Messages over the Redis that replicas share."""

    failures = (RedisError, OSError, TimeoutError, SharedStateAway)

    def __init__(self, replica: str, redis: SharedRedis) -> None:
        super().__init__(replica)
        self._redis = redis
        self._subscription: PubSub | None = None

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[None]:
        subscription = self._redis.client.pubsub(ignore_subscribe_messages=True)
        try:
            await cast("Awaitable[None]", subscription.subscribe(f"{CHANNEL}{self.id}"))
            self._subscription = subscription
            yield
        finally:
            self._subscription = None
            await cast("Awaitable[None]", subscription.aclose())  # type: ignore[no-untyped-call]

    async def _receive(self) -> None:
        asked = False
        while (subscription := self._subscription) is not None:
            found = await subscription.get_message(timeout=CHECK_S)
            if found is not None:
                asked = False
                if found["type"] == "message":
                    self._received(found["data"])
            elif asked:
                raise TimeoutError
            else:
                # A connection that hangs says nothing.
                await cast("Awaitable[None]", subscription.ping())
                asked = True

    async def _publish(self, channel: str, body: bytes) -> None:
        await self._redis.run(lambda client: cast("Awaitable[object]", client.publish(channel, body)))
