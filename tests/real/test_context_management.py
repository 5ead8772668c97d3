"""`context_management` on the real Codex: a history over the threshold is compacted before it is answered."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import openai
import pytest

from tests.support.gateway import Bridge
from tests.support.sockets import connected, response_of
from tests.support.tool_clients import declared, inputs, weather_call
from turnbridge.api.responses.compaction import INTRODUCTION, PROMPT
from turnbridge.scripted_model.replies import answer, error_reply, message

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
LONG = "The lake is deep. " * 300
MANAGED: dict[str, Any] = {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}
SUMMARY = ("developer", f"{INTRODUCTION}Rome.")

Ask: TypeAlias = Callable[[str], Awaitable[Any]]
"""Says something in a conversation, and returns the response as JSON."""


def said(items: Any) -> list[tuple[str, str]]:
    """Return who says what in the items that the model was shown."""
    return [(item["role"], item["content"][0]["text"]) for item in items]


def user(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


@asynccontextmanager
async def conversation(bridge: Bridge, way: str) -> AsyncIterator[Ask]:
    """Let a client talk: with the whole history or by response ids, streamed or not, over HTTP or WebSocket."""
    history: list[Any] = []
    previous: list[str] = []

    async def by_items(text: str) -> Any:
        history.append(user(text))
        asked: Any = {"model": MODEL, "input": history, "store": False, **MANAGED}
        if way == "streamed items":
            async with bridge.client.responses.stream(**asked) as stream:
                response = [event async for event in stream][-1].response.model_dump()  # type: ignore[union-attr]
        else:
            response = (await bridge.client.responses.create(**asked)).model_dump()
        if way == "pruned items" and response["output"][0]["type"] == "compaction":
            history.clear()
        history.extend(response["output"])
        return response

    async def by_id(text: str) -> Any:
        asked: Any = {"model": MODEL, "input": text, "previous_response_id": previous[-1] if previous else None}
        response = (await bridge.client.responses.create(**asked, **MANAGED)).model_dump()
        previous.append(response["id"])
        return response

    if way != "socket":
        yield by_id if way == "stored" else by_items
        return
    async with connected(bridge.url) as socket:

        async def by_socket(text: str) -> Any:
            continued = {"previous_response_id": previous[-1]} if previous else {}
            response: Any = response_of(await socket.ask(text, **continued, **MANAGED))
            previous.append(response["id"])
            return response

        yield by_socket


@pytest.mark.promise("state.context-management")
@pytest.mark.parametrize("way", ["items", "streamed items", "pruned items", "stored", "socket"])
async def test_a_long_history_is_compacted_in_its_response_and_stays_so(bridge: Bridge, way: str) -> None:
    replies = LONG, "Rome.", "Noted.", "In Rome."
    bridge.script(*(answer(message(reply)) for reply in replies))
    async with conversation(bridge, way) as ask:
        first = await ask("I live in Rome.")
        assert [item["type"] for item in first["output"]] == ["message"]
        second = await ask("And I like tea.")
        assert [item["type"] for item in second["output"]] == ["compaction", "message"]
        assert "Rome" not in second["output"][0]["encrypted_content"]
        # Of both turns: the one that wrote the summary, and the one that answered.
        assert second["usage"]["output_tokens"] == 2 * first["usage"]["output_tokens"]
        third = await ask("Where do I live?")
        assert [item["type"] for item in third["output"]] == ["message"]
    rome, tea = ("user", "I live in Rome."), ("user", "And I like tea.")
    assert list(map(said, inputs(bridge))) == [
        [rome],
        [rome, ("assistant", LONG), ("user", PROMPT)],
        [rome, SUMMARY, tea],
        [rome, SUMMARY, tea, ("assistant", "Noted."), ("user", "Where do I live?")],
    ]


@pytest.mark.promise("state.context-management", "tools.parked")
async def test_calls_are_summarized_with_their_outputs_and_later_ones_are_parked(bridge: Bridge) -> None:
    bridge.script(
        answer(weather_call("Rome", "c1")),
        answer(message("Rome.")),
        answer(weather_call("Bern", "c2")),
        answer(message("Dry.")),
    )
    history: list[Any] = [{"role": "developer", "content": "Be brief."}, user("Weather?")]
    kinds, ways = [], []
    for output in (LONG, "dry", None):
        body = {"model": MODEL, "input": history, "tools": declared("responses"), **MANAGED}
        response = await bridge.http.post("/v1/responses", json=body)
        ways.append(response.headers["x-turnbridge-thread"])
        output_items = response.json()["output"]
        kinds.append([item["type"] for item in output_items])
        history += output_items
        if output is not None:
            history.append({"type": "function_call_output", "call_id": output_items[-1]["call_id"], "output": output})
    assert (kinds, ways) == (
        [["function_call"], ["compaction", "function_call"], ["message"]],
        ["fresh", "fresh", "parked"],
    )
    shown: Any = inputs(bridge)
    start = [("developer", "Be brief."), ("user", "Weather?")]
    assert [item["type"] for item in shown[1]] == ["message"] * 2 + ["function_call", "function_call_output", "message"]
    assert said(shown[2]) == [*start, SUMMARY]
    assert said(shown[3][:3]) == [*start, SUMMARY]
    assert [item["call_id"] for item in shown[3][3:]] == ["c2", "c2"]
    # The summary is written without tools; they are there again afterwards.
    tools: list[Any] = [request.body["tools"] for request in bridge.model.requests]
    assert list(map(len, tools)) == [3, 0, 3, 3]


@pytest.mark.promise("state.context-management")
async def test_a_summary_that_fails_is_the_failure_of_the_response(bridge: Bridge) -> None:
    history: Any = [user("Hi."), {"role": "assistant", "content": LONG}, user("Go on.")]
    bridge.script(error_reply(429, "Too fast."))
    with pytest.raises(openai.RateLimitError):
        await bridge.client.responses.create(model=MODEL, input=history, **MANAGED)
    bridge.script(answer(message(" ")))
    with pytest.raises(openai.UnprocessableEntityError) as empty:
        await bridge.client.responses.create(model=MODEL, input=history, **MANAGED)
    assert empty.value.code == "compaction_failed"
