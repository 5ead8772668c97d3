"""Answers to `Idempotency-Key` that one replica makes and another passes on as they grow, on a real Redis."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from starlette.types import ASGIApp
from structlog.testing import capture_logs

from tests.replicas.fleet import TestReplica, replicas
from tests.support.redis_server import RedisServer
from tests.support.waiting import until, until_told
from tests.web.asgi_driver import Exchange
from tests.web.middleware.test_idempotency import End, Turns, ask, asking, gateway, rest, shown
from turnbridge.replicas.answers import shared_answers
from turnbridge.turn.errors import UpstreamFailed
from turnbridge.web.middleware.answers_elsewhere import Head, Whole, packed

pytestmark = [pytest.mark.anyio, pytest.mark.promise("replicas.idempotency")]

# Longer, packed, than an answer that is kept for others.
LONG = random.Random(1).randbytes(400_000)


@pytest.fixture
async def fleet(server: RedisServer) -> AsyncIterator[list[TestReplica]]:
    """Return two replicas."""
    with capture_logs():
        async with replicas(server.url, 2) as running:
            yield running


def gateways(fleet: list[TestReplica], *turns: Turns) -> list[ASGIApp]:
    return [gateway(each, claims=shared_answers(one.replica, None)) for one, each in zip(fleet, turns, strict=True)]


async def heard(exchange: Exchange, count: int) -> bytes:
    """Return the beginning of an answer, as soon as so much has come."""
    found = b""
    while len(found) < count and (piece := await exchange.chunk()) is not None:
        found += piece
    return found


async def test_an_answer_comes_live_from_the_replica_that_makes_it(fleet: list[TestReplica]) -> None:
    one, two = Turns(b"one "), Turns()
    first, second = gateways(fleet, one, two)
    async with asking(first) as making:
        await making.begin()
        async with asking(second) as reading, asking(second) as joining:
            status, headers = await reading.begin()
            assert (status, dict(headers)["x-turnbridge-idempotent"]) == (200, "joined")
            assert await heard(reading, 4) == b"one "
            await joining.begin()
            assert await heard(joining, 4) == b"one "
            one.say(b"two ")
            assert await heard(reading, 4) == b"two "
            one.say(b"three", End())
            assert await rest(reading) == b"three"
            assert await rest(joining) == b"two three"
        assert await rest(making) == b"one two three"
    assert shown(await ask(second)) == (200, b"one two three", "replayed")
    assert (len(one.asked), two.asked) == (1, [])


async def test_the_maker_goes_on_while_somebody_reads_elsewhere_and_stops_when_nobody_does(
    fleet: list[TestReplica],
) -> None:
    one, two = Turns(b"one "), Turns()
    first, second = gateways(fleet, one, two)
    async with asking(first) as making:
        await making.begin()
        async with asking(second) as reading:
            await reading.begin()
            assert await heard(reading, 4) == b"one "
            making.leave()
            one.say(b"two ")
            assert await heard(reading, 4) == b"two "
            assert not one.interrupted.is_set()
            reading.leave()
            await asyncio.wait_for(one.interrupted.wait(), 20)
    assert two.asked == []


async def test_a_long_answer_comes_whole_though_it_is_not_kept(fleet: list[TestReplica]) -> None:
    one, two = Turns(LONG[:1000]), Turns()
    first, second = gateways(fleet, one, two)
    async with asking(first) as making:
        await making.begin()
        async with asking(second) as reading:
            await reading.begin()
            one.say(LONG[1000:], End())
            assert await rest(reading) == LONG
            assert await rest(making) == LONG
    assert two.asked == []


async def test_an_answer_that_fails_in_the_middle_fails_alike_elsewhere(fleet: list[TestReplica]) -> None:
    one, two = Turns(b"one "), Turns(b"again", End())
    first, second = gateways(fleet, one, two)
    async with asking(first) as making:
        await making.begin()
        async with asking(second) as reading:
            await reading.begin()
            one.say(b"error", End(error_code="upstream_error"))
            assert await rest(reading) == b"one error" == await rest(making)
    # It is not kept, so whoever asks again gets another one.
    assert shown(await ask(second)) == (200, b"again", None)


async def test_a_stream_breaks_when_its_maker_is_lost_and_a_retry_is_run_once(
    fleet: list[TestReplica], server: RedisServer
) -> None:
    one, two = Turns(b"one "), Turns(b"again", End())
    first, second = gateways(fleet, one, two)
    async with asking(first) as making:
        await making.begin()
        async with asking(second) as reading:
            await reading.begin()
            assert await heard(reading, 4) == b"one "
            # The maker is paused, and its lease lapses.
            async with redis.asyncio.Redis.from_url(server.url) as client:
                await client.delete(*await client.keys("turnbridge:once:*"))
            # It breaks, and has no false end.
            assert (await rest(reading), reading.over) == (b"", False)
        assert shown(await ask(second)) == (200, b"again", None)
        # What it says late goes to its own client, and to nobody else.
        one.say(b"late", End())
        assert await rest(making) == b"one late"
    assert shown(await ask(second)) == (200, b"again", "replayed")
    assert (len(one.asked), len(two.asked)) == (1, 1)


async def test_what_one_replica_has_begun_is_not_continued_with_the_answer_of_another(
    fleet: list[TestReplica], server: RedisServer
) -> None:
    one, two = Turns(b"one "), Turns()
    first, second = gateways(fleet, one, two)
    another = await packed(Whole(Head(200, [], "a model", True), b"another answer"))
    assert another is not None
    async with asking(first) as making:
        await making.begin()
        async with asking(second) as reading:
            await reading.begin()
            assert await heard(reading, 4) == b"one "
            # Its maker was lost, and a third replica has made the answer meanwhile.
            async with redis.asyncio.Redis.from_url(server.url) as client:
                (name,) = await client.keys("turnbridge:once:*")
                await client.execute_command("HSET", name, "owner", "replica-3:1", "answer", another)  # type: ignore[no-untyped-call]
            assert (await rest(reading), reading.over) == (b"", False)
        one.say(End())
    assert shown(await ask(second)) == (200, b"another answer", "replayed")


async def test_what_redis_loses_of_a_stream_comes_from_the_whole_answer(
    fleet: list[TestReplica], server: RedisServer
) -> None:
    one, two = Turns(b"one "), Turns()
    first, second = gateways(fleet, one, two)
    async with asking(first) as making:
        await making.begin()
        async with asking(second) as reading:
            await reading.begin()
            assert await heard(reading, 4) == b"one "
            async with redis.asyncio.Redis.from_url(server.url) as client:
                await client.delete(*await client.keys("turnbridge:frames:*"))
            one.say(b"two ", b"three", End())
            assert await rest(reading) == b"two three"
            assert await rest(making) == b"one two three"
    assert two.asked == []


async def test_a_request_that_waits_for_another_replica_is_not_run_because_redis_is_away(
    fleet: list[TestReplica], server: RedisServer
) -> None:
    one, two = Turns(), Turns(b"twice", End())
    first, second = gateways(fleet, one, two)

    async def after_the_maker() -> bool:
        # Every replica has a second to register what it holds; a busy machine may take longer.
        await until(lambda: not fleet[0].redis.is_away)
        return True

    fleet[1].redis.on_back.append(after_the_maker)
    async with asking(first) as making:
        await one.begun.wait()
        async with asking(second) as reading:
            async with redis.asyncio.Redis.from_url(server.url) as client:
                # It has asked, and waits.
                await until_told(lambda: _is_watched(client, fleet[1]))
            await server.kill()
            await until(lambda: all(each.redis.is_away for each in fleet))
            await server.start()
            await until(lambda: not any(each.redis.is_away for each in fleet))
            one.say(b"one", End())
            assert await rest_of(making) == await rest_of(reading) == b"one"
    assert two.asked == []


async def rest_of(exchange: Exchange) -> bytes:
    await exchange.begin()
    return await rest(exchange)


async def _is_watched(client: "redis.asyncio.Redis", reader: TestReplica) -> bool:
    return reader.redis.commands > 3 and bool(await client.keys("turnbridge:once:*"))


async def test_an_answer_that_fails_before_it_begins_is_made_by_whoever_waits(fleet: list[TestReplica]) -> None:
    one, two = Turns(), Turns(b"good", End())
    first, second = gateways(fleet, one, two)
    failing = asyncio.create_task(ask(first))
    await one.begun.wait()
    waiting = asyncio.create_task(ask(second))
    one.say(UpstreamFailed("Broken."))
    assert (await failing).status == 502
    assert shown(await waiting) == (200, b"good", None)
