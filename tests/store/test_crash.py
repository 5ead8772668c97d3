"""Killed at any moment: the next one to open the database finds nothing that is half there."""

import asyncio
import random
import subprocess
import sys

import pytest

from tests.store.samples import (
    OWNER,
    exported,
    names_in,
    told,
)
from turnbridge.engine.records import RUNNING
from turnbridge.store.schema import sqlite_file
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.items import Json, JsonObject

pytestmark = pytest.mark.anyio

# Killing a client of Postgres is the lesser danger, and each round of it takes longer.
ROUNDS = {"sqlite": 8, "postgres": 4}
# How much a writer is left to do, at most: it is killed somewhere in what comes after.
MOST = 30
# Before which of its statements a writer kills itself, if it does; the first ones make a whole response.
STATEMENTS = (20, 150)


async def killed_writer(url: str, name: str, *, statement: int) -> list[str]:
    """Return what a writer said that it has done before it was killed: before a statement, or at any moment."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.endless_writer", url, name, str(statement), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(90):
        said = [await process.stdout.readline() for _ in range(0 if statement else random.randint(1, MOST))]
        if not statement:
            # As far into the next one as chance has it.
            for _ in range(random.randint(0, 200)):
                await asyncio.sleep(0)
            process.kill()
        rest = await process.stdout.read()
        await process.wait()
    return (b"".join(said) + rest).decode().splitlines()


async def test_nothing_that_is_served_after_a_kill_is_half_written_or_lost(url: str) -> None:
    for number in range(ROUNDS["sqlite" if sqlite_file(url) else "postgres"]):
        # Two at once, as two gateways would write.
        writers = [f"w{number}a", f"w{number}b"] if number % 2 else [f"w{number}"]
        statements = [random.choice((0, random.randint(*STATEMENTS))) for _ in writers]
        said = await asyncio.gather(
            *(killed_writer(url, name, statement=each) for name, each in zip(writers, statements, strict=True))
        )
        store = await open_store(url)
        everything = await exported(store)
        assert unneeded(everything) == set()
        lines = [line for line in everything if line["kind"] == "response"]
        for name, done in zip(writers, said, strict=True):
            found = {str(line["id"]): line["body"] for line in lines if str(line["id"]).startswith(f"{name}-")}
            kept, removed = (
                {line.removeprefix(word) for line in done if line.startswith(word)} for word in ("kept ", "removed ")
            )
            # It may have been killed after a change and before it could say so.
            assert len(found.keys() ^ (kept - removed)) <= 1
            assert kept
            for response_id, body in found.items():
                await check_whole(store, response_id, body)
            names = await names_in(store, name)
            assert len(names) == len(set(names))
        await store.aclose()


def unneeded(lines: list[JsonObject]) -> set[Json]:
    """Return the segments that no response, conversation or later segment needs."""
    segments = {line["id"] for line in lines if line["kind"] == "segment"}
    return segments - {line.get("segment", line.get("parent")) for line in lines}


async def check_whole(store: SqlStore, name: str, body: object) -> None:
    """Check that a response has the items that it was kept with."""
    assert isinstance(body, dict)
    history = await told(store, name)
    own = [item for item in history.inputs if item.id.startswith(f"{name}-")]
    assert (len(own), len(history.outputs)) == (body["asked"], body["said"])
    record = await store.response(OWNER, name)
    assert record is not None
    assert (record.status in RUNNING) == (body["said"] == 0)
    if record.background and record.status not in RUNNING:
        assert await store.response_events(OWNER, name) == b"x" * body["said"]
