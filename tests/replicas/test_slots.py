"""Turn slots that replicas share, on a real Redis."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
import redis.asyncio

from tests.replicas.fleet import TestReplica, replicas
from tests.support.redis_server import RedisServer
from tests.support.waiting import until, until_told
from turnbridge.engine.shared_admission import SharedAdmission
from turnbridge.replicas.replica import LEASE_S, RENEWAL_S
from turnbridge.replicas.slots import MICROSECONDS, RUNNING, SharedSlots
from turnbridge.turn.errors import BackendUnavailable, RateLimited

pytestmark = pytest.mark.anyio

PATIENCE_S = 20.0


class Door:
    """The admission queues of all replicas, and how many turns run behind them."""

    def __init__(self, fleet: Sequence[TestReplica], turns: int, each: int | None = None, clients: int = 1) -> None:
        self.replicas = [
            SharedAdmission(
                SharedSlots(one.replica),
                turns=turns,
                waiting=1000,
                patience_s=PATIENCE_S,
                turns_per_client=each,
                clients=lambda: clients,
            )
            for one in fleet
        ]
        self.running = self.most = 0
        self.over = asyncio.Event()
        self.order: list[int] = []

    async def visit(self, replica: int, client: str = "client", *, turns: int = 1, steps: int | None = None) -> bool:
        """Run a turn, for some steps of the loop or until all are over; tell whether it was let in."""
        try:
            async with self.replicas[replica].admitted(client, turns):
                self.order.append(replica)
                self.running += turns
                self.most = max(self.most, self.running)
                try:
                    if steps is None:
                        await self.over.wait()
                    for _ in range(steps or 0):
                        await asyncio.sleep(0)
                finally:
                    self.running -= turns
        except RateLimited:
            return False
        return True


async def cards(server: RedisServer) -> dict[str, int]:
    """Return how many members each set of turns has."""
    async with redis.asyncio.Redis.from_url(server.url, decode_responses=True) as client:
        names = [name for name in await client.keys("turnbridge:turns:*") if "waiting" not in name]
        return {name: await client.zcard(name) for name in names}


@pytest.mark.promise("replicas.turns")
async def test_no_more_turns_run_on_all_replicas_than_on_one_and_every_request_has_its_turn(
    server: RedisServer,
) -> None:
    async with replicas(server.url, 2) as fleet:
        door = Door(fleet, turns=4)
        let_in = await asyncio.gather(*[door.visit(number % 2, steps=200) for number in range(60)])
        assert (all(let_in), door.most, door.running) == (True, 4, 0)
        # One command for each turn and few more: those that asked in vain, and what was given back at the end.
        assert sum(each.redis.commands for each in fleet) < 200
        await _until_empty(server)


@pytest.mark.promise("replicas.turns")
async def test_the_limit_of_a_client_holds_on_all_replicas_together(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        door = Door(fleet, turns=64, each=5)
        visits = [asyncio.create_task(door.visit(number % 2)) for number in range(20)]
        await until(lambda: sum(visit.done() for visit in visits) == 15)
        assert door.running == 5
        other = asyncio.create_task(door.visit(0, "other"))
        await until(lambda: door.running == 6)
        with pytest.raises(RateLimited, match=r"at most 5 turns running or queued; it has 5\."):
            await door.replicas[1].admitted("client").__aenter__()
        door.over.set()
        assert sum(await asyncio.gather(*visits)) == 5
        assert await other
        assert await door.visit(1, steps=1)


@pytest.mark.promise("replicas.turns")
async def test_one_client_never_runs_all_turns_of_all_replicas(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        door = Door(fleet, turns=16, clients=2)
        visits = [asyncio.create_task(door.visit(number % 2)) for number in range(30)]
        await until(lambda: door.running == 14)
        quiet = asyncio.create_task(door.visit(1, "quiet"))
        await until(lambda: door.running == 15)
        door.over.set()
        assert all(await asyncio.gather(*visits, quiet))


@pytest.mark.promise("replicas.turns")
async def test_replicas_that_wait_get_turns_in_rotation(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        door = Door(fleet, turns=1)
        holder = asyncio.create_task(door.visit(0))
        await until(lambda: door.running == 1)
        visits = [asyncio.create_task(door.visit(0, steps=2)) for _ in range(8)]
        visits += [asyncio.create_task(door.visit(1, steps=2)) for _ in range(4)]
        await until(lambda: sum(each.waiting for each in door.replicas) == 12)
        # The other one has asked in vain, and is in Redis' queue.
        async with redis.asyncio.Redis.from_url(server.url) as client:
            await until_told(lambda: client.zcard("turnbridge:turns:waiting"))
        door.over.set()
        await asyncio.gather(holder, *visits)
        assert door.order[1:9].count(1) >= 3, door.order


@pytest.mark.promise("replicas.lapse")
async def test_the_turns_of_a_killed_replica_are_free_within_30_seconds(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        door = Door(fleet, turns=3, each=3)
        dead = fleet[0]
        lost = [asyncio.create_task(door.visit(0)) for _ in range(3)]
        await until(lambda: door.running == 3)
        # It is killed: nothing renews what it holds, and nothing gives it back.
        dead.replica.renewals.clear()
        dead.replica.endings.clear()
        await dead.redis.client.aclose()
        assert not await door.visit(1, steps=1)
        await _shift(server, LEASE_S)
        assert await door.visit(1, steps=1)
        assert LEASE_S <= 30
        assert RENEWAL_S * 3 <= LEASE_S
        for visit in lost:
            visit.cancel()
        await asyncio.wait(lost)


@pytest.mark.promise("replicas.lapse")
async def test_what_a_living_replica_holds_is_renewed(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        door = Door(fleet, turns=2)
        visit = asyncio.create_task(door.visit(0))
        await until(lambda: door.running == 1)
        for _ in range(4):
            await _shift(server, RENEWAL_S)
            for renew in fleet[0].replica.renewals:
                await renew()
        assert (await cards(server))[RUNNING] == 1
        door.over.set()
        assert await visit


@pytest.mark.promise("replicas.redis-away")
async def test_without_redis_each_replica_runs_its_share_and_the_counts_are_right_afterwards(
    server: RedisServer,
) -> None:
    async with replicas(server.url, 2) as fleet:
        door = Door(fleet, turns=8, each=6)
        visits = [asyncio.create_task(door.visit(0)) for _ in range(2)]
        await until(lambda: door.running == 2)
        await server.kill()
        # Its limit is 6 for each client, of which a half is 3; both replicas together never have more than 6.
        visits += [asyncio.create_task(door.visit(number % 2)) for number in range(20)]
        await until(lambda: sum(visit.done() for visit in visits) == 16)
        assert door.running == 6
        assert all(each.redis.is_away for each in fleet)
        await server.start()
        await until(lambda: not any(each.redis.is_away for each in fleet))
        assert await cards(server) == {RUNNING: 6, f"{RUNNING}:client": 6, "turnbridge:turns:held:client": 6}
        assert not await door.visit(1)
        door.over.set()
        await asyncio.gather(*visits)
        await _until_empty(server)


async def test_a_request_that_leaves_while_redis_is_asked_holds_nothing(server: RedisServer) -> None:
    async with replicas(server.url, 1) as fleet:
        door = Door(fleet, turns=1, each=1)
        for _ in range(20):
            visit = asyncio.create_task(door.visit(0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            visit.cancel()
            await asyncio.wait((visit,))
        await _until_empty(server)
        # A command that was on its way may still take a slot, which is given back at once.
        await until_told(lambda: door.visit(0, steps=1))


async def test_a_replica_that_stops_gives_everything_back_at_once(server: RedisServer) -> None:
    async with replicas(server.url, 1) as fleet:
        slots = SharedSlots(fleet[0].replica)
        lease = slots.lease("client", 2, 2, 5)
        await slots.take(lease, total=8, of_client=8, start=True)
        assert set((await cards(server)).values()) == {2}
    assert await cards(server) == {}
    assert await server.keys() == []


async def test_a_request_waits_no_longer_than_it_may(server: RedisServer) -> None:
    async with replicas(server.url, 2) as fleet:
        door = Door(fleet, turns=1)
        holder = asyncio.create_task(door.visit(0))
        await until(lambda: door.running == 1)
        impatient = SharedAdmission(SharedSlots(fleet[1].replica), turns=1, waiting=5, patience_s=0.05)
        with pytest.raises(BackendUnavailable):
            await impatient.admitted("client").__aenter__()
        holder.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await holder


async def _shift(server: RedisServer, seconds: float) -> None:
    """Bring every deadline nearer, as time does."""
    async with redis.asyncio.Redis.from_url(server.url) as client:
        for name in await client.keys("turnbridge:turns:*"):
            if await client.type(name) == b"zset":
                for member in await client.zrange(name, 0, -1):
                    await client.zincrby(name, -seconds * MICROSECONDS, member)


async def _until_empty(server: RedisServer) -> None:
    async def is_empty() -> bool:
        return not await cards(server)

    await until_told(is_empty)
