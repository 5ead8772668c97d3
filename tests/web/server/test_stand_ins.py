"""What stands in for parts of uvicorn's protocol."""

import asyncio

import pytest

from turnbridge.web.server.stand_ins import OneReaderEvent

pytestmark = pytest.mark.anyio


async def test_the_reader_is_woken_and_waits_again_after_a_clear() -> None:
    event = OneReaderEvent(asyncio.get_running_loop())
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    event.set()
    await waiting
    # Set before it is waited for.
    await event.wait()
    event.clear()
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    await waiting


async def test_a_reader_that_was_cancelled_is_not_woken() -> None:
    event = OneReaderEvent(asyncio.get_running_loop())
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    event.set()
    await event.wait()
