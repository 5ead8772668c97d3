"""Rates of requests that replicas count together, on a real Redis."""

import asyncio
import re

import pytest
import redis.asyncio

from tests.replicas.fleet import TestReplica, replicas
from tests.support.redis_server import RedisServer
from tests.support.waiting import until
from turnbridge.engine.windows import Taken
from turnbridge.replicas.rates import SharedRates
from turnbridge.turn.rates import Rate

pytestmark = pytest.mark.anyio

SIXTY = Rate(60, 3600)


def windows(fleet: list[TestReplica]) -> list[SharedRates]:
    return [SharedRates(each.replica) for each in fleet]


async def spread(fleet: list[SharedRates], count: int, *rates: Rate, client: str = "client") -> list[Taken]:
    """Send requests evenly to all replicas at once."""
    takes = (fleet[number % len(fleet)].take(client, rates or (SIXTY,)) for number in range(count))
    return list(await asyncio.gather(*takes))


def passed(taken: list[Taken]) -> int:
    return sum(each.allowed for each in taken)


@pytest.mark.promise("replicas.rates")
async def test_of_200_requests_at_a_limit_of_60_exactly_60_pass(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        rates = windows(fleet)
        before = sum(each.redis.commands for each in fleet)
        taken = await spread(rates, 200)
        assert passed(taken) == 60
        assert sorted(each.windows[0].left for each in taken if each.allowed) == list(range(1, 61))
        assert sum(each.redis.commands for each in fleet) - before == 200
        assert passed(await spread(rates, 10, client="another client")) == 10


@pytest.mark.promise("replicas.rates")
async def test_a_request_that_one_rate_refuses_counts_for_no_other(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        rates = windows(fleet)
        assert passed(await spread(rates, 30, Rate(5, 60), Rate(20, 3600))) == 5
        assert (await rates[0].take("client", [Rate(20, 3600)])).windows[0].left == 15


@pytest.mark.promise("replicas.redis-away")
@pytest.mark.parametrize("to", [1, 2])
async def test_without_redis_each_replica_holds_its_share_and_never_the_whole(server: RedisServer, to: int) -> None:
    async with replicas(server.url, 2) as fleet:
        rates = windows(fleet)
        assert passed([await rates[number % to].take("client", [SIXTY]) for number in range(100)]) == 60
        await server.kill()
        # What a replica has allowed before counts for its share. One that was never asked has its share.
        assert passed(await spread(rates, 200)) == (0 if to == 2 else 30)
        await server.start()
        await until(lambda: not any(each.redis.is_away for each in fleet))
        assert passed(await spread(rates, 50)) == 0
        # Those that were refused do not count.
        async with redis.asyncio.Redis.from_url(server.url) as client:
            assert await client.zcard("turnbridge:rate:client:60/3600") == (60 if to == 2 else 90)


@pytest.mark.promise("replicas.redis-away")
async def test_what_was_allowed_meanwhile_counts_when_redis_is_back(server: RedisServer) -> None:
    async with replicas(server.url, 3) as fleet:
        rates = windows(fleet)
        assert passed(await spread(rates, 9)) == 9
        with server.paused():
            assert passed(await spread(rates, 200)) == 51
        await until(lambda: not any(each.redis.is_away for each in fleet))
        # It had not forgotten the first nine, and they are not counted twice.
        assert passed(await spread(rates, 50)) == 0
        async with redis.asyncio.Redis.from_url(server.url) as client:
            assert await client.zcard("turnbridge:rate:client:60/3600") == 60


async def test_a_client_with_a_limit_of_one_is_not_shut_out_without_redis(server: RedisServer) -> None:
    async with replicas(server.url, 3) as fleet:
        await server.kill()
        assert passed(await spread(windows(fleet)[:1], 2, Rate(1, 60))) == 1


async def test_redis_knows_a_client_by_its_id_and_forgets_it_after_the_window(server: RedisServer) -> None:
    async with replicas(server.url, 1) as fleet:
        await spread(windows(fleet), 1)
        (name,) = [name for name in await server.keys() if b"rate" in name]
        assert re.fullmatch(rb"turnbridge:rate:client:60/3600", name)
        async with redis.asyncio.Redis.from_url(server.url) as client:
            assert 3590 < await client.ttl(name) <= 3600


async def test_with_postgres_alone_each_replica_holds_its_share() -> None:
    async with replicas(None, 2) as fleet:
        assert passed(await spread(windows(fleet), 200)) == 60
