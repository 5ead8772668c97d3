"""What belongs to one key does not exist for another."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.store.samples import (
    OWNER,
    PLENTY,
    STRANGER,
    call,
    chat,
    conversation,
    file,
    items,
    names_in,
    names_of,
    response,
    rows,
)
from turnbridge.engine.records import IN_PROGRESS, ChatQuery, FileQuery, ItemQuery
from turnbridge.store.sql_store import SqlStore
from turnbridge.turn.errors import NotFound

pytestmark = pytest.mark.anyio

ATTEMPTS: dict[str, tuple[Callable[[SqlStore], Awaitable[object]], object]] = {
    "response": (lambda store: store.response(STRANGER, "r1"), None),
    "events": (lambda store: store.response_events(STRANGER, "r1"), None),
    "history": (lambda store: store.response_history(STRANGER, "r1"), None),
    "finish": (
        lambda store: store.finish_response(replace(response("run"), owner=STRANGER), outputs=[], events=None),
        False,
    ),
    "delete response": (lambda store: store.delete_response(STRANGER, "r1"), False),
    "file": (lambda store: store.file(STRANGER, "f"), None),
    "file content": (lambda store: store.file_content(STRANGER, "f"), None),
    "file piece": (lambda store: store.file_piece(STRANGER, "f", 0), None),
    "files": (lambda store: store.files(STRANGER, FileQuery()), ([], False)),
    "known files": (lambda store: store.known_files(STRANGER, ["f"]), set()),
    "delete file": (lambda store: store.delete_file(STRANGER, "f"), False),
    "items": (lambda store: store.items(STRANGER, ["a", "call"]), {}),
    "calls": (lambda store: store.answers_with_calls(STRANGER, ["one"]), []),
    "conversation": (lambda store: store.conversation(STRANGER, "c"), None),
    "conversation history": (lambda store: store.conversation_history(STRANGER, "c"), None),
    "conversation items": (lambda store: store.conversation_items(STRANGER, "c", ItemQuery()), None),
    "conversation item": (lambda store: store.conversation_item(STRANGER, "c", "a"), None),
    "inputs": (lambda store: store.response_inputs(STRANGER, "r1", ItemQuery()), None),
    "outputs": (lambda store: store.response_outputs(STRANGER, "r1"), []),
    "take over": (lambda store: store.take_over(replace(response("run"), owner=STRANGER), "other", 30), False),
    "maker": (lambda store: store.maker(STRANGER, "run"), None),
    "parked legs": (lambda store: store.parked_legs(STRANGER, ["one"]), []),
    "update": (lambda store: store.update_conversation(STRANGER, "c", {}), False),
    "append": (lambda store: store.append_items(STRANGER, "c", items("x")), False),
    "delete item": (lambda store: store.delete_item(STRANGER, "c", "a"), False),
    "delete conversation": (lambda store: store.delete_conversation(STRANGER, "c"), False),
    "chat": (lambda store: store.chat(STRANGER, "chat"), None),
    "chats": (lambda store: store.chats(STRANGER, ChatQuery()), ([], False)),
    "chats after": (lambda store: store.chats(STRANGER, ChatQuery(after="chat", newest_first=True)), ([], False)),
    "update chat": (lambda store: store.update_chat(replace(chat("chat"), owner=STRANGER)), False),
    "delete chat": (lambda store: store.delete_chat(STRANGER, "chat"), False),
}


@pytest.fixture
async def full(store: SqlStore) -> SqlStore:
    """Return a store in which somebody has something of each kind."""
    await store.add_conversation(conversation("c"), items("a"))
    await store.add_response(
        response("r1"), continues=None, inputs=items("b"), outputs=[call("call", "one")], conversation="c"
    )
    await store.add_response(response("run", status=IN_PROGRESS), continues=None, inputs=[], lease_s=-100)
    await store.add_chat(chat("chat"))
    await store.add_file(file("f", size=1), b"f", PLENTY)
    return store


@pytest.mark.parametrize(("attempt", "outcome"), ATTEMPTS.values(), ids=ATTEMPTS.keys())
async def test_another_key_finds_and_changes_nothing(
    url: str, full: SqlStore, attempt: Callable[[SqlStore], Awaitable[object]], outcome: object
) -> None:
    before = await rows(url)
    assert await attempt(full) == outcome
    assert await rows(url) == before
    assert await names_of(full, "r1") == (["a", "b"], ["call"])
    assert await names_in(full, "c") == ["a", "b", "call"]
    assert await full.response(OWNER, "run") == response("run", status=IN_PROGRESS)
    assert await full.conversation(OWNER, "c") == conversation("c")
    assert await full.chat(OWNER, "chat") == chat("chat")
    assert await full.file_content(OWNER, "f") == (file("f", size=1), b"f")


async def test_another_key_cannot_continue_a_history(url: str, full: SqlStore) -> None:
    history = await full.response_history(OWNER, "r1")
    assert history is not None
    before = await rows(url)
    theirs = replace(response("r2"), owner=STRANGER)
    with pytest.raises(NotFound):
        await full.add_response(theirs, continues=history.segment, inputs=[])
    with pytest.raises(NotFound):
        await full.add_response(theirs, continues=None, inputs=[], conversation="c")
    assert await rows(url) == before


async def test_each_key_has_its_own_items_under_one_id(full: SqlStore) -> None:
    await full.add_response(replace(response("r2"), owner=STRANGER), continues=None, inputs=[call("a", "one")])
    assert await full.items(STRANGER, ["a"]) == {"a": call("a", "one")}
    assert await full.items(OWNER, ["a"]) == {"a": items("a")[0]}
