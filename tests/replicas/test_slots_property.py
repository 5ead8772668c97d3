"""Any interleaving of two replicas, crashes included: Redis holds what a model holds, and no limit is exceeded."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
import redis.asyncio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.replicas.stammering import Stammering
from tests.support.redis_server import RedisServer
from turnbridge.engine.sharing import SlotLease, Verdict
from turnbridge.replicas.redis import RedisTiming
from turnbridge.replicas.registry import Registry
from turnbridge.replicas.replica import LEASE_S, RENEWAL_S, Replica
from turnbridge.replicas.slots import HELD, MICROSECONDS, RUNNING, WAITING, SharedSlots

T = TypeVar("T")

TOTAL, OF_CLIENT, MOST = 3, 2, 4
CLIENTS = ("ann", "bob")
REPLICAS = st.integers(0, 1)
# A loaded machine must not look like a Redis that is away.
PATIENT = RedisTiming(timeout_s=20.0)


class Held:
    """A lease in the model."""

    def __init__(self, replica: int, lease: SlotLease) -> None:
        self.replica = replica
        self.lease = lease
        self.dead_s: float | None = None
        """How long ago its replica was killed."""


class Slots(RuleBasedStateMachine):
    """Two replicas, and what they hold."""

    url: ClassVar[str]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.starts = 0
        self.held: list[Held] = []
        self.observer = redis.asyncio.Redis.from_url(self.url, decode_responses=True)
        self.do(self.observer.flushdb())
        self.replicas = [self.started(), self.started()]

    def do(self, work: Awaitable[T]) -> T:
        return self.runner.run(_awaited(work))

    def started(self) -> tuple[Replica, SharedSlots]:
        """Return a replica that was just started."""
        self.starts += 1

        async def start() -> tuple[Replica, SharedSlots]:
            replica = Replica(Registry(f"replica-{self.starts}", None), Stammering(self.url, PATIENT))
            return replica, SharedSlots(replica)

        return self.do(start())

    def counts(self) -> tuple["Counter[str]", "Counter[str]"]:
        """Return how many turns of each client run, and how many it has, as the model knows."""
        running: Counter[str] = Counter()
        has: Counter[str] = Counter()
        for each in self.held:
            has[each.lease.client] += each.lease.share
            running[each.lease.client] += each.lease.turns if each.lease.started else 0
        return running, has

    @rule(replica=REPLICAS, client=st.sampled_from(CLIENTS), turns=st.integers(1, 2), start=st.booleans())
    def take(self, replica: int, client: str, turns: int, *, start: bool) -> None:
        running, has = self.counts()
        slots = self.replicas[replica][1]
        lease = slots.lease(client, turns, turns, MOST)
        expected = (
            Verdict.TOO_MANY
            if has[client] + turns > MOST
            else Verdict.QUEUED
            if not start
            else self.verdict(running, lease)
        )
        assert self.asked(slots, lease, start=start) is expected
        if expected is Verdict.TOO_MANY:
            self.give_back_now(replica, lease)
        else:
            self.held.append(Held(replica, lease))

    @precondition(lambda self: any(each.dead_s is None and not each.lease.started for each in self.held))
    @rule(data=st.data())
    def start_one_that_waits(self, data: st.DataObject) -> None:
        waiting = [each for each in self.held if each.dead_s is None and not each.lease.started]
        chosen = data.draw(st.sampled_from(waiting))
        running, _ = self.counts()
        expected = self.verdict(running, chosen.lease)
        assert self.asked(self.replicas[chosen.replica][1], chosen.lease, start=True) is expected

    @precondition(lambda self: any(each.dead_s is None for each in self.held))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from([each for each in self.held if each.dead_s is None]))
        self.held.remove(chosen)
        self.give_back_now(chosen.replica, chosen.lease)

    @rule(replica=REPLICAS)
    def crash_and_start_again(self, replica: int) -> None:
        dead = self.replicas[replica][0]
        assert dead.redis is not None
        self.do(dead.redis.aclose())
        self.replicas[replica] = self.started()
        for each in self.held:
            if each.replica == replica and each.dead_s is None:
                each.dead_s = 0.0

    @rule(replica=REPLICAS, stammers=st.booleans())
    def lose_answers(self, replica: int, *, stammers: bool) -> None:
        """Let every script of a replica run twice from now on, or once."""
        shared = self.replicas[replica][0].redis
        assert isinstance(shared, Stammering)
        shared.stammers = stammers

    @rule()
    def let_time_pass(self) -> None:
        """Let everything age by one period of renewal, in which whoever lives renews."""
        self.do(self.aged(RENEWAL_S))
        for replica, _ in self.replicas:
            for renew in replica.renewals:
                self.do(renew())
        for each in self.held:
            each.dead_s = None if each.dead_s is None else each.dead_s + RENEWAL_S
        self.held = [each for each in self.held if each.dead_s is None or each.dead_s < LEASE_S]

    @rule()
    def lose_redis(self) -> None:
        """Let Redis come back empty: replicas register what they hold before they use it."""
        self.do(self.observer.flushdb())
        self.held = [each for each in self.held if each.dead_s is None]
        for replica, _ in self.replicas:
            assert replica.redis is not None
            for register in replica.redis.on_back:
                assert self.do(register())

    @invariant()
    def redis_holds_what_the_model_holds(self) -> None:
        running, has = self.counts()
        found = {name: self.do(self.live(name)) for name in (RUNNING, *(f"{HELD}:{each}" for each in CLIENTS))}
        assert found == {RUNNING: running.total(), **{f"{HELD}:{each}": has[each] for each in CLIENTS}}
        assert running.total() <= TOTAL
        assert max(running.values(), default=0) <= OF_CLIENT
        assert max(has.values(), default=0) <= MOST

    def teardown(self) -> None:
        for replica, _ in self.replicas:
            assert replica.redis is not None
            self.do(replica.redis.aclose())
        self.do(self.observer.aclose())

    @staticmethod
    def verdict(running: "Counter[str]", lease: SlotLease) -> Verdict:
        if running[lease.client] + lease.turns > OF_CLIENT:
            return Verdict.CLIENT_FULL
        return Verdict.FULL if running.total() + lease.turns > TOTAL else Verdict.STARTED

    def asked(self, slots: SharedSlots, lease: SlotLease, *, start: bool) -> Verdict:
        async def ask() -> Verdict:
            verdict, _ = await slots.take(lease, total=TOTAL, of_client=OF_CLIENT, start=start)
            # Who waits is served in turn, which another test looks at.
            await self.observer.delete(*WAITING, *(f"{RUNNING}:{client}:waits" for client in CLIENTS))
            return verdict

        return self.do(ask())

    def give_back_now(self, replica: int, lease: SlotLease) -> None:
        sharing, slots = self.replicas[replica]

        async def give_back() -> None:
            slots.give_back(lease)
            await asyncio.sleep(0)
            # Sent after it, on the same connection.
            for renew in sharing.renewals:
                await renew()

        self.do(give_back())

    async def aged(self, seconds: float) -> None:
        for name in await self.observer.keys("turnbridge:*"):
            for member in await self.observer.zrange(name, 0, -1):
                await self.observer.zincrby(name, -seconds * MICROSECONDS, member)

    async def live(self, name: str) -> int:
        now, _ = await self.observer.time()
        return int(await self.observer.zcount(name, now * MICROSECONDS, "+inf"))


async def _awaited(work: Awaitable[T]) -> T:
    return await work


@pytest.fixture
def running_redis(tmp_path: Path) -> Iterator[None]:
    """Run a Redis, and a loop for the machine, which is not asynchronous."""
    server = RedisServer(tmp_path)
    with asyncio.Runner() as runner:
        runner.run(server.start())
        Slots.url, Slots.runner = server.url, runner
        yield
        runner.run(server.kill())


@pytest.mark.promise("replicas.turns", "replicas.lapse")
@pytest.mark.usefixtures("running_redis")
def test_whatever_two_replicas_do_no_limit_is_exceeded_and_no_slot_is_lost() -> None:
    run_state_machine_as_test(
        Slots,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
