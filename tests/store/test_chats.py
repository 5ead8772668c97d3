"""Chat completions: kept, listed in the order in which they were made, changed, removed."""

from dataclasses import replace

import pytest

from tests.store.samples import (
    EMPTY,
    OWNER,
    chat,
    rows,
)
from turnbridge.engine.records import ChatQuery
from turnbridge.store.sql_store import SqlStore
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.anyio


async def test_a_chat_completion_is_read_as_it_was_kept(store: SqlStore) -> None:
    kept = chat("c1", topic="a \0 b", other="")
    await store.add_chat(kept)
    assert await store.chat(OWNER, "c1") == kept
    assert await store.chat(OWNER, "c2") is None


async def test_a_chat_completion_is_changed(store: SqlStore) -> None:
    await store.add_chat(chat("c1", topic="a", lost="x"))
    changed = replace(chat("c1", topic="b"), body={"id": "c1", "metadata": {"topic": "b"}})
    assert await store.update_chat(changed)
    assert await store.chat(OWNER, "c1") == changed
    found = [
        [one.id for one in (await store.chats(OWNER, ChatQuery(metadata=wanted)))[0]]
        for wanted in ({"topic": "a"}, {"lost": "x"}, {"topic": "b"})
    ]
    assert found == [[], [], ["c1"]]
    assert not await store.update_chat(chat("c2"))


async def test_what_the_model_said_up_to_its_calls_is_found_by_the_first_one(url: str, store: SqlStore) -> None:
    said: tuple[JsonObject, ...] = ({"type": "reasoning", "encrypted_content": "E"}, {"call_id": "one"})
    other: tuple[JsonObject, ...] = ({"call_id": "two"},)
    await store.add_chat(chat("c1"), {"one": said, "two": other})
    await store.add_chat(replace(chat("c2"), owner="stranger"), {"three": said})
    assert await store.answers_with_calls(OWNER, ["one"]) == [said]
    assert await store.answers_with_calls(OWNER, ["two", "one"]) == [said, other]
    assert await store.answers_with_calls(OWNER, ["three", "none"]) == []
    before = (await store.figures()).bytes
    assert await store.update_chat(chat("c1"))
    assert (await store.figures()).bytes == before
    assert await store.delete_chat(OWNER, "c1")
    assert await store.delete_chat("stranger", "c2")
    assert await store.answers_with_calls(OWNER, ["one"]) == []
    assert await rows(url) == EMPTY


async def test_a_chat_completion_is_removed(url: str, store: SqlStore) -> None:
    await store.add_chat(chat("c1", topic="a"))
    assert [await store.delete_chat(OWNER, "c1") for _ in range(2)] == [True, False]
    assert await store.chat(OWNER, "c1") is None
    assert await rows(url) == EMPTY


@pytest.mark.parametrize(
    ("query", "page", "more"),
    [
        (ChatQuery(), ["z", "y", "x", "w"], False),
        (ChatQuery(limit=4), ["z", "y", "x", "w"], False),
        (ChatQuery(limit=3), ["z", "y", "x"], True),
        (ChatQuery(limit=2, after="z"), ["y", "x"], True),
        (ChatQuery(limit=2, after="y"), ["x", "w"], False),
        (ChatQuery(after="w"), [], False),
        (ChatQuery(after="nothing"), [], False),
        (ChatQuery(limit=2, newest_first=True), ["w", "x"], True),
        (ChatQuery(limit=2, newest_first=True, after="x"), ["y", "z"], False),
        (ChatQuery(model="big"), ["z", "x"], False),
        (ChatQuery(model="big", limit=1), ["z"], True),
        (ChatQuery(model="none"), [], False),
        (ChatQuery(metadata={"topic": "a"}), ["z", "y"], False),
        (ChatQuery(metadata={"topic": "a", "mood": "good"}), ["y"], False),
        (ChatQuery(metadata={"topic": "a"}, model="big"), ["z"], False),
        (ChatQuery(metadata={"topic": "good"}), [], False),
        (ChatQuery(metadata={"topic": "a"}, after="z"), ["y"], False),
    ],
)
async def test_chat_completions_are_listed_in_pages(
    store: SqlStore, query: ChatQuery, page: list[str], more: bool
) -> None:
    kept = [
        chat("z", model="big", topic="a"),
        chat("y", model="small", topic="a", mood="good"),
        chat("x", model="big", topic="b", mood="good"),
        chat("w", model="small"),
    ]
    for one in kept:
        await store.add_chat(one)
    by_id = {one.id: one for one in kept}
    assert await store.chats(OWNER, query) == ([by_id[name] for name in page], more)
