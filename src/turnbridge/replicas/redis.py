"""The Redis or Valkey that replicas share, behind a circuit breaker.

No request waits long for it, and none at all while the circuit is open. After a failure, a background task tries to
reach it. Once it answers, whoever holds something there registers it again (`on_back`), and only then is it used.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from turnbridge.engine.sharing import SharedStateAway
from turnbridge.replicas.script import Script

log = structlog.get_logger(__name__)

T = TypeVar("T")

# A command takes less than a millisecond, so these are enough for thousands of requests a second.
MOST_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisTiming:
    """The timeouts of the circuit breaker."""

    timeout_s: float = 0.5
    """Of a command. Shorter, and a busy loop of our own would look like a Redis that is away."""
    retry_s: float = 0.25
    """Between attempts to reach it."""
    settle_s: float = 1.0
    """From its first answer until it is used: every replica needs a moment to register what it holds."""


class SharedRedis:
    """The connection to the Redis that replicas share."""

    def __init__(self, url: str, timing: RedisTiming | None = None) -> None:
        self._timing = timing or RedisTiming()
        timeout_s = self._timing.timeout_s
        pool = BlockingConnectionPool.from_url(
            url.replace("redis+unix://", "unix://", 1),
            max_connections=MOST_CONNECTIONS,
            timeout=timeout_s,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
        self.client: Redis = Redis(connection_pool=pool)
        """For commands with a life of their own, such as a subscription; `run` is for all others."""
        self.away_since: float | None = None
        """Since when it cannot be used, in Unix time."""
        self.commands = 0
        """How many commands were sent."""
        self.on_back: list[Callable[[], Awaitable[bool]]] = []
        """Called when it can be reached again, before it is used. Each registers what this replica holds, by `run` with
        `while_away`, and tells whether that was all; if not, all are called once more."""
        self._returning: asyncio.Task[None] | None = None

    @property
    def is_away(self) -> bool:
        """Tell whether it cannot be used now."""
        return self.away_since is not None

    async def run(self, do: Callable[[Redis], Awaitable[T]], *, while_away: bool = False) -> T:
        """Return the result of a command; raise `SharedStateAway` if there is none in time, or the circuit is open."""
        if self.is_away and not while_away:
            raise SharedStateAway
        self.commands += 1
        try:
            async with asyncio.timeout(self._timing.timeout_s):
                return await do(self.client)
        except (RedisError, OSError, TimeoutError) as error:
            self._open_circuit(error)
            raise SharedStateAway from error

    async def script(
        self, script: Script, keys: Sequence[str], values: Sequence[str | int | bytes], *, while_away: bool = False
    ) -> list[int]:
        """Run a script that returns integers."""

        async def evaluate(client: Redis) -> list[int]:
            try:
                found = client.evalsha(script.digest, len(keys), *keys, *values)
                return cast("list[int]", await cast("Awaitable[object]", found))
            except NoScriptError:
                found = client.eval(script.text, len(keys), *keys, *values)
                return cast("list[int]", await cast("Awaitable[object]", found))

        return await self.run(evaluate, while_away=while_away)

    async def open(self) -> None:
        """Connect; a server that cannot be reached is only logged."""
        try:
            await self.run(_ping)
        except SharedStateAway:
            return

    async def aclose(self) -> None:
        """Disconnect."""
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.wait((self._returning,))
        await self.client.aclose(close_connection_pool=True)

    def _open_circuit(self, error: Exception) -> None:
        if self.away_since is not None:
            return
        self.away_since = time.time()
        # The text of an error may name the server and its user.
        reason = "it does not answer" if isinstance(error, TimeoutError) else type(error).__name__
        log.warning("redis_away", reason=reason, consequence="this replica holds its share of every limit")
        self._returning = asyncio.create_task(self._return())

    async def _return(self) -> None:
        """Wait until it can be used again."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(self._timing.retry_s)
            try:
                await self.run(_ping, while_away=True)
                await asyncio.sleep(self._timing.settle_s)
                while not all([await register() for register in self.on_back]):
                    pass
            except SharedStateAway:
                continue
            break
        self.away_since = None
        log.info("redis_back", away_s=round(time.monotonic() - began, 3))


async def _ping(client: Redis) -> None:
    await cast("Awaitable[object]", client.ping())
