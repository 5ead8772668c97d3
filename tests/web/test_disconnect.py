"""A client that leaves ends its answer; one that stays hears all of it; whoever else ends the request is obeyed."""

import asyncio

import pytest
from starlette.types import Message

from tests.web.waiting_work import Work
from turnbridge.web.answer import serve_until_disconnect

pytestmark = pytest.mark.anyio


class Line:
    """What a server tells of a client: nothing, until it has left."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}


async def test_an_answer_is_whole_if_the_client_stays() -> None:
    work = Work()
    work.may_end.set()
    await serve_until_disconnect(Line().receive, work.run())
    assert work.ended_as == "whole"
    # Nothing is left behind that would end whatever this task does next.
    await asyncio.sleep(0)


async def test_an_answer_that_fails_raises_its_error() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await serve_until_disconnect(Line().receive, fail())


async def test_a_client_that_leaves_ends_its_answer_and_nothing_is_raised() -> None:
    line, work = Line(), Work()
    serving = asyncio.ensure_future(serve_until_disconnect(line.receive, work.run()))
    await work.begun.wait()
    line.left.set()
    await serving
    assert work.ended_as == "cancelled"


async def test_a_client_that_is_given_up_ends_its_answer_likewise() -> None:
    work = Work()
    answering = asyncio.ensure_future(work.run())
    serving = asyncio.ensure_future(serve_until_disconnect(Line().receive, answering))
    await work.begun.wait()
    answering.cancel()
    await serving
    assert work.ended_as == "cancelled"


async def test_a_server_that_stops_ends_the_answer_and_is_obeyed() -> None:
    work = Work()
    serving = asyncio.ensure_future(serve_until_disconnect(Line().receive, work.run()))
    await work.begun.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert work.ended_as == "cancelled"


async def test_a_server_that_stops_just_when_the_answer_is_whole_is_obeyed() -> None:
    work = Work()
    serving = asyncio.ensure_future(serve_until_disconnect(Line().receive, work.run()))
    await work.begun.wait()
    work.may_end.set()
    # The answer ends in the next round of the loop; both have then asked this task to end.
    asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(serving.cancel))
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert work.ended_as == "whole"


async def test_a_client_that_leaves_as_its_answer_ends_harms_nothing() -> None:
    line, work = Line(), Work()
    serving = asyncio.ensure_future(serve_until_disconnect(line.receive, work.run()))
    await work.begun.wait()
    work.may_end.set()
    line.left.set()
    await serving
    assert serving.cancelling() == 0


async def test_a_timeout_around_it_still_fires() -> None:
    work = Work()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await serve_until_disconnect(Line().receive, work.run())
    assert work.ended_as == "cancelled"
