"""Upkeep: figures, pruning by age and by size, export and vacuum."""

from collections import Counter
from dataclasses import replace
from itertools import count
from typing import TypeVar

import pytest

from tests.store.samples import (
    EMPTY,
    OWNER,
    STRANGER,
    chat,
    conversation,
    exported,
    items,
    names_in,
    names_of,
    response,
    rows,
    say,
    told,
)
from turnbridge.engine.records import IN_PROGRESS, KeptItem
from turnbridge.store import maintenance as upkeep
from turnbridge.store import segments
from turnbridge.store.database import Transaction, Work
from turnbridge.store.maintenance import BATCH, Pruned, StoreFigures
from turnbridge.store.schema import sqlite_file
from turnbridge.store.segments import STEP_BYTES
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.errors import BackendUnavailable

pytestmark = pytest.mark.anyio

T = TypeVar("T")
NOTHING = Pruned(responses=0, conversations=0, chats=0)


async def test_an_empty_store_has_empty_figures(store: SqlStore) -> None:
    empty = StoreFigures(responses=0, conversations=0, chats=0, files=0, items=0, bytes=0, oldest=None)
    assert await store.figures() == empty
    assert await store.prune(made_before=10**10, most_bytes=0) == NOTHING
    assert await exported(store) == []
    await store.vacuum()


async def test_the_figures_count_the_json_that_is_kept(store: SqlStore) -> None:
    await store.add_response(
        replace(response("r1", created_at=7), body={}), continues=None, inputs=items("a"), outputs=items("b")
    )
    await store.add_conversation(replace(conversation("c", created_at=9), metadata={"k": "v"}), items("c"))
    await store.add_chat(replace(chat("chat", created_at=8), body={"x": 1}, messages=({"y": 2},)))
    item = '{"type":"message","content":"I am a “ü”"}'
    size = 3 * len(item.encode()) + len("{}") + len('{"k":"v"}') + len('{}{"x":1}[{"y":2}]')
    assert await store.figures() == StoreFigures(
        responses=1, conversations=1, chats=1, files=0, items=3, bytes=size, oldest=7
    )


async def test_the_size_follows_every_change(store: SqlStore) -> None:
    running = response("r1", status=IN_PROGRESS)
    await store.add_conversation(conversation("c"), items("a", "b"))
    await store.add_response(running, continues=None, inputs=[], conversation="c", lease_s=1)
    await store.add_chat(chat("chat"))
    await store.update_chat(replace(chat("chat", topic="longer than before"), body={}))
    await store.update_conversation(OWNER, "c", {"topic": "another"})
    await store.finish_response(response("r1"), outputs=items("d"), events=b"events")
    await store.delete_item(OWNER, "c", "a")
    changed = (await store.figures()).bytes
    assert [await store.delete_chat(OWNER, "chat"), await store.delete_conversation(OWNER, "c")] == [True, True]
    history = await told(store, "r1")
    rest = '{"id":"r1","status":"completed"}events' + '{"type":"message","content":"I am a “ü”"}' * 2
    assert [item.id for item in history.inputs + history.outputs] == ["b", "d"]
    chat_size = len('{"topic":"longer than before"}{}') + len(
        '[{"role":"user","content":"Hi"},{"role":"user","content":[{"type":"text","text":"chat"}]}]'
    )
    size = len(rest.encode())
    assert (await store.figures()).bytes == size
    assert changed == size + chat_size + len('{"topic":"another"}')
    await store.delete_response(OWNER, "r1")
    assert (await store.figures()).bytes == 0


async def test_what_is_too_old_is_removed_and_what_runs_stays(url: str, store: SqlStore) -> None:
    for age, name in ((10, "old"), (20, "young")):
        await store.add_response(response(f"r-{name}", created_at=age), continues=None, inputs=items(f"i-{name}"))
        await store.add_conversation(conversation(f"c-{name}", created_at=age), [])
        await store.add_chat(chat(f"chat-{name}", created_at=age))
    await store.add_response(
        response("running", status=IN_PROGRESS, created_at=1), continues=None, inputs=[], lease_s=5
    )
    assert await store.prune(made_before=20) == Pruned(responses=1, conversations=1, chats=1)
    assert await store.prune(made_before=20) == NOTHING
    assert [line["id"] for line in await exported(store) if line["kind"] != "segment"] == [
        "r-young",
        "running",
        "c-young",
        "chat-young",
    ]
    assert await rows(url) == {
        "segments": 3,
        "items": 1,
        "responses": 2,
        "conversations": 1,
        "chats": 1,
        "chat_metadata": 0,
        "chat_legs": 0,
        "response_legs": 0,
        "files": 0,
        "file_pieces": 0,
    }


async def test_a_conversation_is_as_old_as_its_last_change(url: str) -> None:
    clock = count(100)
    store = await open_store(url, now=lambda: next(clock))
    for name in ("still", "appended", "updated", "answered", "trimmed"):
        await store.add_conversation(conversation(name, created_at=50), items(f"in {name}"))
    await store.append_items(OWNER, "appended", items("a"))
    await store.update_conversation(OWNER, "updated", {})
    await store.add_response(response("r", created_at=50), continues=None, inputs=[], conversation="answered")
    await store.delete_item(OWNER, "trimmed", "in trimmed")
    assert await store.prune(made_before=100) == Pruned(responses=1, conversations=1, chats=0)
    assert await store.conversation(OWNER, "still") is None
    assert await names_in(store, "answered") == ["in answered"]
    await store.aclose()


async def test_the_oldest_make_room_until_the_rest_fits(store: SqlStore) -> None:
    for age in range(10):
        await store.add_response(response(f"r{age}", created_at=age), continues=None, inputs=items(f"i{age}"))
    each = (await store.figures()).bytes // 10
    assert await store.prune(most_bytes=10 * each) == NOTHING
    assert await store.prune(most_bytes=7 * each - 1) == Pruned(responses=4, conversations=0, chats=0)
    kept = [line["id"] for line in await exported(store) if line["kind"] == "response"]
    assert kept == [f"r{age}" for age in range(4, 10)]


@pytest.mark.promise("state.retention.fair")
async def test_whoever_keeps_most_loses_its_oldest_and_nobody_else_anything(store: SqlStore) -> None:
    await store.add_response(response("mine", created_at=1), continues=None, inputs=items("a"))
    await store.add_conversation(conversation("mine", created_at=1), items("b"))
    await store.add_chat(chat("mine", created_at=1))
    mine = (await store.figures()).bytes
    for age in range(10):
        theirs = replace(response(f"r{age}", created_at=100 + age, text="x" * 1000), owner=STRANGER)
        await store.add_response(theirs, continues=None, inputs=items(f"i{age}"))
    assert await store.prune(most_bytes=mine + 5000) == Pruned(responses=6, conversations=0, chats=0)
    kept = [line["id"] for line in await exported(store) if line["kind"] != "segment"]
    assert kept == ["mine", *[f"r{age}" for age in range(6, 10)], "mine", "mine"]


async def test_those_who_keep_most_lose_down_to_the_same(store: SqlStore) -> None:
    counts = {"few": 2, "many": 10, "more": 14}
    for owner, responses in counts.items():
        for number in range(responses):
            record = replace(response(f"{owner}{number:02}", created_at=number), owner=owner, body={})
            await store.add_response(record, continues=None, inputs=items(f"{owner}{number:02}"[-4:]))
    each = (await store.figures()).bytes // sum(counts.values())
    await store.prune(most_bytes=14 * each)
    kept = Counter(str(line["id"])[:-2] for line in await exported(store) if line["kind"] == "response")
    assert kept["few"] == 2
    assert abs(kept["many"] - kept["more"]) <= 2
    assert await store.prune(most_bytes=0) == Pruned(responses=kept.total(), conversations=0, chats=0)


async def test_what_still_runs_makes_no_room(store: SqlStore) -> None:
    running = response("running", status=IN_PROGRESS, created_at=1, text="x" * 1000)
    await store.add_response(running, continues=None, inputs=[], lease_s=5)
    other = replace(response("other", created_at=2), owner=STRANGER)
    await store.add_response(other, continues=None, inputs=[])
    assert await store.prune(most_bytes=0) == Pruned(responses=1, conversations=0, chats=0)


async def test_the_oldest_of_all_kinds_go_first(store: SqlStore) -> None:
    await store.add_conversation(conversation("c", created_at=1), items("a"))
    await store.add_chat(chat("chat", created_at=2))
    await store.add_response(response("r", created_at=3), continues=None, inputs=items("b"))
    removed = []
    while (figures := await store.figures()).bytes:
        removed.append(await store.prune(most_bytes=figures.bytes - 1))
    assert removed == [
        Pruned(responses=0, conversations=1, chats=0),
        Pruned(responses=0, conversations=0, chats=1),
        Pruned(responses=1, conversations=0, chats=0),
    ]


async def test_a_history_outlives_the_responses_that_it_came_from(url: str, store: SqlStore) -> None:
    await store.add_response(response("r1", created_at=1), continues=None, inputs=items("a"), outputs=items("b"))
    segment = (await told(store, "r1")).segment
    await store.add_response(response("r2", created_at=9), continues=segment, inputs=items("c"))
    assert await store.prune(made_before=5) == Pruned(responses=1, conversations=0, chats=0)
    assert await names_of(store, "r2") == (["a", "b", "c"], [])
    assert await store.prune(most_bytes=0) == Pruned(responses=1, conversations=0, chats=0)
    assert await rows(url) == EMPTY


async def test_more_than_a_batch_is_removed(url: str, store: SqlStore) -> None:
    for number in range(BATCH + 20):
        await store.add_response(response(f"r{number}", created_at=1), continues=None, inputs=items("a"))
        await store.add_chat(chat(f"c{number}", created_at=1))
    assert await store.prune(made_before=2) == Pruned(responses=BATCH + 20, conversations=0, chats=BATCH + 20)
    assert await rows(url) == EMPTY


async def test_everything_is_exported(store: SqlStore) -> None:
    await store.add_conversation(conversation("c"), items("a"))
    await store.add_response(
        response("r1", status=IN_PROGRESS), continues=None, inputs=items("b"), conversation="c", lease_s=1
    )
    await store.finish_response(response("r1"), outputs=items("d"), events=b"data: \xff")
    await store.add_chat(chat("chat", topic="t"))
    lines = await exported(store)
    first, second = (line["id"] for line in lines if line["kind"] == "segment")
    a, b, d = ({"id": one.id, "output": one.id == "d", "body": dict(one.body)} for one in items("a", "b", "d"))
    assert lines == [
        {
            "kind": "response",
            "id": "r1",
            "owner": OWNER,
            "created_at": 1000,
            "status": "completed",
            "background": True,
            "segment": second,
            "body": {"id": "r1", "status": "completed"},
            "events": "ZGF0YTog/w==",
        },
        {
            "kind": "conversation",
            "id": "c",
            "owner": OWNER,
            "created_at": 1000,
            "segment": second,
            "metadata": {"topic": "c"},
        },
        {
            "kind": "chat",
            "id": "chat",
            "owner": OWNER,
            "created_at": 1000,
            "model": "gpt-5.5",
            "metadata": {"topic": "t"},
            "body": dict(chat("chat").body),
            "messages": list(chat("chat").messages),
        },
        {
            "kind": "segment",
            "id": first,
            "owner": OWNER,
            "parent": None,
            "items": [a],
        },
        {
            "kind": "segment",
            "id": second,
            "owner": OWNER,
            "parent": first,
            "items": [b, d],
        },
    ]


async def test_an_export_goes_over_many_pages(store: SqlStore) -> None:
    for number in range(120):
        await say(store, f"r{number:03}", [f"i{number}"], [])
    lines = await exported(store)
    assert [line["id"] for line in lines if line["kind"] == "response"] == [f"r{number:03}" for number in range(120)]
    assert len([line for line in lines if line["kind"] == "segment"]) == 120


async def test_a_vacuum_gives_room_back_and_keeps_the_rest(url: str, store: SqlStore) -> None:
    for number in range(50):
        await store.add_response(
            response(f"r{number}", text="x" * 20_000, created_at=number), continues=None, inputs=items("a")
        )
    file = sqlite_file(url)
    await store.prune(made_before=49)
    before = file.stat().st_size if file else None
    await store.vacuum()
    if file and before:
        assert file.stat().st_size < before / 2
    assert await names_of(store, "r49") == (["a"], [])


def large(name: str) -> KeptItem:
    return KeptItem(id=name, body={"type": "message", "content": "x" * STEP_BYTES})


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes that each step removes."""
    taken: list[int] = []
    step = segments.remove_step

    async def counted(tx: Transaction, kind: str, row_id: str) -> tuple[int, int]:
        count, freed = await step(tx, kind, row_id)
        taken.append(freed)
        return count, freed

    for module in (segments, upkeep):
        monkeypatch.setattr(module, "remove_step", counted)
    return taken


@pytest.mark.parametrize("how", ["response", "conversation", "age", "size"])
async def test_a_long_history_is_removed_in_steps(url: str, store: SqlStore, steps: list[int], how: str) -> None:
    await store.add_conversation(conversation("c", created_at=1), [])
    for number in range(5):
        record = response(f"r{number}", created_at=1)
        await store.add_response(record, continues=None, inputs=[large(f"i{number}")], conversation="c")
    for number in range(4):
        assert await store.delete_response(OWNER, f"r{number}")
    if how != "response":
        assert await store.delete_response(OWNER, "r4")
    else:
        assert await store.delete_conversation(OWNER, "c")
    steps.clear()
    match how:
        case "response":
            assert await store.delete_response(OWNER, "r4")
        case "conversation":
            assert await store.delete_conversation(OWNER, "c")
        case "age":
            assert await store.prune(made_before=10**12) == Pruned(responses=0, conversations=1, chats=0)
        case _:
            assert await store.prune(most_bytes=0) == Pruned(responses=0, conversations=1, chats=0)
    assert await rows(url) == EMPTY
    assert len(steps) >= 5
    assert max(steps) < 2 * STEP_BYTES


async def test_what_is_being_removed_is_gone_for_its_owner_and_removed_by_the_next_pruning(
    url: str, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add_conversation(conversation("c"), [large("a")])
    await store.append_items(OWNER, "c", [large("b")])
    database = store._database
    write = database.write
    writes = 0

    async def cut_off(work: Work[T]) -> T:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise BackendUnavailable("The process ends.")
        return await write(work)

    with monkeypatch.context() as patch:
        patch.setattr(database, "write", cut_off)
        with pytest.raises(BackendUnavailable):
            await store.delete_conversation(OWNER, "c")
    assert await store.conversation(OWNER, "c") is None
    assert await store.append_items(OWNER, "c", items("d")) is False
    assert await store.prune(made_before=1) == Pruned(responses=0, conversations=1, chats=0)
    assert await rows(url) == EMPTY
