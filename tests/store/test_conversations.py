"""Conversations: a history with an end that moves."""

from dataclasses import replace

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
)
from turnbridge.engine.records import (
    IN_PROGRESS,
    ItemPage,
    ItemQuery,
    KeptItem,
)
from turnbridge.store import segments
from turnbridge.store.maintenance import Pruned
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.errors import NotFound
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.anyio


async def test_a_conversation_is_read_as_it_was_kept(store: SqlStore) -> None:
    first = items("a", "b")
    await store.add_conversation(conversation("c"), first)
    assert await store.conversation(OWNER, "c") == conversation("c")
    history = await store.conversation_history(OWNER, "c")
    assert history is not None
    assert history.inputs == tuple(first)


async def test_a_conversation_may_begin_empty(store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), [])
    assert await names_in(store, "c") == []
    assert await store.append_items(OWNER, "c", items("a"))
    assert await names_in(store, "c") == ["a"]


async def test_responses_and_items_follow_one_another_in_a_conversation(store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a"))
    await store.add_response(
        response("r1"), continues=None, inputs=items("b"), outputs=items("c", "d"), conversation="c"
    )
    assert await store.append_items(OWNER, "c", items("e", "f"))
    await store.add_response(response("r2"), continues=None, inputs=items("g"), outputs=items("h"), conversation="c")
    assert await names_in(store, "c") == list("abcdefgh")
    assert await names_of(store, "r1") == (["a", "b"], ["c", "d"])
    assert await names_of(store, "r2") == (list("abcdefg"), ["h"])


async def test_a_response_that_runs_beside_a_conversation_becomes_its_end(store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a"))
    before = await store.conversation_history(OWNER, "c")
    assert before is not None
    running = response("r1", status=IN_PROGRESS)
    await store.add_response(running, continues=before.segment, inputs=items("b"), lease_s=100)
    assert await names_of(store, "r1") == (["a", "b"], [])
    await store.append_items(OWNER, "c", items("d"))
    assert await names_in(store, "c") == ["a", "d"]
    assert await store.finish_response(replace(running, status="completed"), outputs=items("c"), conversation="c")
    assert await names_in(store, "c") == ["a", "d", "b", "c"]
    assert await names_of(store, "r1") == (["a", "d", "b"], ["c"])


async def test_a_response_whose_conversation_was_removed_ends_where_it_began(url: str, store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a"))
    before = await store.conversation_history(OWNER, "c")
    assert before is not None
    running = response("r1", status=IN_PROGRESS)
    await store.add_response(running, continues=before.segment, inputs=items("b"), lease_s=100)
    await store.delete_conversation(OWNER, "c")
    assert await store.finish_response(replace(running, status="completed"), outputs=items("c"), conversation="c")
    assert await names_of(store, "r1") == (["a", "b"], ["c"])
    await store.delete_response(OWNER, "r1")
    assert await rows(url) == EMPTY


async def test_a_response_from_a_conversation_can_be_continued_outside(store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a"))
    await store.add_response(response("r1"), continues=None, inputs=items("b"), conversation="c")
    await say(store, "r2", ["x"], ["y"], after="r1")
    assert await names_of(store, "r2") == (["a", "b", "x"], ["y"])
    assert await names_in(store, "c") == ["a", "b"]


async def test_an_item_with_a_very_long_id_is_removed_by_it(store: SqlStore) -> None:
    long = "x" * 5000
    await store.add_conversation(conversation("c"), items("a", long))
    assert await store.delete_item(OWNER, "c", long)
    assert await names_in(store, "c") == ["a"]


async def test_metadata_is_replaced(store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), [])
    assert await store.update_conversation(OWNER, "c", {"k": "v"})
    assert await store.conversation(OWNER, "c") == replace(conversation("c"), metadata={"k": "v"})


async def test_a_removed_conversation_leaves_what_its_responses_need(url: str, store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a"))
    await store.add_response(response("r1"), continues=None, inputs=items("b"), outputs=items("c"), conversation="c")
    await store.append_items(OWNER, "c", items("d"))
    assert [await store.delete_conversation(OWNER, "c") for _ in range(2)] == [True, False]
    assert await names_of(store, "r1") == (["a", "b"], ["c"])
    assert await rows(url) == {**EMPTY, "segments": 2, "items": 3, "responses": 1}
    await store.delete_response(OWNER, "r1")
    assert await rows(url) == EMPTY


async def test_a_removed_response_leaves_its_conversation_whole(url: str, store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a"))
    await store.add_response(response("r1"), continues=None, inputs=items("b"), outputs=items("c"), conversation="c")
    await store.delete_response(OWNER, "r1")
    assert await names_in(store, "c") == ["a", "b", "c"]
    await store.delete_conversation(OWNER, "c")
    assert await rows(url) == EMPTY


async def test_a_removed_item_is_gone_from_every_history(store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a", "b"))
    await store.add_response(response("r1"), continues=None, inputs=items("d"), outputs=items("e"), conversation="c")
    await say(store, "r2", ["f"], [], after="r1")
    assert [await store.delete_item(OWNER, "c", name) for name in ("b", "e", "b")] == [True, True, False]
    assert await names_in(store, "c") == ["a", "d"]
    assert await names_of(store, "r1") == (["a", "d"], [])
    assert await names_of(store, "r2") == (["a", "d", "f"], [])
    assert await store.items(OWNER, ["b", "e"]) == {}


async def test_only_an_item_that_is_there_makes_its_conversation_younger(url: str) -> None:
    store = await open_store(url, now=lambda: 2000.0)
    for name in ("older", "younger"):
        await store.add_conversation(conversation(name, created_at=1000), items(f"in {name}"))
    assert not await store.delete_item(OWNER, "older", "nothing")
    assert await store.delete_item(OWNER, "younger", "in younger")
    assert await store.prune(made_before=1500) == Pruned(responses=0, conversations=1, chats=0)
    assert await store.conversation(OWNER, "older") is None
    assert await names_in(store, "younger") == []
    await store.aclose()


async def test_an_item_of_another_conversation_is_not_removed(store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a"))
    await store.add_conversation(conversation("d"), items("b"))
    assert not await store.delete_item(OWNER, "c", "b")
    assert await names_in(store, "d") == ["b"]


async def test_nothing_is_added_to_a_conversation_that_is_not_there(url: str, store: SqlStore) -> None:
    assert not await store.append_items(OWNER, "c", items("a"))
    assert not await store.update_conversation(OWNER, "c", {})
    assert not await store.delete_item(OWNER, "c", "a")
    assert await store.conversation(OWNER, "c") is None
    assert await store.conversation_history(OWNER, "c") is None
    with pytest.raises(NotFound):
        await store.add_response(response("r"), continues=None, inputs=items("a"), conversation="c")
    assert await rows(url) == EMPTY


async def test_an_item_is_found_without_the_rest_of_its_conversation(store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a", "b"))
    await store.add_response(response("r1"), continues=None, inputs=items("d"), outputs=items("e"), conversation="c")
    await store.add_conversation(conversation("other"), items("f"))
    assert [await store.conversation_item(OWNER, "c", name) for name in "abdef"] == [*items("a", "b", "d", "e"), None]
    again = KeptItem(id="a", body={"type": "message", "content": "later"})
    await store.append_items(OWNER, "c", [again])
    assert await store.conversation_item(OWNER, "c", "a") == again


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (ItemQuery(limit=3), ("abd", True)),
        (ItemQuery(limit=3, newest_first=True), ("aed", True)),
        (ItemQuery(limit=4, after="b"), ("dea", False)),
        (ItemQuery(limit=2, after="e", newest_first=True), ("db", True)),
        (ItemQuery(after="a"), ("", False)),
        (ItemQuery(after="a", newest_first=True), ("", False)),
    ],
)
async def test_a_page_begins_after_the_last_item_of_a_name(
    store: SqlStore, query: ItemQuery, expected: tuple[str, bool]
) -> None:
    await store.add_conversation(conversation("c"), items("a", "b"))
    await store.add_response(response("r1"), continues=None, inputs=items("d"), outputs=items("e"), conversation="c")
    await store.append_items(OWNER, "c", items("a"))
    page = await store.conversation_items(OWNER, "c", query)
    assert page is not None
    assert ("".join(item.id for item in page.items), page.has_more) == expected


async def test_what_the_model_answered_is_no_part_of_what_it_was_shown(store: SqlStore) -> None:
    await say(store, "r1", ["a"], ["b"])
    await say(store, "r2", ["c"], ["d"], after="r1")
    page = await store.response_inputs(OWNER, "r2", ItemQuery())
    assert page == ItemPage(items=tuple(items("a", "b", "c")))
    assert await store.response_inputs(OWNER, "r2", ItemQuery(after="d")) == ItemPage(knows_after=False)
    assert await store.response_inputs(OWNER, "r2", ItemQuery(after="b")) == ItemPage(items=tuple(items("c")))
    assert await store.response_outputs(OWNER, "r2") == items("d")


LARGE = 200_000


async def test_the_other_items_of_a_conversation_are_not_read(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [KeptItem(id=f"i{n}", body={"type": "message", "content": "x" * LARGE}) for n in range(20)]
    await store.add_conversation(conversation("c"), large)
    read = 0
    decode = segments.decoded

    def counted(body: bytes) -> JsonObject:
        nonlocal read
        read += len(body)
        return decode(body)

    monkeypatch.setattr(segments, "decoded", counted)
    assert await store.conversation_item(OWNER, "c", "i7") == large[7]
    page = await store.conversation_items(OWNER, "c", ItemQuery(limit=2, after="i7"))
    assert page == ItemPage(items=(large[8], large[9]), has_more=True)
    await store.append_items(OWNER, "c", items("last"))
    assert await store.delete_item(OWNER, "c", "i3")
    assert read < 5 * LARGE
