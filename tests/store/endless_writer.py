"""Writes to a store until it is killed, and says what it has done: `python -m tests.store.endless_writer URL NAME`.

Each response tells in its body how many items it was kept with, so that a reader can see whether it is whole.
"""

import asyncio
import random
import sys

from tests.store.samples import OWNER, conversation, items, response
from turnbridge.engine.records import IN_PROGRESS
from turnbridge.store.open import SqlStore, open_store


async def main(url: str, name: str) -> None:
    """Write for ever."""
    store = await open_store(url)
    await store.add_conversation(conversation(name), [])
    number = 0
    while True:
        number += 1
        await _write(store, name, f"{name}-{number}")
        print(f"kept {name}-{number}", flush=True)
        if random.random() < 0.2:
            await store.delete_response(OWNER, f"{name}-{number}")
            print(f"removed {name}-{number}", flush=True)


async def _write(store: SqlStore, name: str, response_id: str) -> None:
    asked, said = random.randint(0, 20), random.randint(1, 20)
    inputs = items(*(f"{response_id}-in{number}" for number in range(asked)))
    outputs = items(*(f"{response_id}-out{number}" for number in range(said)))
    whole = response(response_id, asked=asked, said=said, filling="x" * random.randint(0, 20_000))
    match random.randint(0, 2):
        case 0:
            await store.add_response(whole, continues=None, inputs=inputs, outputs=outputs)
        case 1:
            await store.add_response(whole, continues=None, inputs=inputs, outputs=outputs, conversation=name)
        case _:
            running = response(response_id, status=IN_PROGRESS, asked=asked, said=0)
            await store.add_response(running, continues=None, inputs=inputs, lease_until=1)
            assert await store.finish_response(whole, outputs=outputs, events=b"x" * said)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
