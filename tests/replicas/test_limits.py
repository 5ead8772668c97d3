"""Limits hold for all replicas together, also while Redis is away."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack

import httpx2
import pytest

from tests.replicas.cluster import MODEL, Fleet
from tests.support.issued_keys import issued
from tests.support.plain_http import CHAT
from tests.support.waiting import until_told
from turnbridge.scripted_model.replies import Wait, answer, message
from turnbridge.turn.clients import ClientLimits
from turnbridge.turn.items import JsonObject

RATE, ASKED = 60, 200
TURNS, AT_ONCE = 5, 15
BODY: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


async def known(clients: Sequence[httpx2.AsyncClient]) -> None:
    """Return once every replica has read a new key."""

    async def all_know_it() -> bool:
        return all([(await http.get("/v1/models")).status_code == 200 for http in clients])

    await until_told(all_know_it)


async def clients_with(
    fleet: Fleet, stack: AsyncExitStack, name: str, limits: ClientLimits
) -> list[httpx2.AsyncClient]:
    """Return a client of each replica with a new key that has limits of its own."""
    key = await issued(fleet.database_url, name, limits)
    clients = [await stack.enter_async_context(replica.client(key)) for replica in fleet.replicas.values()]
    await known(clients)
    return clients


async def statuses(clients: Sequence[httpx2.AsyncClient], times: int, at_once: int = 10) -> "Counter[int]":
    """Return how so many requests ended that were spread evenly."""
    found: Counter[int] = Counter()
    turn = itertools.cycle(clients)
    for batch in (range(first, min(first + at_once, times)) for first in range(0, times, at_once)):
        answers = await asyncio.gather(*(next(turn).post(CHAT, json=BODY) for _ in batch))
        found.update(each.status_code for each in answers)
    return found


@pytest.mark.promise("replicas.rates")
async def test_a_rate_limit_lets_exactly_as_many_through_as_one_gateway_would(fleet: Fleet) -> None:
    fleet.model.respond = lambda _: answer(message("hi"))
    async with AsyncExitStack() as stack:
        clients = await clients_with(fleet, stack, "rate", ClientLimits(rate=f"{RATE}/hour"))
        assert await statuses(clients, ASKED) == {200: RATE, 429: ASKED - RATE}


@pytest.mark.promise("replicas.turns")
async def test_a_turn_limit_holds_for_all_replicas_together(fleet: Fleet) -> None:
    gate = fleet.gate()
    fleet.model.respond = lambda _: answer(message("hi", pieces=["h", Wait(gate=gate), "i"]))
    async with AsyncExitStack() as stack:
        clients = await clients_with(fleet, stack, "turns", ClientLimits(turns=TURNS))
        turn = itertools.cycle(clients)
        asking = [asyncio.ensure_future(next(turn).post(CHAT, json=BODY)) for _ in range(AT_ONCE)]
        refused = [(await each).status_code for each in itertools.islice(asyncio.as_completed(asking), AT_ONCE - TURNS)]
        assert refused == [429] * (AT_ONCE - TURNS)
        gate.set()
        everything = Counter(each.status_code for each in await asyncio.gather(*asking))
        assert everything == {200: TURNS, 429: AT_ONCE - TURNS}
        # Every slot was given back.
        assert await statuses(clients, TURNS, TURNS) == {200: TURNS}


@pytest.mark.promise("replicas.rates")
async def test_a_rate_limit_is_never_exceeded_twice_when_redis_is_killed_in_the_middle(fleet: Fleet) -> None:
    fleet.model.respond = lambda _: answer(message("hi"))
    async with AsyncExitStack() as stack:
        clients = await clients_with(fleet, stack, "rate-and-kill", ClientLimits(rate=f"{RATE}/hour"))
        before = await statuses(clients, RATE // 2)
        assert before == {200: RATE // 2}
        await fleet.redis.kill()
        after = await statuses(clients, ASKED - RATE // 2)
    # What was counted is lost with Redis; each replica then has its share of the limit.
    assert after[200] <= RATE
    assert set(after) == {200, 429}
