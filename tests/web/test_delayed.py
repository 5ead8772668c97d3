"""Work beside a block: begun after a while, given up with the block, or waited for."""

import asyncio

import pytest

from tests.web.waiting_work import Work
from turnbridge.web.answer import Delayed

pytestmark = pytest.mark.anyio

SOON_S = 0.001
LONG_S = 60.0


@pytest.mark.parametrize("delay_s", [LONG_S, None])
async def test_a_block_that_is_over_before_begins_nothing(delay_s: float | None) -> None:
    work = Work()
    with Delayed(delay_s, work.run) as later:
        await asyncio.sleep(SOON_S)
        await later.settled()
    assert not work.begun.is_set()


async def test_postponed_work_begins_once_nothing_postpones_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Delayed, "postponed_check_s", SOON_S)
    work, looked = Work(), 0

    def postponed() -> bool:
        nonlocal looked
        looked += 1
        return looked < 3

    with Delayed(SOON_S, work.run, postponed=postponed):
        await work.begun.wait()
    assert looked == 3


async def test_postponed_work_is_not_waited_for() -> None:
    work, due = Work(), asyncio.Event()

    def postponed() -> bool:
        due.set()
        return True

    with Delayed(SOON_S, work.run, postponed=postponed) as beside:
        await due.wait()
        await beside.settled()
    assert not work.begun.is_set()


async def test_what_has_begun_ends_with_the_block() -> None:
    work = Work()
    with Delayed(SOON_S, work.run):
        await work.begun.wait()
    await asyncio.sleep(0)
    assert work.ended_as == "cancelled"


async def test_what_has_begun_can_be_waited_for() -> None:
    work = Work()
    with Delayed(SOON_S, work.run) as later:
        await work.begun.wait()
        asyncio.get_running_loop().call_later(SOON_S, work.may_end.set)
        await later.settled()
        assert work.ended_as == "whole"


async def test_a_block_that_is_cancelled_while_it_waits_ends_what_has_begun() -> None:
    work = Work()

    async def block() -> None:
        with Delayed(SOON_S, work.run) as later:
            await work.begun.wait()
            await later.settled()

    blocked = asyncio.ensure_future(block())
    await work.begun.wait()
    await asyncio.sleep(0)
    blocked.cancel()
    await asyncio.wait((blocked,))
    assert blocked.cancelled()
    assert work.ended_as == "cancelled"
