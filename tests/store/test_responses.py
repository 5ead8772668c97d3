"""Responses: what was kept is what is read, in any order of answers, branches and removals."""

import random
import time
from dataclasses import replace
from string import ascii_letters

import pytest

from tests.store.samples import (
    EMPTY,
    OWNER,
    call,
    conversation,
    items,
    names_of,
    response,
    rows,
    say,
    told,
)
from turnbridge.engine.records import (
    CANCELLED,
    IN_PROGRESS,
    QUEUED,
    History,
    KeptItem,
)
from turnbridge.engine.sharing import SharedChunk
from turnbridge.store.database import LONGEST_TEXT_BYTES
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.errors import NotFound
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.anyio


async def test_a_response_is_read_as_it_was_kept(store: SqlStore) -> None:
    kept = response("r1", text="\0 “quoted” 𝄞", number=2**60)
    inputs, outputs = items("a", "b"), items("c")
    await store.add_response(kept, continues=None, inputs=inputs, outputs=outputs)
    assert await store.response(OWNER, "r1") == kept
    history = await told(store, "r1")
    assert history == History(segment=history.segment, inputs=tuple(inputs), outputs=tuple(outputs))
    assert await store.response_events(OWNER, "r1") is None


async def test_a_response_without_items_has_an_empty_history(store: SqlStore) -> None:
    await say(store, "r1", [], [])
    assert await names_of(store, "r1") == ([], [])


async def test_a_store_that_is_opened_again_has_everything(url: str, store: SqlStore) -> None:
    await say(store, "r1", ["a"], ["b"])
    later = await open_store(url)
    assert await names_of(later, "r1") == (["a"], ["b"])
    await later.aclose()


async def test_any_response_can_be_continued_more_than_once(store: SqlStore) -> None:
    await say(store, "r1", ["a"], ["b"])
    await say(store, "r2", ["c"], ["d"], after="r1")
    await say(store, "left", ["e"], ["f"], after="r2")
    await say(store, "right", ["g"], [], after="r2")
    await say(store, "early", ["h"], ["i"], after="r1")
    assert await names_of(store, "left") == (["a", "b", "c", "d", "e"], ["f"])
    assert await names_of(store, "right") == (["a", "b", "c", "d", "g"], [])
    assert await names_of(store, "early") == (["a", "b", "h"], ["i"])


async def test_what_continues_a_removed_response_is_not_kept(url: str, store: SqlStore) -> None:
    await say(store, "r1", ["a"], ["b"])
    segment = (await told(store, "r1")).segment
    await store.delete_response(OWNER, "r1")
    await say(store, "other", ["x"], [])
    with pytest.raises(NotFound):
        await store.add_response(response("r2"), continues=segment, inputs=items("c"))
    assert await store.response(OWNER, "r2") is None
    assert (await rows(url))["items"] == 1


async def test_what_the_outputs_do_not_tell_of_a_call_is_found_by_it_until_an_item_is_deleted(
    url: str, store: SqlStore
) -> None:
    leg: list[JsonObject] = [{"call_id": "shown"}, {"call_id": "hidden"}]
    await store.add_conversation(conversation("c"), [])
    await store.add_response(
        response("r1"), continues=None, inputs=[], outputs=items("a"), legs={"shown": leg}, conversation="c"
    )
    await store.add_response(response("r2", status="in_progress"), continues=None, inputs=[], lease_s=30)
    small = (await store.figures()).bytes
    await store.finish_response(response("r2"), legs={"later": leg})
    assert (await store.figures()).bytes > small
    assert await store.answers_with_calls(OWNER, ["shown"]) == [tuple(leg)]
    assert await store.answers_with_calls(OWNER, ["later"]) == [tuple(leg)]
    assert await store.answers_with_calls("stranger", ["shown", "later"]) == []
    assert await store.delete_item(OWNER, "c", "a")
    assert await store.answers_with_calls(OWNER, ["shown"]) == []
    assert await store.delete_response(OWNER, "r1")
    assert await store.delete_response(OWNER, "r2")
    assert await store.delete_conversation(OWNER, "c")
    assert await rows(url) == EMPTY


async def test_a_removed_response_leaves_the_history_of_those_after_it(url: str, store: SqlStore) -> None:
    await say(store, "r1", ["a"], ["b"])
    await say(store, "r2", ["c"], ["d"], after="r1")
    await say(store, "r3", ["e"], ["f"], after="r2")
    assert [await store.delete_response(OWNER, name) for name in ("r1", "r2", "r2")] == [True, True, False]
    assert await store.response(OWNER, "r1") is None
    assert await names_of(store, "r3") == (["a", "b", "c", "d", "e"], ["f"])
    await store.delete_response(OWNER, "r3")
    assert await rows(url) == EMPTY


async def test_a_branch_goes_by_itself(url: str, store: SqlStore) -> None:
    await say(store, "r1", ["a"], ["b"])
    await say(store, "left", ["c"], ["d"], after="r1")
    await say(store, "right", ["e"], ["f"], after="r1")
    await store.delete_response(OWNER, "left")
    assert await rows(url) == {**EMPTY, "segments": 2, "items": 4, "responses": 2}
    assert await names_of(store, "right") == (["a", "b", "e"], ["f"])
    await store.delete_response(OWNER, "r1")
    await store.delete_response(OWNER, "right")
    assert await rows(url) == EMPTY


async def test_a_running_response_ends_with_its_outputs_and_its_stream(store: SqlStore) -> None:
    running = response("r1", status=IN_PROGRESS)
    await store.add_response(running, continues=None, inputs=items("a"), lease_s=100)
    assert await store.response(OWNER, "r1") == running
    assert await names_of(store, "r1") == (["a"], [])
    ended = replace(running, status="completed", body={"id": "r1", "output": []})
    assert await store.finish_response(ended, outputs=items("b", "c"), events=b"data: 1\n\n\xff")
    assert await store.response(OWNER, "r1") == ended
    assert await names_of(store, "r1") == (["a"], ["b", "c"])
    assert await store.response_events(OWNER, "r1") == b"data: 1\n\n\xff"


async def test_a_response_ends_once(store: SqlStore) -> None:
    running = response("r1", status=QUEUED)
    cancelled, completed = (replace(running, status=status) for status in (CANCELLED, "completed"))
    await store.add_response(running, continues=None, inputs=items("a"), lease_s=100)
    assert await store.finish_response(cancelled)
    assert not await store.finish_response(cancelled)
    assert not await store.finish_response(completed, outputs=items("b"), events=b"x")
    assert await store.response(OWNER, "r1") == cancelled
    assert await names_of(store, "r1") == (["a"], [])
    assert await store.response_events(OWNER, "r1") is None


async def test_a_response_that_was_removed_does_not_come_back_at_its_end(url: str, store: SqlStore) -> None:
    running = response("r1", status=IN_PROGRESS)
    await store.add_response(running, continues=None, inputs=items("a"), lease_s=100)
    await store.delete_response(OWNER, "r1")
    assert not await store.finish_response(replace(running, status="completed"), outputs=items("b"), events=None)
    assert await rows(url) == EMPTY


async def test_a_lease_is_extended_while_a_response_runs_and_lost_without(store: SqlStore) -> None:
    for name, lease_s in (("r1", -1.5), ("r2", 200.0)):
        await store.add_response(
            response(name, status=IN_PROGRESS), continues=None, inputs=items(name), lease_s=lease_s
        )
    await say(store, "done", [], [])
    assert await store.lost_responses() == [response("r1", status=IN_PROGRESS)]
    assert await store.extend_leases(["r1", "done", "nobody"], 300) == {"r1"}
    assert await store.extend_leases([], 300) == set()
    assert await store.lost_responses() == []
    assert await store.extend_leases(["r1", "r2"], -1) == {"r1", "r2"}
    assert [lost.id for lost in await store.lost_responses()] == ["r1", "r2"]
    await store.finish_response(response("r2", status=CANCELLED))
    await store.finish_response(response("r1"), outputs=[], events=None)
    assert await store.lost_responses() == []
    assert await store.extend_leases(["r1", "r2"], 20_000) == set()


async def test_leases_count_by_the_clock_of_the_database(
    url: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = time.time
    fast = await open_store(url, now=lambda: today() + 3600)
    await store.add_response(response("r1", status=IN_PROGRESS), continues=None, inputs=[], lease_s=30)
    monkeypatch.setattr(time, "time", lambda: today() + 3600)
    assert await fast.lost_responses() == []
    assert not await fast.take_over(response("r1"), "other", 30)
    await fast.aclose()


async def test_a_lost_response_is_taken_over_only_while_its_lease_is_over(store: SqlStore) -> None:
    running, failed = response("r1", status=IN_PROGRESS), response("r1", status="failed")
    await store.add_response(running, continues=None, inputs=[], lease_s=-1, maker="A")
    assert await store.lost_responses() == [running]
    # Its gateway is there after all.
    assert await store.extend_leases(["r1"], 30, "A") == {"r1"}
    assert not await store.take_over(running, "B", 30)
    await store.extend_leases(["r1"], -1, "A")
    assert [await store.take_over(running, maker, 30) for maker in ("B", "C")] == [True, False]
    assert await store.maker(OWNER, "r1") == "B"
    # What the former maker writes late is refused, although the response still runs.
    chunk = SharedChunk(1, b"data: 1\n\n")
    assert await store.extend_leases(["r1"], 30, "A") == set()
    assert await store.add_frames("r1", "A", after=0, chunk=chunk) is None
    assert not await store.finish_response(response("r1"), outputs=items("late"), events=b"late", maker="A")
    assert await store.response(OWNER, "r1") == running
    assert await store.finish_response(failed, events=b"B's", maker="B")
    assert (await store.response(OWNER, "r1"), await store.response_events(OWNER, "r1")) == (failed, b"B's")
    assert not await store.finish_response(response("r1"), maker="B")


async def test_items_are_found_by_their_ids(store: SqlStore) -> None:
    await say(store, "r1", ["a", "b"], ["c"])
    wanted = {item.id: item for item in items("a", "c")}
    assert await store.items(OWNER, ["c", "a", "nothing", "a"]) == wanted
    assert await store.items(OWNER, []) == {}


async def test_of_items_with_one_id_the_latest_is_found(store: SqlStore) -> None:
    for name, text in (("r1", "first"), ("r2", "second")):
        same = KeptItem(id="a", body={"text": text})
        await store.add_response(response(name), continues=None, inputs=[same])
    assert await store.items(OWNER, ["a"]) == {"a": KeptItem(id="a", body={"text": "second"})}


async def test_an_answer_is_found_by_any_of_its_calls(store: SqlStore) -> None:
    first = [*items("thought"), call("c1", "one"), call("c2", "two")]
    second = [call("c3", "three")]
    asked = [call("c9", "sent"), *items("a")]
    await store.add_response(response("r1"), continues=None, inputs=asked, outputs=first)
    await store.add_response(response("r2"), continues=None, inputs=[call("c4", "one")], outputs=second)
    bodies = [tuple(item.body for item in answer) for answer in (first, second)]
    assert await store.answers_with_calls(OWNER, ["two", "one"]) == bodies[:1]
    assert await store.answers_with_calls(OWNER, ["three", "two"]) == bodies
    assert await store.answers_with_calls(OWNER, ["sent", "nothing"]) == []
    assert await store.answers_with_calls(OWNER, []) == []


async def test_ids_may_be_any_text(store: SqlStore) -> None:
    strange = "a'b\"c\0d%$1?1"
    await store.add_response(response("r1"), continues=None, inputs=[KeptItem(id=strange, body={"n": 1})])
    assert {item_id: item.body for item_id, item in (await store.items(OWNER, [strange])).items()} == {
        strange: {"n": 1}
    }


@pytest.mark.parametrize("character", ["x", "𝄞", "\0"])
async def test_ids_may_be_of_any_length(store: SqlStore, character: str) -> None:
    # Random, since Postgres compresses what it can.
    long, other = (character + "".join(random.Random(seed).choices(ascii_letters, k=20_000)) for seed in (1, 2))
    body: JsonObject = {"type": "function_call", "id": long, "call_id": long}
    kept = KeptItem(id=long, body=body)
    await store.add_response(response("r1"), continues=None, inputs=[kept], outputs=[kept])
    history = await told(store, "r1")
    assert (history.inputs, history.outputs) == ((kept,), (kept,))
    assert await store.items(OWNER, [long, other]) == {long: kept}
    assert await store.answers_with_calls(OWNER, [other]) == []
    assert await store.answers_with_calls(OWNER, [long]) == [(body,)]


async def test_an_id_that_just_fits_an_index_is_kept_as_it_is(store: SqlStore) -> None:
    longest = "".join(random.Random(1).choices(ascii_letters, k=LONGEST_TEXT_BYTES))
    await store.add_response(replace(response("r1"), owner="o" * 64), continues=None, inputs=items(longest))
    history = await store.response_history("o" * 64, "r1")
    assert history is not None
    assert [item.id for item in history.inputs] == [longest]
