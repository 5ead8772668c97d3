"""Conversations: every call of the official SDK, and responses that are made in one, through the real Codex."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from dirty_equals import IsInt, IsStr
from openai.types.conversations import ConversationItem

from tests.support.gateway import Bridge
from tests.support.state_clients import (
    MODEL,
    assistant,
    keeping_bridge,
    respond,
    shown,
    stranger,
    thought,
    told,
    user,
)
from tests.support.tool_clients import declared, weather_call
from turnbridge.engine.records import RUNNING
from turnbridge.scripted_model.replies import (
    Hangup,
    Reply,
    StreamReply,
    Wait,
    answer,
    created,
    message,
    reasoning,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PATIENCE_S = 25
ENCRYPTED: Any = ["reasoning.encrypted_content"]


@pytest.fixture(scope="module", params=[0, 64], ids=["replayed", "warm"])
async def kept(
    tmp_path_factory: pytest.TempPathFactory, anyio_backend: object, request: pytest.FixtureRequest
) -> AsyncIterator[Bridge]:
    """Return a gateway that two keys use, without and with threads that are kept."""
    del anyio_backend
    async with keeping_bridge(tmp_path_factory.mktemp("kept"), PROXY_WARM_THREADS_MAX=request.param) as running:
        yield running


def said(text: str, role: str = "user") -> Any:
    return {"type": "message", "role": role, "content": text}


def texts(items: list[ConversationItem]) -> list[str]:
    listed: list[Any] = list(items)
    return [item.content[0].text for item in listed]


@pytest.mark.promise("state.conversations")
async def test_a_conversation_is_created_read_changed_and_deleted(bridge: Bridge) -> None:
    conversations = bridge.client.conversations
    made = await conversations.create(metadata={"topic": "demo"})
    assert made.to_dict() == {
        "id": IsStr(regex="conv_[0-9a-f]{32}"),
        "object": "conversation",
        "created_at": IsInt(gt=1_700_000_000),
        "metadata": {"topic": "demo"},
    }
    assert (await conversations.retrieve(made.id)).to_dict() == made.to_dict()
    changed = await conversations.update(made.id, metadata={"topic": "other"})
    assert changed.to_dict() == {**made.to_dict(), "metadata": {"topic": "other"}}
    assert (await conversations.retrieve(made.id)).to_dict() == changed.to_dict()
    deleted = await conversations.delete(made.id)
    assert deleted.to_dict() == {"id": made.id, "object": "conversation.deleted", "deleted": True}
    with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{made.id}' not found") as caught:
        await conversations.retrieve(made.id)
    assert told(caught.value) == (404, "not_found", "conversation_id")


@pytest.mark.promise("state.conversations")
async def test_a_conversation_needs_nothing_to_begin(bridge: Bridge) -> None:
    made = await bridge.client.conversations.create()
    assert made.metadata == {}
    listed = await bridge.client.conversations.items.list(made.id)
    assert (listed.data, listed.has_more) == ([], False)
    empty = await bridge.http.post("/v1/conversations")
    assert empty.status_code == 200


@pytest.mark.promise("state.conversations", "state.sdks")
async def test_items_are_added_listed_read_and_deleted(bridge: Bridge) -> None:
    items = bridge.client.conversations.items
    made = await bridge.client.conversations.create(items=[said("first"), said("one", "assistant")])
    parts: Any = {"role": "user", "content": [{"type": "input_text", "text": "second"}]}
    added = await items.create(made.id, items=[parts, said("Be brief.", "developer")])
    assert (added.has_more, texts(added.data)) == (False, ["second", "Be brief."])
    everything = ["first", "one", "second", "Be brief."]
    for order, expected in (("asc", everything), ("desc", everything[::-1])):
        wish: Any = order
        assert texts([item async for item in items.list(made.id, order=wish, limit=3)]) == expected
    assert texts((await items.list(made.id)).data) == everything[::-1]
    second: Any = added.data[0]
    found = await items.retrieve(second.id, conversation_id=made.id)
    assert found.to_dict() == {
        "type": "message",
        "id": second.id,
        "role": "user",
        "content": [{"type": "input_text", "text": "second"}],
        "status": "completed",
    }
    left = await items.delete(second.id, conversation_id=made.id)
    assert left.to_dict() == made.to_dict()
    assert texts((await items.list(made.id, order="asc")).data) == ["first", "one", "Be brief."]
    for call in (
        items.retrieve(second.id, conversation_id=made.id),
        items.delete(second.id, conversation_id=made.id),
    ):
        with pytest.raises(openai.NotFoundError, match=f"Item with id '{second.id}' not found") as caught:
            await call
        assert told(caught.value) == (404, "not_found", "item_id")


@pytest.mark.promise("state.conversations")
async def test_every_kind_of_item_is_listed_as_the_sdk_knows_it(bridge: Bridge) -> None:
    given: Any = [
        {"type": "message", "role": "system", "content": "Be brief."},
        {"type": "reasoning", "id": "rs_given", "summary": [], "encrypted_content": "E0"},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    ]
    made = await bridge.client.conversations.create(items=given)
    listed = [item async for item in bridge.client.conversations.items.list(made.id, order="asc")]
    assert [(type(item).__name__, item.type) for item in listed] == [
        ("Message", "message"),
        ("ResponseReasoningItem", "reasoning"),
        ("ResponseFunctionToolCallItem", "function_call"),
        ("ResponseFunctionToolCallOutputItem", "function_call_output"),
        ("ResponseFunctionWebSearch", "web_search_call"),
    ]
    hidden: Any = listed[1]
    asked: Any = await bridge.client.conversations.items.retrieve(
        "rs_given", conversation_id=made.id, include=ENCRYPTED
    )
    assert (hidden.encrypted_content, asked.encrypted_content) == (None, "E0")


@pytest.mark.promise("state.conversation")
async def test_responses_are_added_to_their_conversation(kept: Bridge) -> None:
    made = await kept.client.conversations.create(items=[said("Remember 42.", "developer")])
    kept.script(answer(reasoning(["Hm."], encrypted="E1"), message("one")), answer(message("two")))
    first, way = await respond(kept, "first", conversation=made.id)
    assert (way, first.conversation and first.conversation.id) == ("fresh", made.id)
    again = await kept.client.responses.retrieve(first.id)
    assert again.to_dict() == first.to_dict()
    # An object with the id means the same.
    _, way = await respond(kept, "second", conversation={"id": made.id})
    assert way == ("warm" if kept.gateway.warm.most else "replayed")
    remember: JsonObject = {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Remember 42."}],
    }
    assert shown(kept) == [remember, user("first"), thought("E1", "Hm."), assistant("one"), user("second")]
    listed = [item async for item in kept.client.conversations.items.list(made.id, order="asc")]
    spoken: list[Any] = [item for item in listed if item.type == "message"]
    assert texts(spoken) == ["Remember 42.", "first", "one", "second", "two"]


@pytest.mark.promise("state.conversation")
async def test_a_response_of_a_conversation_can_be_continued_beside_it(kept: Bridge) -> None:
    made = await kept.client.conversations.create()
    kept.script(answer(message("one")), answer(message("two")), answer(message("other two")))
    first, _ = await respond(kept, "first", conversation=made.id)
    await respond(kept, "second", conversation=made.id)
    await respond(kept, "other second", previous_response_id=first.id)
    assert shown(kept) == [user("first"), assistant("one"), user("other second")]
    assert texts((await kept.client.conversations.items.list(made.id, order="asc")).data) == [
        *("first", "one", "second", "two")
    ]


@pytest.mark.promise("state.conversation")
async def test_calls_in_a_conversation_are_answered_in_their_turn(kept: Bridge) -> None:
    made = await kept.client.conversations.create()
    tools = declared("responses")
    kept.script(answer(weather_call("Rome", "call_talk")), answer(message("Sunny.")))
    await respond(kept, "weather?", conversation=made.id, tools=tools)
    sun: JsonObject = {"type": "function_call_output", "call_id": "call_talk", "output": "sun"}
    _, way = await respond(kept, [sun], conversation=made.id, tools=tools)
    assert way == "parked"
    kinds = [item.type async for item in kept.client.conversations.items.list(made.id, order="asc")]
    assert kinds == ["message", "function_call", "function_call_output", "message"]


@pytest.mark.promise("state.conversation")
async def test_what_is_deleted_from_a_conversation_is_not_shown_to_the_model_again(kept: Bridge) -> None:
    made = await kept.client.conversations.create(items=[said("a secret")])
    kept.script(answer(message("one")), answer(message("two")), answer(message("three")))
    first, _ = await respond(kept, "first", conversation=made.id)
    items = kept.client.conversations.items
    secret: Any = (await items.list(made.id, order="asc")).data[0]
    await items.delete(secret.id, conversation_id=made.id)
    _, way = await respond(kept, "second", conversation=made.id)
    assert (way, shown(kept)) == ("replayed", [user("first"), assistant("one"), user("second")])
    # It was part of the response's history too.
    await respond(kept, "other second", previous_response_id=first.id)
    assert shown(kept) == [user("first"), assistant("one"), user("other second")]


@pytest.mark.promise("state.conversation")
async def test_a_response_that_is_not_kept_is_not_added(kept: Bridge) -> None:
    made = await kept.client.conversations.create(items=[said("first")])
    kept.script(answer(message("one")))
    response, _ = await respond(kept, "second", conversation=made.id, store=False)
    assert (response.output_text, shown(kept)) == ("one", [user("first"), user("second")])
    assert texts((await kept.client.conversations.items.list(made.id)).data) == ["first"]


HALF = StreamReply(steps=(created(), message("whole", pieces=["half", Hangup()])))


@pytest.mark.promise("state.conversation.failed")
@pytest.mark.parametrize("how", ["whole", "streamed", "background"])
async def test_a_response_that_fails_leaves_nothing_in_its_conversation(kept: Bridge, how: str) -> None:
    made = await kept.client.conversations.create(items=[said("begun")])
    kept.script(HALF, answer(message("two")))
    wanted: Any = {"model": MODEL, "input": "first", "conversation": made.id}
    failed_id = ""

    async def read() -> None:
        nonlocal failed_id
        async for event in await kept.client.responses.create(**wanted, stream=True):
            if event.type == "response.created":
                failed_id = event.response.id

    if how == "background":
        failed_id = (await kept.client.responses.create(**wanted, background=True)).id
        async with asyncio.timeout(PATIENCE_S):
            while (failed := await kept.client.responses.retrieve(failed_id)).status in RUNNING:
                pass
        assert failed.status == "failed"
    elif how == "streamed":
        with pytest.raises(openai.APIError):
            await read()
    else:
        with pytest.raises(openai.APIError):
            await kept.client.responses.create(**wanted)
    items = kept.client.conversations.items
    assert texts((await items.list(made.id)).data) == ["begun"]
    await respond(kept, "second", conversation=made.id)
    assert shown(kept) == [user("begun"), user("second")]
    assert texts((await items.list(made.id, order="asc")).data) == ["begun", "second", "two"]
    if failed_id:
        # The response itself is kept, and knows what it was made from.
        listed = [item async for item in kept.client.responses.input_items.list(failed_id, order="asc")]
        assert texts(listed) == ["begun", "first"]  # type: ignore[arg-type]
        kept.says("other two")
        await respond(kept, "other second", previous_response_id=failed_id)
        assert shown(kept) == [user("begun"), user("first"), user("other second")]


@pytest.mark.promise("state.conversation.failed")
async def test_a_response_that_is_cancelled_leaves_nothing_in_its_conversation(kept: Bridge) -> None:
    made = await kept.client.conversations.create(items=[said("begun")])
    gate = asyncio.Event()
    kept.script(answer(Wait(gate=gate), message("one")))
    running = await kept.client.responses.create(model=MODEL, input="first", conversation=made.id, background=True)
    await kept.model.until(lambda model: model.active == 1)
    assert texts((await kept.client.conversations.items.list(made.id)).data) == ["begun"]
    await kept.client.responses.cancel(running.id)
    assert texts((await kept.client.conversations.items.list(made.id)).data) == ["begun"]


@pytest.mark.promise("state.conversation")
async def test_a_response_in_the_background_is_added_to_its_conversation_at_its_end(kept: Bridge) -> None:
    made = await kept.client.conversations.create(items=[said("begun")])
    gate = asyncio.Event()
    kept.script(answer(Wait(gate=gate), message("one")))
    running = await kept.client.responses.create(model=MODEL, input="first", conversation=made.id, background=True)
    await kept.client.conversations.items.create(made.id, items=[said("meanwhile")])
    gate.set()
    async with asyncio.timeout(PATIENCE_S):
        while (await kept.client.responses.retrieve(running.id)).status in RUNNING:
            pass
    listed = await kept.client.conversations.items.list(made.id, order="asc")
    assert texts(listed.data) == ["begun", "meanwhile", "first", "one"]


@pytest.mark.promise("state.conversation")
async def test_a_response_that_was_cut_off_is_added_as_far_as_it_went(kept: Bridge) -> None:
    made = await kept.client.conversations.create()
    kept.script(answer(message("one two STOP three")))
    await respond(kept, "first", conversation=made.id, extra_body={"stop": "STOP"})
    assert texts((await kept.client.conversations.items.list(made.id, order="asc")).data) == ["first", "one two "]


@pytest.mark.promise("state.conversations")
async def test_responses_stay_when_their_conversation_is_deleted(kept: Bridge) -> None:
    made = await kept.client.conversations.create(items=[said("begun")])
    kept.script(answer(message("one")), answer(message("two")))
    first, _ = await respond(kept, "first", conversation=made.id)
    await kept.client.conversations.delete(made.id)
    assert (await kept.client.responses.retrieve(first.id)).output_text == "one"
    await respond(kept, "second", previous_response_id=first.id)
    assert shown(kept) == [user("begun"), user("first"), assistant("one"), user("second")]
    with pytest.raises(openai.NotFoundError) as caught:
        await respond(kept, "third", conversation=made.id)
    assert told(caught.value) == (404, "not_found", "conversation")


@pytest.mark.promise("state.conversation")
async def test_two_responses_at_once_each_see_what_was_there_when_they_began(kept: Bridge) -> None:
    made = await kept.client.conversations.create(items=[said("begun")])
    gate = asyncio.Event()

    def reply(request: JsonObject) -> Reply:
        items: Any = request["input"]
        return answer(Wait(gate=gate), message(f"You said: {items[-1]['content'][0]['text']}"))

    kept.script()
    kept.model.respond = reply
    both = [asyncio.ensure_future(respond(kept, text, conversation=made.id)) for text in ("left", "right")]
    await kept.model.until(lambda model: model.active == 2)
    gate.set()
    await asyncio.gather(*both)
    assert {str(shown(kept, n)) for n in (0, 1)} == {str([user("begun"), user(text)]) for text in ("left", "right")}
    begun, *rest = texts((await kept.client.conversations.items.list(made.id, order="asc")).data)
    left, right = ["left", "You said: left"], ["right", "You said: right"]
    assert (begun, rest) in (("begun", left + right), ("begun", right + left))


@pytest.mark.promise("state.conversation")
async def test_a_conversation_that_is_deleted_meanwhile_does_not_cost_the_answer(kept: Bridge) -> None:
    made = await kept.client.conversations.create()
    gate = asyncio.Event()
    kept.script(answer(Wait(gate=gate), message("one")))
    asked = asyncio.ensure_future(respond(kept, "first", conversation=made.id))
    await kept.model.until(lambda model: model.active == 1)
    await kept.client.conversations.delete(made.id)
    gate.set()
    response, _ = await asked
    assert (response.output_text, response.to_dict()["store"]) == ("one", False)
    with pytest.raises(openai.NotFoundError):
        await kept.client.responses.retrieve(response.id)


@pytest.mark.promise("state.restart")
async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with keeping_bridge(tmp_path) as bridge:
        made = await bridge.client.conversations.create(metadata={"topic": "demo"})
        bridge.script(answer(reasoning(["Hm."], encrypted="E1"), message("one")))
        await respond(bridge, "first", conversation=made.id)
    async with keeping_bridge(tmp_path) as bridge:
        assert (await bridge.client.conversations.retrieve(made.id)).to_dict() == made.to_dict()
        bridge.script(answer(message("two")))
        await respond(bridge, "second", conversation=made.id)
        assert shown(bridge) == [user("first"), thought("E1", "Hm."), assistant("one"), user("second")]


@pytest.mark.promise("state.keys")
async def test_another_key_finds_nothing(kept: Bridge) -> None:
    made = await kept.client.conversations.create(items=[said("mine")])
    mine: Any = (await kept.client.conversations.items.list(made.id)).data[0]
    theirs = stranger(kept)
    conversations = theirs.conversations
    for call in (
        conversations.retrieve(made.id),
        conversations.update(made.id, metadata={"a": "b"}),
        conversations.delete(made.id),
        conversations.items.list(made.id),
        conversations.items.create(made.id, items=[said("theirs")]),
        conversations.items.retrieve(mine.id, conversation_id=made.id),
        conversations.items.delete(mine.id, conversation_id=made.id),
    ):
        with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{made.id}' not found"):
            await call
    with pytest.raises(openai.NotFoundError) as caught:
        await theirs.responses.create(model=MODEL, input="x", conversation=made.id)
    assert told(caught.value) == (404, "not_found", "conversation")
    reference: Any = {"type": "item_reference", "id": mine.id}
    with pytest.raises(openai.NotFoundError) as caught:
        await conversations.create(items=[reference])
    assert told(caught.value) == (404, "item_not_found", "items[0]")
    assert texts((await kept.client.conversations.items.list(made.id)).data) == ["mine"]


REFUSED: dict[str, tuple[JsonObject, str, str | None]] = {
    "too many items": ({"items": [said("x")] * 21}, "array_above_max_length", "items"),
    "an unknown item": ({"items": [{"type": "unheard_of"}]}, "unsupported_item", "items[0].type"),
    "an unknown role": ({"items": [said("x"), said("x", "tool")]}, "invalid_value", "items[1].role"),
    "items that are none": ({"items": "x"}, "invalid_type", "items"),
    "metadata that is none": ({"metadata": ["x"]}, "invalid_type", "metadata"),
    "a value that is no text": ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
}


@pytest.mark.promise("state.conversations")
@pytest.mark.parametrize(("body", "code", "param"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_kept_is_refused(bridge: Bridge, body: JsonObject, code: str, param: str) -> None:
    response = await bridge.http.post("/v1/conversations", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)


@pytest.mark.promise("state.errors")
async def test_nothing_to_add_is_refused(bridge: Bridge) -> None:
    made = await bridge.client.conversations.create()
    with pytest.raises(openai.BadRequestError) as caught:
        await bridge.client.conversations.items.create(made.id, items=[])
    assert told(caught.value) == (400, "empty_array", "items")
    nothing = await bridge.http.post(f"/v1/conversations/{made.id}/items", json={})
    assert (nothing.status_code, nothing.json()["error"]["code"]) == (400, "missing_required_parameter")
