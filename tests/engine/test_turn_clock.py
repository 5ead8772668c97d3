"""How long a turn may take, whoever is waited for meanwhile."""

import asyncio

import pytest

from tests.support.passing_time import PassingTime, on_a_loop_of_its_own
from turnbridge.engine.turn_rules import TurnClock, Watch
from turnbridge.turn.errors import GatewayError, InvalidApiKey, TurnTimeout

pytestmark = pytest.mark.anyio


class Thread:
    """A conversation that can only fail."""

    def __init__(self, *, heard: bool = True) -> None:
        self.heard = heard
        self.failed: asyncio.Future[GatewayError] = asyncio.get_running_loop().create_future()

    def fail(self, error: GatewayError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)


async def test_a_turn_ends_in_time_though_its_client_was_waited_for_in_between() -> None:
    thread = Thread()
    clock = TurnClock(Watch(silence_s=1, whole_s=1.5), thread)  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not thread.failed.done() and loop.time() < began + 20:
        clock.wait()
        await asyncio.sleep(0.04)
        clock.heard()
        await asyncio.sleep(0.01)
        clock.wait()
    error = await thread.failed
    clock.stop()
    assert isinstance(error, TurnTimeout)
    assert "longer than 1.5 seconds" in error.message


@pytest.mark.parametrize(
    ("heard", "passed_s", "told"),
    [
        (False, 19, None),
        (False, 21, "provider sent nothing for 20 seconds"),
        (True, 59, None),
        (True, 61, "silent for 60 seconds"),
    ],
)
@on_a_loop_of_its_own
async def test_a_provider_has_a_third_of_the_idle_timeout_for_its_first_sign(
    heard: bool, passed_s: int, told: str | None
) -> None:
    time, thread = PassingTime(), Thread(heard=heard)
    clock = TurnClock(Watch(silence_s=60, whole_s=600), thread)  # type: ignore[arg-type]
    clock.wait()
    await time.go_on(passed_s)
    clock.stop()
    assert thread.failed.done() is (told is not None)
    if told is not None:
        assert told in thread.failed.result().message


async def test_a_turn_whose_time_is_up_while_its_client_reads_ends_as_soon_as_the_model_is_waited_for() -> None:
    thread = Thread()
    clock = TurnClock(Watch(silence_s=60, whole_s=0.05), thread)  # type: ignore[arg-type]
    clock.wait()
    clock.heard()
    await asyncio.sleep(0.1)
    assert not thread.failed.done()
    clock.wait()
    assert thread.failed.done()
    clock.stop()


async def test_a_turn_that_says_nothing_ends_when_its_whole_time_is_up() -> None:
    thread = Thread()
    clock = TurnClock(Watch(silence_s=60, whole_s=0.05), thread)  # type: ignore[arg-type]
    clock.wait()
    error = await asyncio.wait_for(thread.failed, 20)
    clock.stop()
    assert "longer than 0.05 seconds" in error.message


async def test_a_turn_that_is_over_is_not_watched_any_more() -> None:
    thread, watch = Thread(), Watch(silence_s=60, whole_s=0.05)
    clock = TurnClock(watch, thread)  # type: ignore[arg-type]
    clock.wait()
    clock.stop()
    await asyncio.sleep(0.1)
    assert not thread.failed.done()
    assert watch.turns == set()


async def test_only_the_turns_of_a_client_whose_key_ended_end_and_those_that_are_just_beginning() -> None:
    watch, threads = Watch(silence_s=60, whole_s=60), [Thread() for _ in range(3)]
    clocks = [TurnClock(watch, thread, client) for thread, client in zip(threads, "aba", strict=True)]  # type: ignore[arg-type]
    clocks[2].stop()
    watch.bar(frozenset("a"))
    assert [thread.failed.done() for thread in threads] == [True, False, False]
    beginning = TurnClock(watch, threads[2], "a")  # type: ignore[arg-type]
    beginning.wait()
    assert isinstance(threads[2].failed.result(), InvalidApiKey)
    for clock in (*clocks, beginning):
        clock.stop()
