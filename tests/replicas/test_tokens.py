"""Token limits that replicas count together, on a real Redis."""

import asyncio
from collections.abc import Sequence

import pytest
import redis.asyncio

from tests.replicas.fleet import replicas
from tests.support.redis_server import RedisServer
from tests.support.waiting import until
from turnbridge.replicas.replica import LEASE_S
from turnbridge.replicas.tokens import MICROSECONDS, SharedTokens
from turnbridge.turn.clients import Client, ClientLimits
from turnbridge.turn.events import Usage
from turnbridge.turn.usage import TokenLimit
from turnbridge.web.middleware.meter import Meter
from turnbridge.web.middleware.observability import RequestContext

pytestmark = pytest.mark.anyio

CLIENT = Client(id="id", name="ann", limits=ClientLimits(tokens=(TokenLimit(100, "day"), TokenLimit(1000, "week"))))


RESERVED = "turnbridge:tokens:id:reserved"


class Request:
    """A request of the client, which reserves ten tokens."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.context = RequestContext(
            request_id="", method="POST", route="", clock=float, started_at=0.0, status=200, complete=True
        )
        self.context.client = CLIENT
        self.context.on_end = meter.request_ended

    async def left(self) -> int:
        """Reserve; return what was left, 0 if there was nothing."""
        standing = await self._meter.reserve(CLIENT, self.context, 10)
        assert standing is not None
        return standing.remaining

    def end(self, used: int) -> None:
        self.context.usage = Usage(output=used)
        assert self.context.on_end is not None
        self.context.on_end(self.context, "ok")


async def asked(meters: Sequence[Meter], count: int) -> list[Request]:
    """Return those of so many requests at once that may run."""
    requests = [Request(meters[number % len(meters)]) for number in range(count)]
    left = await asyncio.gather(*[request.left() for request in requests])
    return [request for request, rest in zip(requests, left, strict=True) if rest]


@pytest.mark.promise("replicas.tokens")
async def test_tokens_are_reserved_before_the_work_and_what_was_used_counts_at_once_everywhere(
    server: RedisServer,
) -> None:
    async with replicas(server.url, 2) as fleet:
        meters = [Meter(None, budgets=SharedTokens(each.replica, each.redis)) for each in fleet]
        running = [request for meter in meters for request in await asked([meter], 5)]
        assert len(running) == 10
        assert await asked(meters, 20) == []
        for request in running:
            request.end(used=7)
        # Nothing is reserved any more, and 70 of 100 are used: three more may run.
        assert len(await asked(meters, 50)) == 3


@pytest.mark.promise("replicas.tokens")
async def test_what_a_killed_replica_had_reserved_is_free_again(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        dead, alive = (Meter(None, budgets=SharedTokens(each.replica, each.redis)) for each in fleet)
        async with redis.asyncio.Redis.from_url(server.url) as client:
            assert len(await asked([alive], 1)) == 1
            (living,) = await client.zrange(RESERVED, 0, -1)
            assert len(await asked([dead], 20)) == 9
            assert await asked([alive], 1) == []
            for member in set(await client.zrange(RESERVED, 0, -1)) - {living}:
                await client.zincrby(RESERVED, -LEASE_S * MICROSECONDS, member)
        assert len(await asked([alive], 20)) == 9


@pytest.mark.promise("replicas.tokens")
async def test_what_a_living_replica_has_reserved_is_renewed(server: RedisServer) -> None:
    async with replicas(server.url, 1) as (one,), redis.asyncio.Redis.from_url(server.url) as client:
        tokens = SharedTokens(one.replica, one.redis)
        await asked([Meter(None, budgets=tokens)], 1)
        ((member, until_then),) = await client.zrange(RESERVED, 0, -1, withscores=True)
        await client.zincrby(RESERVED, -LEASE_S * MICROSECONDS / 2, member)
        for renew in one.replica.renewals:
            await renew()
        assert await client.zscore(RESERVED, member) >= until_then


@pytest.mark.promise("replicas.tokens", "replicas.redis-away")
async def test_without_redis_a_replica_uses_its_share_of_what_is_left_and_tells_redis_afterwards(
    server: RedisServer,
) -> None:
    async with replicas(server.url, 2) as fleet:
        meters = [Meter(None, budgets=SharedTokens(each.replica, each.redis)) for each in fleet]
        (request,) = await asked(meters, 1)
        request.end(used=40)
        await server.kill()
        again = Request(meters[0])
        assert await again.left() == 30
        again.end(used=60)
        assert await Request(meters[0]).left() == 0
        await server.start()
        await until(lambda: not any(each.redis.is_away for each in fleet))
        # The one that knows tells the empty Redis.
        assert await Request(meters[0]).left() == 0
        assert await Request(meters[1]).left() == 0
