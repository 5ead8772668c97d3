"""Many at once, from two gateways on one database: nothing is lost, nothing is left over, nobody is turned away."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator

import pytest

from tests.store.samples import (
    EMPTY,
    OWNER,
    conversation,
    items,
    names_in,
    names_of,
    response,
    rows,
    say,
    told,
)
from turnbridge.engine.records import CANCELLED, IN_PROGRESS
from turnbridge.store.schema import sqlite_file
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.errors import NotFound

pytestmark = pytest.mark.anyio

MANY = 25


@pytest.fixture
async def other(url: str, store: SqlStore) -> AsyncIterator[SqlStore]:
    """Return a second store on the same database."""
    del store
    opened = await open_store(url)
    yield opened
    await opened.aclose()


async def test_many_responses_are_kept_at_once(store: SqlStore, other: SqlStore) -> None:
    await say(store, "root", ["a"], ["b"])
    names = [(gateway, f"r{number}-{gateway is other}") for number in range(MANY) for gateway in (store, other)]
    await asyncio.gather(*(say(gateway, name, [f"i {name}"], [f"o {name}"], after="root") for gateway, name in names))
    assert await asyncio.gather(*(names_of(other, name) for _, name in names)) == [
        (["a", "b", f"i {name}"], [f"o {name}"]) for _, name in names
    ]


async def test_no_item_that_is_added_to_a_conversation_is_lost(store: SqlStore, other: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("first"))

    async def append(gateway: SqlStore, name: str) -> None:
        for number in range(MANY):
            assert await gateway.append_items(OWNER, "c", items(f"{name}{number:02}"))

    async def answer(gateway: SqlStore, name: str) -> None:
        for number in range(MANY):
            await gateway.add_response(
                response(f"{name}{number}"), continues=None, inputs=items(f"{name}{number:02}"), conversation="c"
            )

    await asyncio.gather(append(store, "a"), append(other, "b"), answer(store, "c"), answer(other, "d"))
    first, *rest = await names_in(store, "c")
    assert first == "first"
    assert {name: [item for item in rest if item[0] == name] for name in "abcd"} == {
        name: [f"{name}{number:02}" for number in range(MANY)] for name in "abcd"
    }


async def test_a_history_that_all_its_responses_leave_at_once_leaves_nothing(
    url: str, store: SqlStore, other: SqlStore
) -> None:
    await say(store, "root", ["a"], ["b"])
    await say(store, "trunk", ["c"], ["d"], after="root")
    for number in range(MANY):
        await say(store, f"r{number}", ["e"], ["f"], after="trunk")
    names = ["root", "trunk", *(f"r{number}" for number in range(MANY))]
    removed = await asyncio.gather(
        *((store, other)[index % 2].delete_response(OWNER, name) for index, name in enumerate(names))
    )
    assert all(removed)
    assert await rows(url) == EMPTY


async def test_what_is_continued_while_it_is_removed_is_whole_or_refused(
    url: str, store: SqlStore, other: SqlStore
) -> None:
    async def go_on(name: str, segment: int) -> bool:
        try:
            await other.add_response(response(name), continues=segment, inputs=items("c"), outputs=items("d"))
        except NotFound:
            return False
        return True

    for number in range(MANY):
        await say(store, f"r{number}", ["a"], ["b"])
        segment = (await told(store, f"r{number}")).segment
        attempts = (go_on(f"s{number}", segment), store.delete_response(OWNER, f"r{number}"))
        kept, removed = await asyncio.gather(*(attempts if number % 2 else reversed(attempts)))
        kept, removed = (kept, removed) if number % 2 else (removed, kept)
        assert removed
        if kept:
            assert await names_of(store, f"s{number}") == (["a", "b", "c"], ["d"])
        assert await store.delete_response(OWNER, f"s{number}") == kept
    assert await rows(url) == EMPTY


async def test_a_response_that_is_ended_and_cancelled_at_once_ends_once(store: SqlStore, other: SqlStore) -> None:
    for number in range(MANY):
        name = f"r{number}"
        await store.add_response(response(name, status=IN_PROGRESS), continues=None, inputs=[], lease_s=1)
        finished, cancelled = await asyncio.gather(
            store.finish_response(response(name), outputs=items("b"), events=None),
            other.finish_response(response(name, status=CANCELLED)),
        )
        assert finished != cancelled
        assert await names_of(store, name) == ([], ["b"] if finished else [])


async def test_pruning_and_writing_do_not_disturb_each_other(url: str, store: SqlStore, other: SqlStore) -> None:
    writing = [
        say(gateway, f"r{n}-{gateway is other}", ["a"], ["b"]) for n in range(MANY) for gateway in (store, other)
    ]
    pruning = [gateway.prune(made_before=10**10, most_bytes=0) for _ in range(5) for gateway in (store, other)]
    pruned = (await asyncio.gather(*pruning, *writing))[: len(pruning)]
    last = await store.prune(most_bytes=0)
    assert sum(one.responses for one in (*pruned, last) if one is not None) == 2 * MANY
    assert await rows(url) == EMPTY


async def test_a_request_that_is_cancelled_leaves_its_response_whole_or_not_at_all(url: str) -> None:
    store = await open_store(url)
    for number in range(MANY):
        task = asyncio.create_task(say(store, f"r{number}", ["a", "b"], ["c"]))
        # Each one is cancelled a little later than the one before it.
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await store.aclose()
    later = await open_store(url)
    kept = [name for name in (f"r{number}" for number in range(MANY)) if await later.response(OWNER, name)]
    assert [await names_of(later, name) for name in kept] == [(["a", "b"], ["c"])] * len(kept)
    counted = await rows(url)
    assert (counted["responses"], counted["segments"], counted["items"]) == (len(kept), len(kept), 3 * len(kept))
    await later.aclose()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_readers_do_not_wait_for_a_writer_and_writers_wait_for_each_other(url: str, store: SqlStore) -> None:
    await say(store, "r1", ["a"], ["b"])
    file = sqlite_file(url)
    assert file is not None
    with sqlite3.connect(file, isolation_level=None, check_same_thread=False) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(say(store, "r2", ["c"], ["d"]))
        assert await names_of(store, "r1") == (["a"], ["b"])
        assert not writing.done()
        stranger.execute("COMMIT")
        await asyncio.wait_for(writing, 10)
    stranger.close()
    assert await names_of(store, "r2") == (["c"], ["d"])
