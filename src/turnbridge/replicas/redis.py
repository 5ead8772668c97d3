"""The Redis or Valkey that replicas share, behind a circuit breaker.

No request waits long for it, and none at all while the circuit is open. After a failure, a background task tries to
reach it. Once it answers, whoever holds something there registers it again (`on_back`), and only then is it used.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from turnbridge.engine.sharing import SharedStateAway
from turnbridge.replicas.script import Script

log = structlog.get_logger(__name__)

T = TypeVar("T")

# For commands that are no scripts, and for subscriptions.
MOST_CONNECTIONS = 16
# Scripts that are sent together: Redis takes some 20 µs for each.
MOST_IN_BATCH = 128
# How long a subscription waits before it looks whether it is still wanted.
SUBSCRIPTION_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisTiming:
    """The timeouts of the circuit breaker."""

    timeout_s: float = 0.3
    """Of a command; scripts are tried twice, since a busy loop of our own looks like a Redis that is away."""
    retry_s: float = 0.25
    """Between attempts to reach it."""
    settle_s: float = 1.0
    """From its first answer until it is used: every replica needs a moment to register what it holds."""


class _Call(NamedTuple):
    """A script that waits to be sent, or for its result."""

    script: Script
    keys: Sequence[str]
    values: Sequence[str | int | bytes]
    result: "asyncio.Future[list[int]]"


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
        self._calls: list[_Call] = []
        self._sender: asyncio.Task[None] | None = None

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
        """Run a script that returns integers. Those of one moment are sent together, on one connection."""
        if self.is_away and not while_away:
            raise SharedStateAway
        return await self._queue(script, keys, values)

    def post(self, script: Script, keys: Sequence[str], values: Sequence[str | int | bytes]) -> None:
        """Run a script whose result nobody needs, before all later ones. While Redis is away, it is dropped."""
        if not self.is_away:
            self._queue(script, keys, values).add_done_callback(lambda call: call.cancelled() or call.exception())

    def _queue(
        self, script: Script, keys: Sequence[str], values: Sequence[str | int | bytes]
    ) -> "asyncio.Future[list[int]]":
        self.commands += 1
        call = _Call(script, keys, values, asyncio.get_running_loop().create_future())
        self._calls.append(call)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        return call.result

    async def _send(self) -> None:
        """Send the scripts that wait, one batch after another."""
        while self._calls:
            batch, self._calls = self._calls[:MOST_IN_BATCH], self._calls[MOST_IN_BATCH:]
            try:
                results = await self._evaluated(batch)
            except (RedisError, OSError, TimeoutError) as error:
                self._open_circuit(error)
                results = [SharedStateAway()] * len(batch)
            for call, result in zip(batch, results, strict=True):
                if call.result.done():
                    continue
                if isinstance(result, SharedStateAway):
                    call.result.set_exception(result)
                else:
                    call.result.set_result(result)

    async def _evaluated(self, batch: Sequence["_Call"]) -> Sequence[list[int] | SharedStateAway]:
        try:
            return await self._evaluated_once(batch)
        except TimeoutError:
            # It may have been this loop that was busy. A script that runs twice has the same effect.
            return await self._evaluated_once(batch)

    async def _evaluated_once(self, batch: Sequence["_Call"]) -> Sequence[list[int] | SharedStateAway]:
        async with asyncio.timeout(self._timing.timeout_s):
            results = await self._pipelined(batch, by_digest=True)
            unknown = [number for number, result in enumerate(results) if isinstance(result, NoScriptError)]
            if unknown:
                again = await self._pipelined([batch[number] for number in unknown], by_digest=False)
                for number, result in zip(unknown, again, strict=True):
                    results[number] = result
        for result in results:
            if isinstance(result, Exception):
                raise result
        return cast("list[list[int]]", results)

    async def _pipelined(self, batch: Sequence["_Call"], *, by_digest: bool) -> list[object]:
        async with self.client.pipeline(transaction=False) as pipeline:
            for call in batch:
                if by_digest:
                    pipeline.evalsha(call.script.digest, len(call.keys), *call.keys, *call.values)
                else:
                    pipeline.eval(call.script.text, len(call.keys), *call.keys, *call.values)
            return list(await pipeline.execute(raise_on_error=False))

    async def messages(self, channel: str) -> AsyncGenerator[str, None]:
        """Yield what is published on a channel; raise `SharedStateAway` when the connection is lost."""
        if self.is_away:
            raise SharedStateAway
        async with self.client.pubsub(ignore_subscribe_messages=True) as subscription:
            try:
                await subscription.subscribe(channel)
                while True:
                    message = await subscription.get_message(timeout=SUBSCRIPTION_PAUSE_S)
                    if message is not None:
                        yield bytes(message["data"]).decode()
            except (RedisError, OSError, TimeoutError) as error:
                # A replica that asks for nothing notices here that it has to register what it holds.
                self._open_circuit(error)
                raise SharedStateAway from error

    async def open(self) -> None:
        """Connect; a server that cannot be reached is only logged."""
        try:
            await self.run(_ping)
        except SharedStateAway:
            return

    async def aclose(self) -> None:
        """Disconnect."""
        for task in filter(None, (self._returning, self._sender)):
            task.cancel()
            await asyncio.wait((task,))
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
