"""Waiting for what nobody tells: that a process or a descriptor is gone, that a counter has a value."""

import asyncio
from collections.abc import Awaitable, Callable

PATIENCE_S = 20.0
"""Whoever waits so long has found a defect; less than a test's own limit, so that the failure names its place."""

LOOK_AGAIN_S = 0.01


async def until(condition: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
    """Return once the condition holds; raises `TimeoutError` if it does not."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - The system raises no event for what is looked at here.
            await asyncio.sleep(LOOK_AGAIN_S)


async def until_told(ask: Callable[[], Awaitable[bool]], *, within_s: float = PATIENCE_S) -> None:
    """Return once somebody answers that it is so; raises `TimeoutError` if nobody does."""
    async with asyncio.timeout(within_s):
        while not await ask():  # noqa: ASYNC110 - Who is asked tells nobody by itself.
            await asyncio.sleep(LOOK_AGAIN_S)
