"""Redis or Postgres is killed, hangs or drops its connections: answers go on, and nothing blocks."""

import asyncio
from contextlib import AsyncExitStack

import httpx2
import pytest

from tests.replicas.cluster import MODEL, Fleet
from tests.replicas.test_limits import clients_with, statuses
from tests.support.hanging_store import hanging
from tests.support.latency import LatencyWatch
from tests.support.plain_http import RESPONSES
from tests.support.waiting import PATIENCE_S, until_told
from turnbridge.scripted_model.replies import answer, message
from turnbridge.turn.clients import ClientLimits
from turnbridge.turn.items import JsonObject

LIMIT = 12
# A loop that waits for Redis or Postgres answers nobody meanwhile.
BLOCKED_S = 1.0
BODY: JsonObject = {"model": MODEL, "input": "hi"}


async def answered(http: httpx2.AsyncClient) -> JsonObject:
    """Return an answer, which must be a good one."""
    response = await http.post(RESPONSES, json=BODY)
    assert response.status_code == 200, response.text
    found: JsonObject = response.json()
    assert found["status"] == "completed"
    return found


async def until_stored(http: httpx2.AsyncClient) -> None:
    """Return once answers are stored again."""
    async with asyncio.timeout(PATIENCE_S):
        while (await answered(http))["store"] is False:
            pass


@pytest.mark.promise("replicas.outage")
async def test_answers_go_on_without_postgres_and_are_stored_again_when_it_is_back(fleet: Fleet) -> None:
    fleet.model.respond = lambda _: answer(message("hi"))
    watches = [await LatencyWatch.start(replica.url) for replica in fleet.replicas.values()]
    try:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(replica.client()) for replica in fleet.replicas.values()]
            with await hanging(fleet.database_url):
                assert [(await answered(http))["store"] for http in clients] == [False] * len(clients)
            await asyncio.gather(*map(until_stored, clients))
            async with fleet.without_database():
                assert [(await answered(http))["store"] for http in clients] == [False] * len(clients)
            await asyncio.gather(*map(until_stored, clients))
            await fleet.cut_database()
            await asyncio.gather(*map(until_stored, clients))
        longest = [(await watch.read()).longest_s for watch in watches]
    finally:
        for watch in watches:
            await watch.stop()
    assert max(longest) < BLOCKED_S


@pytest.mark.promise("replicas.outage")
async def test_answers_go_on_without_redis_and_limits_are_exact_again_when_it_is_back(fleet: Fleet) -> None:
    fleet.model.respond = lambda _: answer(message("hi"))
    watches = [await LatencyWatch.start(replica.url) for replica in fleet.replicas.values()]
    try:
        async with AsyncExitStack() as stack:
            clients = await clients_with(fleet, stack, "outage", ClientLimits())
            with fleet.redis.paused():
                assert await statuses(clients, 6) == {200: 6}
            await fleet.redis.kill()
            assert await statuses(clients, 6) == {200: 6}
            await fleet.redis.start()
            await fleet.redis.cut()
            limited = await clients_with(fleet, stack, "after-the-outage", ClientLimits(rate=f"{LIMIT}/hour"))
            for http in clients:
                await until_whole(http)
            assert await statuses(limited, 2 * LIMIT) == {200: LIMIT, 429: LIMIT}
        longest = [(await watch.read()).longest_s for watch in watches]
    finally:
        for watch in watches:
            await watch.stop()
    assert max(longest) < BLOCKED_S


async def until_whole(http: httpx2.AsyncClient) -> None:
    """Return once a replica says that nothing is away."""

    async def says_so() -> bool:
        return "degraded" not in (await http.get("/readyz")).json()

    await until_told(says_so)
