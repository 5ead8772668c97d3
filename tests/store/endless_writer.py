"""Writes to a store and says what it has done: `python -m tests.store.endless_writer URL NAME STATEMENT`.

It kills itself before it runs that many statements; 0 is for ever. Each response tells in its body how many items it
was kept with, so that a reader can see whether it is whole.
"""

import asyncio
import itertools
import os
import random
import signal
import sys
from collections.abc import Sequence

from tests.store.samples import (
    OWNER,
    conversation,
    items,
    response,
)
from turnbridge.engine.records import IN_PROGRESS
from turnbridge.store.database import Transaction, Value
from turnbridge.store.postgres import PostgresTransaction
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.store.sqlite import SqliteTransaction


async def main(url: str, name: str, statement: str) -> None:
    """Write until the end."""
    store = await open_store(url)
    for kind in (SqliteTransaction, PostgresTransaction):
        _die_before(int(statement), kind)
    await store.add_conversation(conversation(name), [])
    number = 0
    while True:
        number += 1
        await _write(store, name, f"{name}-{number}")
        print(f"kept {name}-{number}", flush=True)
        if random.random() < 0.2:
            await store.delete_response(OWNER, f"{name}-{number}")
            print(f"removed {name}-{number}", flush=True)


def _die_before(statement: int, kind: type[SqliteTransaction] | type[PostgresTransaction]) -> None:
    numbers = itertools.count(1)
    fetch, execute_each = kind.fetch, kind.execute_each

    def count() -> None:
        if next(numbers) == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    async def counted_fetch(self: Transaction, sql: str, values: Sequence[Value]) -> Sequence[Sequence[object]]:
        count()
        return await fetch(self, sql, values)  # type: ignore[arg-type]  # It is of the kind whose method it is.

    async def counted_execute_each(self: Transaction, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        count()
        await execute_each(self, sql, rows)  # type: ignore[arg-type]

    kind.fetch, kind.execute_each = counted_fetch, counted_execute_each  # type: ignore[method-assign]


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
            await store.add_response(running, continues=None, inputs=inputs, lease_s=1)
            assert await store.finish_response(whole, outputs=outputs, events=b"x" * said)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
