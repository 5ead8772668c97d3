"""`Idempotency-Key` on several replicas, with a real Redis and with a store that they share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis.asyncio
from starlette.types import ASGIApp
from structlog.testing import capture_logs

from tests.replicas.fleet import TestReplica, replicas
from tests.support.redis_server import RedisServer
from tests.support.waiting import until
from tests.web.middleware.test_idempotency import End, Turns, ask, gateway, shown
from turnbridge.engine.sharing import Claim
from turnbridge.replicas.answers import MOST_ANSWERS, RedisAnswers, shared_answers
from turnbridge.replicas.replica import LEASE_S
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.errors import UpstreamFailed
from turnbridge.web.middleware.idempotency import Bounds

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["redis", "store"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[list[TestReplica], SqlStore]]:
    """Return two replicas that share a Redis, or only a store."""
    with capture_logs():
        async with contextlib.AsyncExitStack() as stack:
            url = None
            if request.param == "redis":
                server = RedisServer(tmp_path)
                await stack.enter_async_context(server.running())
                url = server.url
            store = await open_store(store_url(tmp_path))
            stack.push_async_callback(store.aclose)
            yield await stack.enter_async_context(replicas(url, 2)), store


def gateways(pair: tuple[list[TestReplica], SqlStore], *turns: Turns) -> list[ASGIApp]:
    fleet, store = pair
    return [gateway(each, claims=shared_answers(one.replica, store)) for one, each in zip(fleet, turns, strict=True)]


Pair = tuple[list[TestReplica], SqlStore]


@pytest.mark.promise("replicas.idempotency")
async def test_a_request_is_run_once_and_the_other_replica_repeats_the_answer(pair: Pair) -> None:
    one, two = Turns(b"one", b"two", End()), Turns()
    first, second = gateways(pair, one, two)
    assert shown(await ask(first)) == (200, b"onetwo", None)
    assert (await ask(second, b"something else")).status == 400, "before it has seen the answer"
    for _ in range(2):
        assert shown(await ask(second)) == (200, b"onetwo", "replayed")
    assert (one.asked, two.asked) == ([b"hi"], [])
    refused = await ask(second, b"something else")
    assert refused.status == 400
    assert b'"idempotency_key_reused"' in refused.body
    two.say(b"another's", End())
    assert shown(await ask(second, client="another")) == (200, b"another's", None)


@pytest.mark.promise("replicas.idempotency")
async def test_an_answer_that_was_too_long_to_be_kept_is_not_repeated_in_part(pair: Pair) -> None:
    fleet, store = pair
    one, two = Turns(b"one", b"two", b"three", End()), Turns(b"again", End())
    first, second = (
        gateway(turns, Bounds(answer_bytes=5), shared_answers(replica.replica, store))
        for turns, replica in zip((one, two), fleet, strict=True)
    )
    assert shown(await ask(first)) == (200, b"onetwothree", None)
    assert shown(await ask(second)) == (200, b"again", None)


@pytest.mark.promise("replicas.idempotency")
async def test_a_replica_waits_for_an_answer_that_another_one_makes(pair: Pair) -> None:
    one, two = Turns(b"one"), Turns()
    first, second = gateways(pair, one, two)
    making = asyncio.create_task(ask(first))
    await one.begun.wait()
    waiting = [asyncio.create_task(ask(second)) for _ in range(2)]
    one.say(b"two", End())
    assert shown(await making) == (200, b"onetwo", None)
    assert [shown(await each)[:2] for each in waiting] == [(200, b"onetwo")] * 2
    assert (len(one.asked), two.asked) == (1, [])


@pytest.mark.promise("replicas.idempotency")
async def test_an_answer_that_failed_is_made_again_by_whoever_waits(pair: Pair) -> None:
    one, two = Turns(UpstreamFailed("Broken.")), Turns(b"good", End())
    first, second = gateways(pair, one, two)
    assert (await ask(first)).status == 502
    assert shown(await ask(second)) == (200, b"good", None)
    assert shown(await ask(first)) == (200, b"good", "replayed")
    assert len(one.asked) == 1


@pytest.mark.promise("replicas.idempotency")
async def test_the_key_of_a_killed_replica_is_free_when_its_lease_has_lapsed(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        dead, alive = (RedisAnswers(each.replica, each.redis) for each in fleet)
        assert await dead.claim("identity", "fingerprint") is Claim.MINE
        assert await alive.claim("identity", "fingerprint") is Claim.RUNNING
        async with redis.asyncio.Redis.from_url(server.url) as client:
            assert await client.pttl("turnbridge:once:identity") <= LEASE_S * 1000 <= 30_000
            # Its time is over.
            await client.delete("turnbridge:once:identity")
        assert await alive.claim("identity", "fingerprint") is Claim.MINE
        # It was only paused: what it made late is refused.
        await dead.finish("client", "identity", b"late")
        assert await alive.finished("identity") is None
        await alive.finish("client", "identity", b"answer")
        assert await dead.finished("identity") == b"answer"


async def test_the_key_of_a_killed_replica_lapses_in_the_store_by_its_clock(tmp_path: Path) -> None:
    store = await open_store(store_url(tmp_path))
    assert await store.claim_answer("identity", "fingerprint", "dead", -1) is Claim.MINE
    assert await store.claim_answer("identity", "fingerprint", "alive", 60) is Claim.MINE
    await store.renew_answers(["identity"], "dead", -100)
    await store.finish_answer("identity", "dead", b"late", 60)
    assert await store.claim_answer("identity", "fingerprint", "dead", 60) is Claim.RUNNING
    await store.finish_answer("identity", "alive", b"answer", 60)
    assert await store.claim_answer("identity", "other", "dead", 60) is Claim.OTHER_REQUEST
    assert await store.claimed_answer("identity") == b"answer"
    await store.aclose()


async def test_a_client_has_a_bounded_number_of_answers(server: RedisServer) -> None:
    async with replicas(server.url, 1) as fleet:
        answers = RedisAnswers(fleet[0].replica, fleet[0].redis)
        for number in range(MOST_ANSWERS + 3):
            await answers.claim(f"{number}", "fingerprint")
            await answers.finish("client", f"{number}", b"answer")
        assert [await answers.finished(each) for each in ("2", "3")] == [None, b"answer"]


async def test_claims_are_renewed_and_registered_again_in_an_empty_redis(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        mine, other = (RedisAnswers(each.replica, each.redis) for each in fleet)
        await mine.claim("identity", "fingerprint")
        await server.kill()
        with capture_logs():
            # Each replica answers for itself meanwhile.
            assert shown(await ask(gateway(Turns(b"alone", End()), claims=other))) == (200, b"alone", None)
        await until(lambda: all(each.redis.is_away for each in fleet))
        await server.start()
        await until(lambda: not any(each.redis.is_away for each in fleet))
        assert await other.claim("identity", "fingerprint") is Claim.RUNNING
