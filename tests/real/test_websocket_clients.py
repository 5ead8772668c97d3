"""The official SDKs over WebSocket, through the whole gateway and the real Codex."""

import asyncio
from typing import Any

import openai
import pytest
from openai.types.responses import FunctionToolParam, ResponseCompletedEvent, ResponseFunctionToolCall
from openai.types.responses.responses_server_event import ResponsesServerEvent

from tests.support.gateway import API_KEY, TIMEOUT_S, Bridge
from tests.support.node import run_script
from turnbridge.scripted_model.replies import Reply, answer, function_call, message
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LOOK: FunctionToolParam = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
TYPES = [
    *("response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"),
    *("response.output_text.delta", "response.output_text.done", "response.content_part.done"),
    *("response.output_item.done", "response.completed"),
]
WARM_UP = ["response.created", "response.in_progress", "response.completed"]


def respond(request: JsonObject) -> Reply:
    """Call the function first; then say how many items there are."""
    items: Any = request["input"]
    last = items[-1]
    if last["type"] == "message" and last["content"][0]["text"] == "look":
        return answer(function_call("look", "{}", call_id="call_1"))
    return answer(message(f"{len(items)} items"))


def completed(events: list[ResponsesServerEvent]) -> openai.types.responses.Response:
    """Return the response that the last event completes."""
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent)
    return last.response


def call_in(response: openai.types.responses.Response) -> str:
    (call,) = response.output
    assert isinstance(call, ResponseFunctionToolCall)
    return call.call_id


def judge(warm: Any, first: Any, second: Any, fork: Any, refused: Any) -> None:
    """Judge the events of a conversation: warm-up, a call, its output, a fork, and a response that nobody knows."""
    assert [event.type for event in warm] == WARM_UP
    assert completed(first).output[0].type == "function_call"
    assert ([event.type for event in second], completed(second).output_text) == (TYPES, "3 items")
    assert completed(fork).output_text == "5 items"
    assert {event.stream_id for event in fork} == {"fork"}
    assert {event.stream_id for event in second} == {None}
    (error,) = refused
    assert (error.type, error.status, error.error.code, error.error.param) == (
        *("error", 400),
        *("previous_response_not_found", "previous_response_id"),
    )
    assert error.error.headers["x-request-id"]


@pytest.mark.promise("websocket.clients", "websocket.warm-up", "websocket.memory")
async def test_the_async_python_sdk_talks_over_a_websocket(bridge: Bridge) -> None:
    bridge.script()
    bridge.model.respond = respond
    async with bridge.client.responses.connect() as connection:

        async def ask(**fields: Any) -> list[ResponsesServerEvent]:
            await connection.response.create(model="gpt-5.5", store=False, tools=[LOOK], **fields)
            events = []
            async for event in connection:
                events.append(event)
                if event.type in ("response.completed", "error"):
                    break
            return events

        warm = await ask(input=[], generate=False)
        first = await ask(input="look", previous_response_id=completed(warm).id)
        output = {"type": "function_call_output", "call_id": call_in(completed(first)), "output": "nothing"}
        second = await ask(input=[output], previous_response_id=completed(first).id)
        fork = await ask(input="fork", previous_response_id=completed(second).id, stream_id="fork")
        judge(warm, first, second, fork, await ask(input="more", previous_response_id="resp_nobody"))


@pytest.mark.promise("websocket.clients", "websocket.warm-up", "websocket.memory")
async def test_the_python_sdk_talks_over_a_websocket(bridge: Bridge) -> None:
    bridge.script()
    bridge.model.respond = respond

    def talk() -> None:
        client = openai.OpenAI(base_url=f"{bridge.url}/v1", api_key=API_KEY, max_retries=0, timeout=TIMEOUT_S)
        with client, client.responses.connect() as connection:

            def ask(**fields: Any) -> list[ResponsesServerEvent]:
                connection.response.create(model="gpt-5.5", store=False, tools=[LOOK], **fields)
                events = []
                for event in connection:
                    events.append(event)
                    if event.type in ("response.completed", "error"):
                        break
                return events

            warm = ask(input=[], generate=False)
            first = ask(input="look", previous_response_id=completed(warm).id)
            output = {"type": "function_call_output", "call_id": call_in(completed(first)), "output": "nothing"}
            second = ask(input=[output], previous_response_id=completed(first).id)
            fork = ask(input="fork", previous_response_id=completed(second).id, stream_id="fork")
            judge(warm, first, second, fork, ask(input="more", previous_response_id="resp_nobody"))

    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.to_thread(talk)


@pytest.mark.promise("websocket.clients", "websocket.warm-up", "websocket.memory")
async def test_the_node_sdk_talks_over_a_websocket(bridge: Bridge) -> None:
    bridge.script()
    bridge.model.respond = respond
    assert await run_script("websocket.mjs", bridge) == {
        "warm": WARM_UP,
        "call": "look",
        "texts": ["3 items", "5 items"],
        "lanes": ["fork"],
        "types": TYPES,
        "refused": "previous_response_not_found",
    }
