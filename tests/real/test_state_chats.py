"""Chat completions that are kept on request: every call of the official SDK, through the real Codex."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.support.gateway import Bridge
from tests.support.state_clients import (
    MODEL,
    keeping_bridge,
    shown,
    stranger,
    told,
)
from tests.support.tool_clients import ask, declared, output_item, weather_call
from turnbridge.scripted_model.replies import (
    answer,
    error_reply,
    message,
    reasoning,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def fresh(tmp_path: Path) -> AsyncIterator[Bridge]:
    """Return a gateway that has kept nothing, and that two keys use."""
    async with keeping_bridge(tmp_path) as running:
        running.model.respond = lambda _: answer(message("hello"))
        yield running


async def keep(bridge: Bridge, **options: object) -> Any:
    wanted: dict[str, Any] = {"model": MODEL, "messages": HI, "store": True, **options}
    return await bridge.client.chat.completions.create(**wanted)


async def ids(bridge: Bridge, **query: Any) -> list[str]:
    return [chat.id async for chat in bridge.client.chat.completions.list(**query)]


@pytest.mark.promise("state.chats")
async def test_a_completion_is_kept_on_request_only(fresh: Bridge) -> None:
    kept = await keep(fresh, metadata={"topic": "demo"})
    dropped = await keep(fresh, store=False)
    silent: Any = await fresh.client.chat.completions.create(model=MODEL, messages=HI)
    assert await ids(fresh) == [kept.id]
    again = await fresh.client.chat.completions.retrieve(kept.id)
    assert again.to_dict() == {**kept.to_dict(), "metadata": {"topic": "demo"}}
    for each in (dropped, silent):
        with pytest.raises(openai.NotFoundError, match=f"Chat completion with id '{each.id}' not found") as caught:
            await fresh.client.chat.completions.retrieve(each.id)
        assert told(caught.value) == (404, "not_found", "completion_id")


@pytest.mark.promise("state.chats")
async def test_a_stream_and_its_calls_are_kept_as_the_completion_that_they_make(fresh: Bridge) -> None:
    fresh.script(answer(reasoning(["Hm."]), message("Looking."), weather_call("Rome", "call_1")))
    tools: Any = declared("chat")
    stream = await fresh.client.chat.completions.create(model=MODEL, messages=HI, tools=tools, stream=True, store=True)
    chunks = [chunk async for chunk in stream]
    kept = await fresh.client.chat.completions.retrieve(chunks[0].id)
    (choice,) = kept.choices
    calls: Any = choice.message.tool_calls
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Looking.")
    assert [(call.id, call.function.name) for call in calls] == [("call_1", "weather")]


@pytest.mark.promise("state.chats", "state.sdks")
async def test_completions_are_listed_page_by_page_and_filtered(fresh: Bridge) -> None:
    made = [(await keep(fresh, metadata={"n": str(n % 2), "all": "yes"})).id for n in range(5)]
    other = (await keep(fresh, model="gpt-5.5-high")).id
    assert await ids(fresh) == [*made, other]
    assert await ids(fresh, order="desc", limit=2) == [other, *made[::-1]]
    first = await fresh.client.chat.completions.list(limit=2)
    assert ([chat.id for chat in first.data], first.has_more) == (made[:2], True)
    assert await ids(fresh, after=made[3]) == [made[4], other]
    assert await ids(fresh, metadata={"n": "1"}) == [made[1], made[3]]
    assert await ids(fresh, metadata={"n": "1", "all": "no"}) == []
    assert await ids(fresh, model="gpt-5.5-high") == [other]
    assert await ids(fresh, model="gpt-5.5", metadata={"n": "0"}, limit=1) == [made[0], made[2], made[4]]


@pytest.mark.promise("state.chats")
async def test_a_completions_metadata_is_replaced(fresh: Bridge) -> None:
    kept = await keep(fresh, metadata={"topic": "demo"})
    changed = await fresh.client.chat.completions.update(kept.id, metadata={"state": "done"})
    assert changed.to_dict() == {**kept.to_dict(), "metadata": {"state": "done"}}
    assert (await fresh.client.chat.completions.retrieve(kept.id)).to_dict() == changed.to_dict()
    assert (await ids(fresh, metadata={"topic": "demo"}), await ids(fresh, metadata={"state": "done"})) == (
        [],
        [kept.id],
    )


@pytest.mark.promise("state.chats")
async def test_a_completion_is_deleted(fresh: Bridge) -> None:
    kept = await keep(fresh)
    deleted = await fresh.client.chat.completions.delete(kept.id)
    assert deleted.to_dict() == {"id": kept.id, "object": "chat.completion.deleted", "deleted": True}
    assert await ids(fresh) == []
    for call in (
        fresh.client.chat.completions.retrieve(kept.id),
        fresh.client.chat.completions.update(kept.id, metadata={}),
        fresh.client.chat.completions.delete(kept.id),
        fresh.client.chat.completions.messages.list(kept.id),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            await call
        assert told(caught.value) == (404, "not_found", "completion_id")


@pytest.mark.promise("state.chats")
async def test_the_messages_of_a_completion_are_listed(fresh: Bridge) -> None:
    parts = [{"type": "text", "text": "look"}]
    messages: list[JsonObject] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": parts},  # type: ignore[dict-item]
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "go on"},
    ]
    kept = await keep(fresh, messages=messages)
    listed = [each async for each in fresh.client.chat.completions.messages.list(kept.id, limit=3)]
    assert [(each.id, str(each.role), each.content) for each in listed] == [
        (f"{kept.id}-0", "system", "Be brief."),
        (f"{kept.id}-1", "user", None),
        (f"{kept.id}-2", "assistant", "Yes?"),
        (f"{kept.id}-3", "user", "go on"),
    ]
    assert [part.to_dict() for part in listed[1].content_parts or []] == parts
    newest = await fresh.client.chat.completions.messages.list(kept.id, order="desc", limit=1)
    assert ([each.id for each in newest.data], newest.has_more) == ([f"{kept.id}-3"], True)


@pytest.mark.promise("state.chats")
async def test_a_completion_that_failed_is_not_kept(fresh: Bridge) -> None:
    fresh.script(error_reply(500, "Broken."))
    with pytest.raises(openai.InternalServerError):
        await keep(fresh)
    assert await ids(fresh) == []


@pytest.mark.promise("state.keys")
async def test_another_key_finds_nothing(fresh: Bridge) -> None:
    kept = await keep(fresh, metadata={"topic": "demo"})
    theirs = stranger(fresh).chat.completions
    assert (await theirs.list()).data == []
    assert (await theirs.list(metadata={"topic": "demo"})).data == []
    for call in (
        theirs.retrieve(kept.id),
        theirs.update(kept.id, metadata={}),
        theirs.delete(kept.id),
        theirs.messages.list(kept.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await call
    assert await ids(fresh) == [kept.id]


@pytest.mark.promise("state.restart")
async def test_completions_outlive_a_restart(tmp_path: Path) -> None:
    async with keeping_bridge(tmp_path) as bridge:
        bridge.says("hello")
        kept = await keep(bridge)
    async with keeping_bridge(tmp_path) as bridge:
        assert await ids(bridge) == [kept.id]


@pytest.mark.promise("state.chats.reasoning", "state.restart")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_reasoning_before_calls_outlives_a_restart_if_the_chat_is_stored(
    tmp_path: Path, stream: bool
) -> None:
    history: list[Any] = [{"role": "user", "content": "weather?"}]
    async with keeping_bridge(tmp_path) as bridge:
        bridge.script(answer(reasoning(["Hm."], encrypted="E1"), weather_call("Rome", "call_1")))
        _, calls = await ask(bridge, "chat", history, stream=stream, store=True)
    history.append(output_item("chat", calls[0][0], "sun"))
    async with keeping_bridge(tmp_path) as bridge:
        bridge.script(answer(message("Sunny.")))
        await ask(bridge, "chat", history, stream=stream)
        seen: Any = shown(bridge)
    assert [item["type"] for item in seen] == ["message", "reasoning", "function_call", "function_call_output"]
    assert seen[1]["encrypted_content"] == "E1"
