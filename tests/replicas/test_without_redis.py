"""Replicas that share a Postgres and no Redis: the same tests, and limits by shares.

By its name it is the last module with a fleet, which so need not be started once more with a Redis.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.replicas.cluster import START_PATIENCE_S, Fleet
from tests.replicas.observed import until_gauge
from tests.replicas.test_background import (  # noqa: F401 - They are run here too.
    test_cancel_and_delete_at_one_replica_end_the_turn_at_another,
    test_the_stream_of_a_response_is_live_and_the_same_at_every_replica_from_every_position,
)
from tests.replicas.test_limits import BODY, RATE, clients_with, statuses
from tests.replicas.test_parked import (  # noqa: F401
    test_outputs_for_a_call_of_a_living_replica_are_replayed_and_it_lets_go,
    test_outputs_with_an_idempotency_key_that_come_to_two_replicas_are_run_once,
)
from tests.support.plain_http import CHAT
from turnbridge.scripted_model.replies import Wait, answer, message
from turnbridge.turn.clients import ClientLimits

TURNS = 6


@pytest.fixture(scope="module")
async def alone(whole: Fleet) -> AsyncIterator[Fleet]:
    """Return the fleet without its Redis."""
    await whole.rest()
    replicas = list(whole.replicas.values())
    await asyncio.gather(*(replica.kill() for replica in replicas))
    # What they leave lapses after 15 seconds.
    await whole.query("WITH gone AS (DELETE FROM turnbridge.replicas RETURNING id) SELECT count(*) FROM gone")
    await asyncio.gather(*(replica.start(PROXY_RATE_LIMIT_STORAGE="memory") for replica in replicas))
    for replica in replicas:
        async with replica.client() as http:
            await until_gauge(http, "turnbridge_replicas", len(replicas), within_s=START_PATIENCE_S)
    yield whole
    await whole.rest()
    await asyncio.gather(*(replica.kill() for replica in replicas))


@pytest.fixture
async def fleet(alone: Fleet) -> AsyncIterator[Fleet]:
    """Return it with the model at rest."""
    alone.script()
    yield alone
    await alone.rest()


@pytest.mark.promise("replicas.rates")
async def test_each_replica_lets_its_share_of_a_rate_through(fleet: Fleet) -> None:
    fleet.model.respond = lambda _: answer(message("hi"))
    async with AsyncExitStack() as stack:
        clients = await clients_with(fleet, stack, "share", ClientLimits(rate=f"{RATE}/hour"))
        share = RATE // len(clients)
        # At one, then at all of them: never more than the limit.
        assert await statuses(clients[:1], share + 5) == {200: share, 429: 5}
        assert await statuses(clients, RATE + 15) == {200: RATE - share, 429: share + 15}


@pytest.mark.promise("replicas.turns")
async def test_each_replica_runs_its_share_of_the_turns_of_a_client(fleet: Fleet) -> None:
    gate = fleet.gate()
    fleet.model.respond = lambda _: answer(message("hi", pieces=["h", Wait(gate=gate), "i"]))
    async with AsyncExitStack() as stack:
        clients = await clients_with(fleet, stack, "share-of-turns", ClientLimits(turns=TURNS))
        asking = [asyncio.ensure_future(http.post(CHAT, json=BODY)) for http in clients for _ in range(TURNS)]
        for done, first in enumerate(asyncio.as_completed(asking), 1):
            assert (await first).status_code == 429
            if done == len(asking) - TURNS:
                break
        await fleet.model.until(lambda model: model.active == TURNS)
        gate.set()
        ended = Counter(each.status_code for each in await asyncio.gather(*asking))
        assert ended == {200: TURNS, 429: len(asking) - TURNS}
