"""What replicas share of what runs: legs that expire and are bounded, and frames that end with their response."""

import pytest

from tests.store.samples import OWNER, chat, items, response
from turnbridge.engine.records import IN_PROGRESS
from turnbridge.engine.sharing import FramesSoFar, LegLimits, LegRecord, SharedChunk
from turnbridge.store.sql_store import SqlStore

pytestmark = pytest.mark.anyio


def leg(call_id: str, *, owner: str = OWNER, holder: str = "A", text: str = "") -> LegRecord:
    return LegRecord(owner=owner, call_id=call_id, holder=holder, items=({"call_id": call_id, "text": text},))


async def names(store: SqlStore, *call_ids: str, owner: str = OWNER) -> list[str]:
    return [found.call_id for found in await store.parked_legs(owner, call_ids)]


async def test_a_leg_is_found_until_it_expires_and_is_then_pruned(store: SqlStore) -> None:
    await store.keep_legs([leg("a"), leg("b")], 60)
    await store.keep_legs([leg("old")], -1)
    assert await store.parked_legs(OWNER, ["a", "old", "none"]) == [leg("a")]
    assert await names(store, "a", "b", owner="stranger") == []
    again = leg("b", holder="B", text="again")
    await store.keep_legs([again], 60)
    assert await store.parked_legs(OWNER, ["b"]) == [again]
    await store.prune()
    left = await store._database.read(lambda tx: tx.rows(str, "SELECT call_id FROM parked_legs ORDER BY call_id"))
    assert left == ["a", "b"]


async def test_the_oldest_legs_of_an_owner_go_and_nobody_elses(store: SqlStore) -> None:
    await store.keep_legs([leg("theirs", owner="stranger")], 1)
    for age, name in enumerate("abcd"):
        await store.keep_legs([leg(name, text="x" * 100)], 60 + age)
    await store.trim_legs(OWNER, LegLimits(legs=3, size=10_000))
    assert await names(store, *"abcd") == ["b", "c", "d"]
    await store.trim_legs(OWNER, LegLimits(legs=3, size=300))
    assert await names(store, *"abcd") == ["c", "d"]
    assert await names(store, "theirs", owner="stranger") == ["theirs"]


async def test_what_is_deleted_leaves_no_leg(store: SqlStore) -> None:
    await store.keep_legs([leg("call"), leg("of_chat"), leg("other")], 60)
    called = items("i")[0]
    call = type(called)(id="i", body={"call_id": "call"})
    await store.add_response(response("r1"), continues=None, inputs=[], outputs=[call])
    await store.add_chat(chat("chat"), {"of_chat": [{"n": 1}]})
    await store.delete_response(OWNER, "r1")
    await store.delete_chat(OWNER, "chat")
    assert await names(store, "call", "of_chat", "other") == ["other"]


async def test_frames_are_added_where_the_stream_stands_and_go_with_their_response(store: SqlStore) -> None:
    await store.add_response(response("r1", status=IN_PROGRESS), continues=None, inputs=[], lease_s=30, maker="A")
    first, second = SharedChunk(2, b"1\n\n2\n\n"), SharedChunk(3, b"3\n\n")
    assert await store.add_frames("r1", "A", after=0, chunk=first) == 2
    # An attempt whose answer was lost is told where the stream stands.
    assert await store.add_frames("r1", "A", after=0, chunk=first) == 2
    assert await store.add_frames("r1", "B", after=2, chunk=second) is None
    assert await store.add_frames("r1", "A", after=2, chunk=second) == 3
    assert await store.frames_after("r1", 0) == FramesSoFar(chunks=(first, second))
    assert await store.count_frames("r1") == 3
    assert await store.frames_after("r1", 2) == FramesSoFar(chunks=(second,))
    assert await store.finish_response(response("r1"), maker="A")
    assert await store.add_frames("r1", "A", after=3, chunk=SharedChunk(4, b"4\n\n")) is None
    assert (await store.frames_after("r1", 3)).sealed
    await store.drop_frames("r1")
    assert await store.frames_after("r1", 0) == FramesSoFar(sealed=True)
