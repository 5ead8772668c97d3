"""The store as a gateway uses it: no call waits long for a database that hangs, and none at all while it is away."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.store.samples import (
    EMPTY,
    OWNER,
    conversation,
    items,
    names_of,
    response,
    rows,
    say,
)
from tests.support.hanging_store import hanging
from turnbridge.store.database import BreakerTiming, Database, GuardedDatabase
from turnbridge.store.schema import sqlite_file, store_url
from turnbridge.store.sql_store import SqlStore, guarded_store, open_store
from turnbridge.turn.errors import BackendUnavailable

pytestmark = pytest.mark.anyio

BOUND_S = 25
UNAVAILABLE = "The store cannot be used"
NO_ANSWER = "The store cannot be used: it does not answer"


# The store gives up sooner: it is the same however long it waits.
TIMING = BreakerTiming(timeout_s=0.6, probe_after_s=0.3, retry_s=0.05)


@pytest.fixture
async def gateway_store(url: str) -> AsyncIterator[SqlStore]:
    """Return a store with a response in it, as a gateway has it."""
    store = guarded_store(url, timing=TIMING)
    await say(store, "before", ["a"], ["b"])
    yield store
    await store.aclose()


def refused_at_once(call: Coroutine[Any, Any, object]) -> bool:
    """Tell whether a call fails before it waits for anything."""
    try:
        call.send(None)
    except BackendUnavailable:
        return True
    call.close()
    return False


async def until_back(store: SqlStore) -> None:
    async with asyncio.timeout(BOUND_S):
        while True:
            with contextlib.suppress(BackendUnavailable):
                await store.response(OWNER, "before")
                return
            await asyncio.sleep(0.01)


async def test_a_database_that_hangs_is_waited_for_once_until_it_is_back(url: str, gateway_store: SqlStore) -> None:
    with capture_logs() as logs:
        with await hanging(url):
            async with asyncio.timeout(BOUND_S):
                failures = await asyncio.gather(
                    *(say(gateway_store, f"r{number}", ["c"], ["d"]) for number in range(20)), return_exceptions=True
                )
            assert {str(failure).partition(".")[0] for failure in failures} == {NO_ANSWER}
            for call in (
                say(gateway_store, "next", ["c"], ["d"]),
                gateway_store.response(OWNER, "before"),
                gateway_store.conversation_history(OWNER, "c"),
            ):
                assert refused_at_once(call)
        await until_back(gateway_store)
    assert [line["event"] for line in logs] == ["store_away", "store_back"]
    # Nothing was kept behind the back of those who were told that it was not.
    assert await rows(url) == {**EMPTY, "segments": 1, "items": 2, "responses": 1}
    await say(gateway_store, "after", ["c"], ["d"], after="before")
    assert await names_of(gateway_store, "after") == (["a", "b", "c"], ["d"])


async def test_a_store_that_hangs_does_not_hold_up_the_end(url: str, gateway_store: SqlStore) -> None:
    with await hanging(url):
        writing = asyncio.ensure_future(say(gateway_store, "r1", ["c"], ["d"]))
        await asyncio.sleep(0)
        async with asyncio.timeout(BOUND_S):
            await gateway_store.aclose()
            with pytest.raises(BackendUnavailable):
                await writing
    later = await open_store(url)
    assert await later.response(OWNER, "r1") is None
    await later.aclose()


SLOW = {
    "sqlite": "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 1000000) SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(0.2)",
}
ENDLESS = {
    "sqlite": "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(20)",
}


async def test_work_that_takes_too_long_is_given_up_alone(url: str, gateway_store: SqlStore) -> None:
    endless = ENDLESS["sqlite" if sqlite_file(url) else "postgres"]
    database = gateway_store._database
    assert isinstance(database, GuardedDatabase)
    with capture_logs() as logs:
        with pytest.raises(BackendUnavailable, match=NO_ANSWER):
            await database.read(lambda tx: tx.execute(endless))
        await say(gateway_store, "r1", ["c"], ["d"])
        assert await names_of(gateway_store, "before") == (["a"], ["b"])
    assert logs == []
    # The thread of SQLite goes on until then.
    database.abandon()


async def test_upkeep_may_take_longer_than_a_request_waits(url: str, gateway_store: SqlStore) -> None:
    impatient = guarded_store(url, timing=BreakerTiming(timeout_s=0.02, probe_after_s=0.01))
    slow = SLOW["sqlite" if sqlite_file(url) else "postgres"]
    await impatient.for_maintenance()._database.read(lambda tx: tx.execute(slow))
    await impatient.aclose()
    upkeep = gateway_store.for_maintenance()
    assert (await upkeep.prune(made_before=10**12)).responses == 1
    with await hanging(url):
        with pytest.raises(BackendUnavailable):
            await say(gateway_store, "r1", ["c"], ["d"])
        assert refused_at_once(upkeep.prune(made_before=0))


async def test_a_store_that_cannot_be_opened_is_tried_again_while_nobody_asks(tmp_path: Path) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_bytes(b"")
    store = guarded_store(store_url(in_the_way), timing=TIMING)
    with pytest.raises(BackendUnavailable, match=UNAVAILABLE):
        await say(store, "before", ["a"], ["b"])
    assert refused_at_once(say(store, "before", ["a"], ["b"]))
    in_the_way.unlink()
    await until_back(store)
    await say(store, "before", ["a"], ["b"])
    assert await names_of(store, "before") == (["a"], ["b"])
    await store.aclose()


async def test_those_who_wait_for_a_database_to_open_hear_how_it_went_together() -> None:
    attempts = 0

    async def slow() -> Database:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0.1)
        raise BackendUnavailable("It does not answer.")

    store = SqlStore(GuardedDatabase(slow, TIMING), now=lambda: 0)
    failures = await asyncio.gather(*(say(store, "r1", ["a"], ["b"]) for _ in range(3)), return_exceptions=True)
    assert [str(failure) for failure in failures] == ["It does not answer."] * 3
    assert attempts == 1
    await store.aclose()


async def test_a_database_that_never_opens_is_waited_for_once() -> None:
    async def never() -> Database:
        await asyncio.Event().wait()
        raise AssertionError

    store = SqlStore(GuardedDatabase(never, TIMING), now=lambda: 0)
    with pytest.raises(BackendUnavailable, match=NO_ANSWER):
        await store.response(OWNER, "r1")
    assert refused_at_once(store.response(OWNER, "r1"))
    await store.aclose()


async def test_a_defect_is_not_taken_for_an_outage() -> None:
    async def broken() -> Database:
        raise ZeroDivisionError

    store = SqlStore(GuardedDatabase(broken, TIMING), now=lambda: 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await store.response(OWNER, "r1")
    await store.aclose()


async def test_a_store_that_nobody_used_makes_no_file(tmp_path: Path) -> None:
    await guarded_store(store_url(tmp_path)).aclose()
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


async def test_a_client_that_leaves_lets_others_read_once_its_reader_is_free(tmp_path: Path) -> None:
    store = guarded_store(store_url(tmp_path), timing=TIMING)
    await store.add_conversation(conversation("c"), items("a"))
    for _ in range(20):
        reading = asyncio.ensure_future(store.conversation(OWNER, "c"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.cancel()
    async with asyncio.timeout(BOUND_S):
        assert await store.conversation(OWNER, "c") == conversation("c")
        await store.add_response(response("r1"), continues=None, inputs=[])
    await store.aclose()


STUCK = """
import asyncio, sys, time
from turnbridge.store.sql_store import guarded_store

async def stuck(tx):
    print("stuck", flush=True)
    time.sleep(600)

async def main():
    store = guarded_store(sys.argv[1])
    writing = asyncio.ensure_future(store._database.write(stuck))
    try:
        await writing
    except Exception as error:
        print(type(error).__name__)
    await store.aclose()

asyncio.run(main())
"""


async def test_a_thread_that_never_comes_back_does_not_keep_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STUCK, store_url(tmp_path)]
    ended = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    assert ended.stdout.split() == ["stuck", "BackendUnavailable"]
