"""Keeping app-servers ready: what happens when they die, cannot start, know no login, or have grown too large."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.codex.process.idle_worker import Starter, answering
from tests.faults.leftovers import grow, is_whole
from tests.support.processes import resident_mb, restarts
from tests.support.waiting import until
from turnbridge.codex.process import pool as pool_module
from turnbridge.codex.process import worker as worker_module
from turnbridge.codex.process.budget import Budget
from turnbridge.codex.process.pool import (
    Pool,
    Readiness,
)
from turnbridge.codex.process.process import resident_bytes
from turnbridge.codex.process.worker import Worker
from turnbridge.codex.protocol.messages import RateLimits, RateLimitWindow
from turnbridge.turn.errors import BackendUnavailable, LoginRequired
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.anyio

READY = Readiness(ready=True, reason="")
STARTING = Readiness(ready=False, reason="Codex is starting.")
LOGIN_HELP = "Run `turnbridge login`."
PATIENCE_S = 25
"""After this a test has failed."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "first_backoff_s", 0.01)


@asynccontextmanager
async def running(
    starter: Starter, *, most: int = 1, budget: Budget | None = None, on_demand: bool = False
) -> AsyncIterator[Pool]:
    """Run a pool; afterwards none of its processes is left."""
    shared = budget or Budget(most)
    pool = Pool(starter, login_state=lambda: starter.login, login_help=LOGIN_HELP, budget=shared, on_demand=on_demand)
    task = asyncio.create_task(pool.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield pool
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task
        assert not any(map(alive, starter.workers))


def alive(worker: Worker) -> bool:
    try:
        os.kill(worker.process.pid, 0)
    except ProcessLookupError:
        return False
    return True


async def crash(worker: Worker) -> None:
    worker.process.kill()
    await asyncio.shield(worker.process.exited)


@pytest.fixture
async def starter(tmp_path: Path) -> Starter:
    return Starter(tmp_path)


async def test_requests_that_wait_are_served_when_codex_is_ready(starter: Starter) -> None:
    starter.gate.clear()
    async with running(starter) as pool:
        waiting = [asyncio.ensure_future(pool.worker()) for _ in range(3)]
        await asyncio.sleep(0)
        assert pool.readiness() == STARTING
        starter.gate.set()
        assert await asyncio.gather(*waiting) == [starter.workers[0]] * 3
        assert pool.readiness() == READY


async def test_a_request_does_not_wait_for_ever(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "start_timeout_s", 0.01)
    starter.gate.clear()
    async with running(starter) as pool:
        with pytest.raises(BackendUnavailable, match=r"^Codex is starting\.$") as told:
            await pool.worker()
        assert told.value.retry_after


@pytest.mark.promise("faults.restart")
async def test_requests_wait_for_the_successor_of_an_app_server_that_crashed(starter: Starter) -> None:
    async with running(starter) as pool:
        first = await pool.worker()
        starter.gate.clear()
        await crash(first)
        assert pool.readiness().reason == "Codex ended (exit status -9) and is being started again."
        waiting = asyncio.ensure_future(pool.worker())
        await asyncio.sleep(0)
        starter.gate.set()
        assert await waiting is starter.workers[1] is not first
        assert (restarts(pool), pool.readiness()) == (1, READY)


@pytest.mark.promise("faults.restart")
async def test_requests_do_not_wait_for_a_successor_while_another_app_server_serves(starter: Starter) -> None:
    async with running(starter, most=2) as pool:
        await grow(pool, 2)
        first, second = pool.workers
        starter.gate.clear()
        await crash(first)
        assert (await pool.worker(), pool.readiness()) == (second, READY)
        starter.gate.set()
        await starter.has_started(3)
        await until(lambda: pool.workers == [second, starter.workers[2]])


@pytest.mark.promise("faults.death.unseen")
async def test_a_turn_that_lost_its_app_server_waits_for_the_successor_beside_which_nothing_runs(
    starter: Starter,
) -> None:
    async with running(starter, most=2) as pool:
        await grow(pool, 2)
        first, second = pool.workers
        second.load = 1
        starter.gate.clear()
        await crash(first)
        again = asyncio.ensure_future(pool.worker(suspect=True))
        await asyncio.sleep(0.05)
        assert not again.done()
        starter.gate.set()
        assert await again is starter.workers[2]


async def test_the_pool_grows_when_all_are_busy_and_not_before(starter: Starter) -> None:
    async with running(starter, most=2) as pool:
        for load in range(Pool.turns_at_ease):
            assert (await pool.worker()).load == load
            starter.workers[0].load += 1
        assert (pool.target, len(starter.workers)) == (1, 1)
        assert await pool.worker() is starter.workers[0]
        await starter.has_started(2)
        await until(lambda: is_whole(pool))
        assert (pool.target, await pool.worker()) == (2, starter.workers[1])
        for worker in starter.workers:
            worker.load = 9
        await pool.worker()
        assert pool.target == 2, "there are no more than it may have"


async def test_app_servers_beyond_the_first_are_stopped_when_they_are_idle(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "probe_interval_s", 0.01)
    async with running(starter, most=4) as pool:
        await grow(pool, 4)
        first, busy, parked, idle = pool.workers
        busy.load, parked.parked = 1, 1
        for worker in pool.workers:
            worker.idle_since -= Pool.idle_s
        await asyncio.shield(idle.process.exited)
        await asyncio.sleep(0.1)
        assert (pool.workers, pool.target, restarts(pool)) == ([first, busy, parked], 3, 0)


async def test_a_turn_goes_to_the_first_app_server_at_ease_so_that_others_become_idle(starter: Starter) -> None:
    async with running(starter, most=2) as pool:
        await grow(pool, 2)
        first, second = pool.workers
        first.load = Pool.turns_at_ease - 1
        assert await pool.worker() is first
        first.load = Pool.turns_at_ease
        assert await pool.worker() is second


@pytest.mark.parametrize(
    "problem", [BackendUnavailable("Codex could not be started: no such file"), OSError(28, "No space left on device")]
)
async def test_a_start_that_fails_is_told_and_tried_again(starter: Starter, problem: Exception) -> None:
    starter.problems = [problem]
    async with running(starter) as pool:
        await starter.until(lambda: not starter.problems)
        assert str(problem).removeprefix("[Errno 28] ") in pool.readiness().reason
        assert await pool.worker() is starter.workers[0]


class Enough(BaseException):
    """Ends a test that watches a pool's pauses."""


async def pauses_of(start: Callable[[], Awaitable[Worker]], count: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return how long a pool waits before each of its next starts, without waiting."""
    pauses: list[float] = []
    real_sleep, pool_task = asyncio.sleep, asyncio.current_task()

    async def sleep(seconds: float) -> None:
        if asyncio.current_task() is not pool_task:
            await real_sleep(seconds)
            return
        pauses.append(seconds)
        if len(pauses) == count:
            raise Enough
        await real_sleep(0)

    monkeypatch.setattr(Pool, "first_backoff_s", 0.25)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(Enough):
        await Pool(start, login_state=lambda: None, login_help="").run()
    return pauses


@pytest.mark.promise("faults.backoff")
async def test_what_cannot_be_started_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start() -> Worker:
        raise BackendUnavailable("broken")

    pauses = await pauses_of(start, 11, monkeypatch)
    assert pauses == [0, 0, 0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]


async def test_crashes_of_long_ago_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(start=0, step=70)

    async def start() -> Worker:
        at = next(clock)
        monkeypatch.setattr(pool_module, "_now", lambda: at)
        raise BackendUnavailable("broken")

    assert Pool.crash_window_s == 120
    assert await pauses_of(start, 6, monkeypatch) == [0, 0, 0.25, 0.25, 0.25, 0.25]


@pytest.mark.promise("faults.backoff")
async def test_what_dies_before_it_can_serve_is_started_less_and_less_often(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start() -> Worker:
        worker = await starter()
        await crash(worker)
        return worker

    assert await pauses_of(start, 5, monkeypatch) == [0, 0, 0.25, 0.5, 1]


async def test_without_a_login_requests_are_told_how_to_log_in(starter: Starter) -> None:
    starter.login = None
    async with running(starter) as pool:
        with pytest.raises(LoginRequired, match=LOGIN_HELP):
            await pool.worker()
        assert pool.readiness() == Readiness(ready=False, reason=LOGIN_HELP)
        assert await pool.any_worker() is starter.workers[0]


async def test_a_login_that_appears_later_is_noticed_by_the_next_request(starter: Starter) -> None:
    starter.login = None
    async with running(starter) as pool:
        without = await pool.any_worker()
        starter.login = (2, 2)
        served = await asyncio.gather(*(pool.worker() for _ in range(3)))
        assert {worker.login for worker in served} == {(2, 2)}
        assert pool.readiness() == READY
        await asyncio.shield(without.process.exited)


def may_know_less(worker: Worker) -> None:
    """Let an app-server know of no login for a while, which may be in the system's keyring by now."""
    worker.login_missing, worker.login_in_file = True, False
    worker.started_at -= Pool.login_recheck_s + 1


async def test_to_look_for_a_login_again_and_again_is_no_crash(starter: Starter) -> None:
    starter.login = None
    async with running(starter) as pool:
        for _ in range(8):
            await until(lambda: is_whole(pool))
            may_know_less(starter.workers[-1])
            with pytest.raises(LoginRequired, match=LOGIN_HELP):
                await pool.worker()
        assert restarts(pool) == 0


@pytest.mark.promise("commands.login.noticed")
async def test_an_app_server_without_a_login_stays_while_the_login_file_stays(starter: Starter) -> None:
    starter.login = None
    async with running(starter) as pool:
        worker = await pool.any_worker()
        worker.started_at -= Pool.login_recheck_s + 1
        with pytest.raises(LoginRequired, match=LOGIN_HELP):
            await pool.worker()
        assert (pool.readiness().reason, pool.workers, pool.ended.total()) == (LOGIN_HELP, [worker], 0)
        # A provider of the configuration may need none.
        worker.login_providers = frozenset({"proxy"})
        assert await pool.worker(provider="azure") is worker
        with pytest.raises(LoginRequired, match=LOGIN_HELP):
            await pool.worker(provider="proxy")


async def test_while_a_login_is_looked_for_clients_are_told_how_to_log_in(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "start_timeout_s", 0.01)
    starter.login = None
    async with running(starter) as pool:
        await until(lambda: is_whole(pool))
        starter.gate.clear()
        for worker in starter.workers:
            may_know_less(worker)
        for _ in range(2):
            with pytest.raises(LoginRequired, match=LOGIN_HELP):
                await pool.worker()
            assert (pool.workers, pool.readiness()) == ([], Readiness(ready=False, reason=LOGIN_HELP))


async def test_app_servers_that_know_the_login_serve_on_while_those_without_it_are_replaced(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "probe_interval_s", 0.01)
    async with running(starter, most=2) as pool:
        await grow(pool, 2)
        without, knowing = pool.workers
        knowing.load = 1
        without.login_missing = True
        assert (await pool.worker(), pool.readiness()) == (knowing, READY)
        may_know_less(without)
        await asyncio.shield(without.process.exited)
        await starter.has_started(3)
        await until(lambda: pool.workers == [knowing, starter.workers[2]])
        assert alive(knowing)
        assert restarts(pool) == 0


@pytest.mark.promise("commands.login.noticed")
@pytest.mark.parametrize("changed", [(2, 2), None], ids=["another login", "logout"])
async def test_app_servers_with_an_outdated_login_are_replaced(
    starter: Starter, monkeypatch: pytest.MonkeyPatch, changed: tuple[int, int] | None
) -> None:
    monkeypatch.setattr(Pool, "probe_interval_s", 0.01)
    async with running(starter) as pool:
        outdated = await pool.worker()
        starter.login = changed
        await asyncio.sleep(0.1)
        assert pool.workers == [outdated], "it has only just started"
        outdated.started_at -= Pool.login_recheck_s + 1
        await asyncio.shield(outdated.process.exited)
        assert pool.workers == starter.workers[1:]
        assert [worker.login for worker in pool.workers] == [changed]
        assert (restarts(pool), pool.readiness().ready) == (0, changed is not None)


async def test_on_demand_nothing_starts_before_the_first_request(starter: Starter) -> None:
    async with running(starter, on_demand=True) as pool:
        await asyncio.sleep(0)
        assert (starter.workers, pool.readiness()) == ([], STARTING)
        assert await pool.worker() is starter.workers[0]


async def test_on_demand_the_last_app_server_ends_at_rest_and_another_one_serves_the_next_request(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(starter, on_demand=True) as pool:
        first = await pool.worker()
        monkeypatch.setattr(Pool, "idle_s", 0.0)
        pool._check.set()
        await asyncio.shield(first.process.exited)
        assert (pool.workers, pool.target, pool.ended["idle"]) == ([], 0, 1)
        monkeypatch.setattr(Pool, "idle_s", 300.0)
        assert await pool.worker() is starter.workers[1]


async def test_on_demand_what_cannot_be_started_is_not_tried_for_ever(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "start_timeout_s", 0.05)
    starter.problems = [BackendUnavailable("Broken.")] * 99
    async with running(starter, on_demand=True) as pool:
        with pytest.raises(BackendUnavailable, match="could not be started: Broken"):
            await pool.worker()
        monkeypatch.setattr(Pool, "idle_s", 0.0)
        await until(lambda: pool.target == 0)
        assert starter.problems


async def test_pools_share_a_budget_and_each_has_one_app_server_when_it_needs_it(
    tmp_path: Path, starter: Starter
) -> None:
    budget, others = Budget(2), [Starter(tmp_path) for _ in range(2)]
    async with (
        running(starter, budget=budget) as main,
        running(others[0], budget=budget, on_demand=True) as one,
        running(others[1], budget=budget, on_demand=True) as two,
    ):
        await grow(main, 2)
        for worker in main.workers:
            worker.load = Pool.turns_at_ease
        await main.worker()
        assert main.target == 2, "there is no room for more"
        # One that has none takes one from the pool that has most; it ends when its turns have.
        busiest, leaving = main.workers
        leaving.load = 1
        first = await one.worker()
        assert (main.workers, main.target, main.ended["room"], alive(leaving)) == ([busiest], 1, 1, True)
        leaving.load = 0
        await asyncio.shield(leaving.process.exited)
        # Next, an idle one goes; not the last one of a pool that always has one.
        second = await two.worker()
        await asyncio.shield(first.process.exited)
        assert (main.workers, one.workers, two.workers) == ([busiest], [], [second])
        # Nobody waits for turns of other accounts.
        second.load = 1
        assert await one.worker() is others[0].workers[1]
        assert [main.target, one.target, two.target] == [1, 1, 1]


def outgrow(worker: Worker) -> None:
    # More than just so: a process that has just started may still shrink a little.
    worker.first_resident_bytes -= Pool.max_growth_bytes + Pool.bytes_per_thread // 2


def grow_old(worker: Worker) -> None:
    worker.started_at -= Pool.max_age_s


@pytest.mark.promise("faults.recycling")
@pytest.mark.parametrize("age", [outgrow, grow_old])
async def test_an_app_server_that_has_grown_too_old_or_too_large_is_recycled_when_it_is_next_probed(
    starter: Starter, monkeypatch: pytest.MonkeyPatch, age: Callable[[Worker], None]
) -> None:
    monkeypatch.setattr(Pool, "probe_interval_s", 0.01)
    async with running(starter) as pool:
        first = await pool.worker()
        starter.gate.clear()
        age(first)
        await asyncio.sleep(0.1)
        assert pool.workers == [first], "it serves until its replacement is ready"
        starter.gate.set()
        await asyncio.shield(first.process.exited)
        assert pool.workers == [starter.workers[1]]
        assert (restarts(pool), pool.readiness()) == (0, READY)


@pytest.mark.promise("faults.recycling")
async def test_memory_is_measured_whenever_some_threads_were_opened(starter: Starter) -> None:
    async with running(starter) as pool:
        first = await pool.worker()
        outgrow(first)
        for _ in range(Pool.threads_per_probe - 1):
            pool.note_thread(first)
        await asyncio.sleep(0.05)
        assert await pool.worker() is first
        pool.note_thread(first)
        await asyncio.shield(first.process.exited)
        assert await pool.worker() is starter.workers[1]


async def test_threads_that_are_still_held_do_not_count_as_growth(starter: Starter) -> None:
    async with running(starter) as pool:
        worker = await pool.worker()
        outgrow(worker)
        assert pool._is_outgrown(worker)
        worker.held = 1
        assert not pool._is_outgrown(worker)


async def test_memory_is_what_codex_reports_or_else_the_system(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "resident_bytes", lambda _: 777)
    async with running(starter) as pool:
        worker = await pool.worker()
        assert worker.resident_bytes == worker.first_resident_bytes == 777
        reported: JsonObject = {"process": {"residentMemoryBytes": 12345}}
        worker.connection = answering(reported)
        await pool._probe(worker)
        assert worker.resident_bytes == 12345


async def test_turns_that_wait_for_a_client_keep_a_recycled_app_server_for_a_while_and_no_longer(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "drain_poll_s", 0.01)
    monkeypatch.setattr(Pool, "threads_per_probe", 1)
    later, now = [0.0], pool_module._now
    monkeypatch.setattr(pool_module, "_now", lambda: now() + later[0])
    async with running(starter) as pool:
        first = await pool.worker()
        first.parked = 1
        outgrow(first)
        pool.note_thread(first)
        await starter.has_started(2)
        await until(lambda: pool.workers == [starter.workers[1]])
        # Time enough for many looks.
        await asyncio.sleep(0.2)
        assert alive(first)
        later[0] = Pool.parked_grace_s
        await asyncio.shield(first.process.exited)


def serves(pool: Pool, worker: Worker) -> Callable[[], bool]:
    return lambda: pool.workers == [worker]


async def test_of_replaced_app_servers_that_wait_for_clients_only_as_many_stay_as_serve(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "drain_poll_s", 0.01)
    monkeypatch.setattr(Pool, "threads_per_probe", 1)
    async with running(starter) as pool:
        for number in range(3):
            await starter.has_started(number + 1)
            worker = starter.workers[number]
            await until(serves(pool, worker))
            worker.parked = 1
            outgrow(worker)
            pool.note_thread(worker)
        await starter.has_started(4)
        first, second, third, *_ = starter.workers
        await asyncio.gather(*(asyncio.shield(worker.process.exited) for worker in (first, second)))
        await asyncio.sleep(0.05)
        assert alive(third)


async def test_of_busy_app_servers_the_one_that_has_least_to_do_gets_the_turn(starter: Starter) -> None:
    async with running(starter, most=3) as pool:
        await grow(pool, 3)
        one, two, three = pool.workers
        one.load, two.load, three.load = 3, 2, 2
        # One that waits for a client has nothing to do.
        three.parked = 9
        chosen = []
        for _ in range(5):
            chosen.append(await pool.worker())
            chosen[-1].load += 1
        assert chosen == [two, three, one, two, three]


def test_the_memory_of_a_process_is_what_the_system_says() -> None:
    if not Path("/proc").exists():
        pytest.skip("only Linux tells it in files")
    assert resident_bytes(os.getpid()) / 1e6 == pytest.approx(resident_mb(os.getpid()), rel=0.1)
    assert resident_bytes(0) == 0


async def test_an_app_server_that_leaves_two_calls_unanswered_is_recycled_once(starter: Starter) -> None:
    async with running(starter) as pool:
        first = await pool.worker()
        for _ in range(2):
            first.connection.on_timeout()
        await starter.has_started(2)
        assert (pool.ended["unanswered"], await pool.worker()) == (1, starter.workers[1])


async def test_after_another_login_nothing_is_known_of_the_earlier_plan(starter: Starter) -> None:
    starter.login = None
    async with running(starter) as pool:
        await pool.first_readiness()
        pool.plan.update(RateLimits(primary=RateLimitWindow(used_percent=50)))
        starter.login = (2, 2)
        await pool.worker()
        assert pool.plan.windows(0) == {}


async def test_while_an_app_server_starts_for_busy_ones_no_further_one_is_asked_for(starter: Starter) -> None:
    async with running(starter, most=3) as pool:
        (await pool.worker()).load = 9
        starter.gate.clear()
        for _ in range(2):
            await pool.worker()
            await asyncio.sleep(0)
        assert pool.target == 2
        starter.gate.set()


async def test_the_pool_ends_when_those_have_ended_that_are_being_stopped(starter: Starter) -> None:
    stopping, stopped, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async with running(starter) as pool:
        hanging = (await pool.worker()).process
        stop = hanging.stop

        async def stop_late() -> None:
            stopping.set()
            await go_on.wait()
            await stop()
            stopped.set()

        hanging.stop = stop_late  # type: ignore[method-assign]
        pool.workers[0].connection.on_timeout()
        await stopping.wait()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    assert stopped.is_set()
