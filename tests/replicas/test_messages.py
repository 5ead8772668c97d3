"""Messages between replicas, over a real Postgres and a real Redis."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio
from structlog.testing import capture_logs

from tests.store.postgres_server import running_postgres
from tests.support.redis_server import RedisServer
from tests.support.waiting import until
from turnbridge.replicas import messages
from turnbridge.replicas.messages import Messages
from turnbridge.replicas.postgres_messages import PostgresMessages
from turnbridge.replicas.redis import RedisTiming, SharedRedis
from turnbridge.replicas.redis_messages import RedisMessages

pytestmark = pytest.mark.anyio

QUICK = RedisTiming(timeout_s=5, retry_s=0.02, settle_s=0.02)


class Pair:
    """Two replicas, and what the second has heard."""

    def __init__(
        self,
        make: Callable[[str], Messages],
        interrupt: Callable[[], Awaitable[None]],
        say: Callable[[str], Awaitable[object]],
    ) -> None:
        self.first, self.second = make("first-1"), make("second.2")
        self.interrupt, self.say = interrupt, say
        self.heard: list[tuple[str, ...]] = []
        self.second.on("two", 2, lambda *fields: self.heard.append(fields))

    async def hears(self, *expected: tuple[str, ...]) -> None:
        await until(lambda: self.heard == [*expected])


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Return the URL of a Postgres."""
    with running_postgres() as url:
        yield url


@contextlib.asynccontextmanager
async def over_redis(folder: Path) -> AsyncIterator[Pair]:
    server = RedisServer(folder)
    async with server.running(), redis.asyncio.Redis.from_url(server.url) as client:
        shared = [SharedRedis(server.url, QUICK) for _ in range(2)]
        left = iter(shared)

        async def interrupt() -> None:
            await client.client_kill_filter(_type="pubsub")

        yield Pair(
            lambda name: RedisMessages(name, next(left)),
            interrupt,
            lambda text: client.publish("turnbridge_second.2", text),
        )
        for each in shared:
            await each.aclose()


@contextlib.asynccontextmanager
async def over_postgres(url: str) -> AsyncIterator[Pair]:
    connection = await asyncpg.connect(url)

    async def interrupt() -> None:
        ours = "application_name = 'turnbridge messages'"
        await connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")

    yield Pair(
        lambda name: PostgresMessages(name, url),
        interrupt,
        lambda text: connection.execute("SELECT pg_notify('turnbridge_second.2', $1)", text),
    )
    await connection.close()


@pytest.fixture(params=["redis", "postgres"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """Return two replicas that hear each other."""
    monkeypatch.setattr(Messages, "retry_s", 0.02)
    made_over = over_redis(tmp_path) if request.param == "redis" else over_postgres(request.getfixturevalue("postgres"))
    async with made_over as made:
        tasks = [asyncio.create_task(each.run()) for each in (made.first, made.second)]
        await until(lambda: made.first.connected.is_set() and made.second.connected.is_set())
        yield made
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_message_goes_to_one_replica_and_what_is_not_understood_to_nobody(pair: Pair) -> None:
    pair.first.on("two", 2, lambda *_: pytest.fail("It was for the other one."))
    with capture_logs() as logs:
        for text in ("{", "[]", '["two"]', '["later", "a"]'):
            await pair.say(text)
        pair.first.tell("second.2", ("two", "a", "b", "of a later version"))
        pair.first.tell("second.2", ("two", "c" * messages.LONGEST_BYTES, ""))
        pair.second.tell("second.2", ("two", "itself", ""))
        pair.first.tell("second.2", ("two", "c", "ü"))
        await pair.hears(("itself", ""), ("a", "b"), ("c", "ü"))
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["replica_message_unreadable"]


async def test_a_connection_that_breaks_is_opened_again(pair: Pair) -> None:
    with capture_logs() as logs:
        await pair.interrupt()
        await until(lambda: any(line["event"] == "replica_messages_away" for line in logs))
        await until(lambda: pair.first.connected.is_set() and pair.second.connected.is_set())

    def told_again() -> bool:
        # What is sent while it is away may be lost.
        pair.first.tell("second.2", ("two", "again", ""))
        return bool(pair.heard)

    await until(told_again)
