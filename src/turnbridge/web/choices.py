"""Several turns of one request, whose events come together: a chat completion may have more than one choice."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeAlias

import msgspec

from turnbridge.api.output_mode import Runner
from turnbridge.engine.turns import Served
from turnbridge.turn.events import TurnEvent
from turnbridge.turn.request import TurnRequest

MOST_UNSENT_BATCHES = 64


class ChoiceBatch(msgspec.Struct, frozen=True):
    """Some events of one of several turns."""

    index: int
    events: Sequence[TurnEvent]


# An answer with one choice has no numbers: each layer around a delta takes a twentieth of what it costs.
AnyBatch: TypeAlias = Sequence[TurnEvent] | ChoiceBatch


def numbered(batch: AnyBatch) -> tuple[int, Sequence[TurnEvent]]:
    """Return a batch with the number of its choice."""
    return (batch.index, batch.events) if isinstance(batch, ChoiceBatch) else (0, batch)


async def run_choices(
    runner: Runner, request: TurnRequest, served: Served, *, choices: int, at_once: int
) -> AsyncGenerator[ChoiceBatch, None]:
    """Yield the events of several turns of one request as they come; the last that begins says how they are served."""
    # Bounded, so that a client that does not read holds back its own turns and fills nothing.
    arrived: asyncio.Queue[ChoiceBatch | Exception | None] = asyncio.Queue(MOST_UNSENT_BATCHES)
    room = asyncio.Semaphore(at_once)

    async def run_one(index: int) -> None:
        try:
            async with room, aclosing(runner.run(request, served)) as batches:
                async for batch in batches:
                    await arrived.put(ChoiceBatch(index, batch))
            await arrived.put(None)
        # Whatever the defect: if it were not told here, the others would be waited for in vain.
        except Exception as error:  # noqa: BLE001
            await arrived.put(error)

    tasks = [asyncio.ensure_future(run_one(index)) for index in range(choices)]
    try:
        running = choices
        while running:
            told = await arrived.get()
            if isinstance(told, Exception):
                raise told
            if told is None:
                running -= 1
            else:
                yield told
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
