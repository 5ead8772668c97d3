"""The Redis that replicas share: its circuit breaker, on a real server."""

import asyncio
import socket
import time

import pytest
from structlog.testing import capture_logs

from tests.support.redis_server import RedisServer
from tests.support.waiting import until
from turnbridge.engine.sharing import SharedStateAway
from turnbridge.replicas.redis import RedisTiming, SharedRedis
from turnbridge.replicas.script import Script

pytestmark = pytest.mark.anyio

QUICK = RedisTiming(timeout_s=0.3, retry_s=0.02, settle_s=0.02)
COUNT = Script("return {redis.call('INCR', KEYS[1]), #ARGV}")


async def count(shared: SharedRedis) -> int:
    return (await shared.script(COUNT, ["counter"], ["value"]))[0]


async def test_a_script_is_sent_once_and_known_afterwards(server: RedisServer) -> None:
    shared = SharedRedis(server.url, QUICK)
    assert [await shared.script(COUNT, ["counter"], ["a", 2, "c"]) for _ in range(2)] == [[1, 3], [2, 3]]
    assert (shared.commands, shared.is_away) == (2, False)
    await shared.aclose()


async def test_a_killed_server_costs_one_command_and_comes_back_by_itself(server: RedisServer) -> None:
    shared = SharedRedis(server.url, QUICK)
    answers: list[bool] = [False, True]

    async def register() -> bool:
        assert shared.is_away
        return answers.pop(0)

    shared.on_back.append(register)
    assert await count(shared) == 1
    with capture_logs() as logs:
        await server.kill()
        for _ in range(3):
            with pytest.raises(SharedStateAway):
                await count(shared)
        assert shared.commands <= 3
        assert shared.away_since == pytest.approx(time.time(), abs=20)
        await server.start()
        await until(lambda: not shared.is_away)
    assert answers == []
    assert await count(shared) == 1
    assert [entry["event"] for entry in logs] == ["redis_away", "redis_back"]
    await shared.aclose()


async def test_a_server_that_does_not_answer_never_blocks_the_loop(server: RedisServer) -> None:
    shared = SharedRedis(server.url, QUICK)
    await count(shared)
    ticks, stop = 0, asyncio.Event()

    async def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with server.paused():
        results = await asyncio.gather(*[count(shared) for _ in range(50)], return_exceptions=True)
        assert {type(result) for result in results} == {SharedStateAway}
        assert ticks > 3
        with pytest.raises(SharedStateAway):
            await count(shared)
    await until(lambda: not shared.is_away)
    stop.set()
    await ticking
    assert await count(shared) >= 2
    await shared.aclose()


async def test_a_server_that_was_never_there_is_away_from_the_start() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        shared = SharedRedis(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", QUICK)
        with capture_logs() as logs:
            await shared.open()
        assert shared.is_away
        assert [entry["event"] for entry in logs] == ["redis_away"]
        await shared.aclose()
