"""Steering over WebSocket, on the real Codex: input that is sent while a response is made."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from dirty_equals import IsPartialDict, IsStr
from openai.types.responses import ResponseSteerAcceptedEvent

from tests.support.gateway import API_KEY, TIMEOUT_S, Bridge
from tests.support.sockets import Socket, connected, response_id, response_of, text_of
from tests.support.tool_clients import HI
from tests.support.tool_clients import WEATHER as PARAMETERS
from turnbridge.api.responses import steering
from turnbridge.scripted_model.replies import (
    Hangup,
    StreamReply,
    Wait,
    answer,
    function_call,
    message,
    reasoning,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

WEATHER: JsonObject = {"type": "function", "name": "get_weather", "parameters": PARAMETERS}
STEER_ID = IsStr(regex=r"steer_[0-9a-f]{32}")


@pytest.fixture
async def socket(bridge: Bridge) -> AsyncIterator[Socket]:
    """Return an open connection."""
    async with connected(bridge.url) as opened:
        yield opened


def begun(gate: asyncio.Event) -> StreamReply:
    """Return an answer that begins, and goes on when the gate opens."""
    return answer(message("Begun, done.", pieces=["Begun", Wait(gate=gate), ", done."]))


async def begin(socket: Socket, text: Json = "hi", **fields: Json) -> str:
    """Ask for a response, wait for its first words, and return its id."""
    await socket.create(text, **fields)
    created, *_ = await socket.until(lambda event: event["type"] == "response.output_text.delta")
    return response_id([created])


async def steer(socket: Socket, target: str, given: Json, **fields: Json) -> JsonObject:
    """Send input for a response, and return the event that answers it."""
    await socket.send({"type": "response.steer", "previous_response_id": target, "input": given, **fields})
    return (await socket.until(lambda event: str(event["type"]).startswith("response.steer")))[-1]


def said(item: Any) -> tuple[str, str]:
    """Return who says what in an item that the model was shown."""
    return item.get("role", item["type"]), "".join(part.get("text", "") for part in item.get("content") or ())


@pytest.mark.promise("websocket.steering")
@pytest.mark.parametrize("store", [False, True])
async def test_a_response_in_the_middle_of_a_message_completes_and_a_successor_continues_it(
    bridge: Bridge, socket: Socket, store: bool
) -> None:
    gate = asyncio.Event()
    bridge.script(begun(gate), answer(message("Faster it is.")))
    first = await begin(socket, stream_id="a", store=store, instructions="Be kind.")
    assert await steer(socket, first, "Faster.") == {
        "type": "response.steer.accepted",
        "sequence_number": 0,
        "steer": {"id": STEER_ID, "previous_response_id": first},
        "stream_id": "a",
    }
    gate.set()
    assert (await socket.response())[-1]["type"] == "response.completed"
    successor = await socket.response()
    assert (text_of(successor), response_of(successor)["previous_response_id"]) == ("Faster it is.", first)
    assert {event["stream_id"] for event in successor} == {"a"}
    items: Any = bridge.model.requests[-1].body["input"]
    assert [said(item) for item in items] == [
        ("developer", "Be kind."),
        ("user", "hi"),
        ("assistant", "Begun, done."),
        ("user", "Faster."),
    ]


@pytest.mark.promise("websocket.steering")
async def test_a_response_between_two_items_is_cut_there(bridge: Bridge, socket: Socket) -> None:
    gate = asyncio.Event()
    # Were it whole at once, there would be nothing left to be cut.
    unending = message("Never said.", pieces=["Never", Wait(gate=asyncio.Event()), " said."])
    bridge.script(
        answer(reasoning(["Let me think."], encrypted="thoughts"), Wait(gate=gate), unending),
        answer(message("Better.")),
    )
    await socket.create(include=["reasoning.encrypted_content"])
    created, *_ = await socket.until(lambda event: event["type"] == "response.output_item.done")
    first = response_id([created])
    assert (await steer(socket, first, [{"role": "user", "content": "Stop thinking."}]))["type"] == (
        "response.steer.accepted"
    )
    gate.set()
    ended = await socket.response()
    assert ended[-1]["type"] == "response.incomplete"
    assert response_of(ended)["incomplete_details"] == {"reason": "steered"}
    assert text_of(ended) == ""
    assert text_of(await socket.response()) == "Better."
    items: Any = bridge.model.requests[-1].body["input"]
    assert (items[0]["role"], items[1]["encrypted_content"], said(items[-1])) == (
        "user",
        "thoughts",
        ("user", "Stop thinking."),
    )


@pytest.mark.promise("websocket.steering")
async def test_input_waits_for_the_outputs_of_calls(bridge: Bridge, socket: Socket) -> None:
    gate = asyncio.Event()
    call = function_call("get_weather", '{"city":"Rome"}', call_id="call_1")
    bridge.script(
        answer(message("Look.", pieces=["Lo", Wait(gate=gate), "ok."]), call), answer(message("Warm, in Celsius."))
    )
    first = await begin(socket, [HI], tools=[WEATHER])
    assert (await steer(socket, first, "In Celsius."))["type"] == "response.steer.accepted"
    gate.set()
    await socket.response()
    assert await socket.event() == {
        "type": "response.steer.pending",
        "sequence_number": 0,
        "steer": {"id": STEER_ID, "previous_response_id": first},
        "reason": "waiting_for_required_input",
        "required_input": [{"type": "function_call_output", "call_id": "call_1"}],
    }
    output: JsonObject = {"type": "function_call_output", "call_id": "call_1", "output": "20"}
    events = await socket.ask([output], tools=[WEATHER], previous_response_id=first)
    assert text_of(events) == "Warm, in Celsius."
    items: Any = bridge.model.requests[-1].body["input"]
    assert [said(item) for item in items if item["type"] == "message"][-1] == ("user", "In Celsius.")
    assert [item["output"] for item in items if item["type"] == "function_call_output"] == ["20"]


@pytest.mark.promise("websocket.steering")
async def test_a_response_that_fails_gives_the_input_back(bridge: Bridge, socket: Socket) -> None:
    gate = asyncio.Event()
    bridge.script(answer(message("Begun.", pieces=["Be", Wait(gate=gate), Hangup(), "gun."])))
    first = await begin(socket)
    accepted = await steer(socket, first, "Faster.")
    gate.set()
    assert (await socket.response())[-1]["type"] == "response.failed"
    steered: Any = accepted["steer"]
    assert await socket.event() == {
        "type": "response.steer.failed",
        "sequence_number": 0,
        "error": IsPartialDict({"code": "successor_creation_failed", "type": "invalid_request_error"}),
        "steer": {**steered, "input": "Faster."},
    }
    bridge.says("hello")
    assert text_of(await socket.ask()) == "hello"


@pytest.mark.promise("websocket.steering")
async def test_a_successor_that_is_refused_gives_the_input_back(bridge: Bridge, socket: Socket) -> None:
    gate = asyncio.Event()
    bridge.script(begun(gate))
    first = await begin(socket)
    broken: Json = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,xx"}]}]
    assert (await steer(socket, first, broken))["type"] == "response.steer.accepted"
    gate.set()
    assert (await socket.response())[-1]["type"] == "response.completed"
    refused: Any = await socket.event()
    assert (refused["type"], refused["error"]["code"], refused["steer"]["input"]) == (
        "response.steer.failed",
        "successor_creation_failed",
        broken,
    )


@pytest.mark.promise("websocket.steering")
@pytest.mark.parametrize(
    ("given", "fields", "code"),
    [
        ("Faster.", {"model": "gpt-5.5"}, "invalid_input"),
        ("Faster.", {"stream_id": "a"}, "invalid_input"),
        ("", {}, "invalid_input"),
        ([], {}, "invalid_input"),
        ([{"role": "developer", "content": "Faster."}], {}, "invalid_input"),
        ([{"type": "function_call_output", "call_id": "call_1", "output": "20"}], {}, "invalid_input"),
        ([{"role": "user", "content": [{"type": "output_text", "text": "Faster."}]}], {}, "invalid_input"),
        ("Faster.", {"previous_response_id": "resp_unknown"}, "response_not_found"),
        ("Faster.", {"previous_response_id": 7}, "invalid_input"),
    ],
)
async def test_what_cannot_be_taken_is_given_back_and_the_response_goes_on(
    bridge: Bridge, socket: Socket, given: Json, fields: JsonObject, code: str
) -> None:
    gate = asyncio.Event()
    bridge.script(begun(gate))
    first = await begin(socket)
    refused: Any = await steer(socket, first, given, **fields)
    assert (refused["type"], refused["error"]["code"]) == ("response.steer.failed", code)
    assert refused["steer"]["input"] == given
    gate.set()
    assert text_of(await socket.response()) == "Begun, done."


@pytest.mark.promise("websocket.steering")
async def test_a_response_that_has_ended_or_is_of_a_conversation_is_not_steered(bridge: Bridge, socket: Socket) -> None:
    gate = asyncio.Event()
    bridge.script(answer(message("hello")), begun(gate))
    ended: Any = await steer(socket, response_id(await socket.ask()), "Faster.")
    assert ended["error"]["code"] == "response_already_completed"
    conversation = await bridge.client.conversations.create()
    bound: Any = await steer(socket, await begin(socket, conversation=conversation.id, store=True), "Faster.")
    assert bound["error"]["code"] == "steering_not_supported"
    gate.set()
    await socket.response()


@pytest.mark.promise("websocket.steering")
async def test_what_waits_for_one_response_is_bounded(
    bridge: Bridge, socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "MOST_STEERS", 2)
    gate = asyncio.Event()
    bridge.script(begun(gate), answer(message("Both.")))
    first = await begin(socket)
    for number in range(2):
        assert (await steer(socket, first, f"Hint {number}."))["type"] == "response.steer.accepted"
    refused: Any = await steer(socket, first, "One more.")
    assert refused["error"]["code"] == "too_many_pending_steers"
    gate.set()
    await socket.response()
    assert text_of(await socket.response()) == "Both."
    items: Any = bridge.model.requests[-1].body["input"]
    assert [said(item) for item in items[-2:]] == [("user", "Hint 0."), ("user", "Hint 1.")]


@pytest.mark.promise("websocket.steering")
async def test_the_sdk_steers(bridge: Bridge) -> None:
    gate = asyncio.Event()
    bridge.script(begun(gate), answer(message("Faster it is.")))
    client = openai.AsyncOpenAI(base_url=f"{bridge.url}/v1", api_key=API_KEY, max_retries=0)
    completed: list[str] = []
    first = ""
    async with client.responses.connect() as connection, asyncio.timeout(TIMEOUT_S):
        await connection.response.create(model="gpt-5.5", input="hi")
        async for event in connection:
            if event.type == "response.output_text.delta" and not completed and not gate.is_set():
                gate.set()
                await connection.response.steer(input="Faster.", previous_response_id=first)
            elif event.type == "response.created":
                first = event.response.id
            elif event.type == "response.steer.accepted":
                assert isinstance(event, ResponseSteerAcceptedEvent)
            elif event.type == "response.completed":
                completed.append(event.response.output_text)
                if len(completed) == 2:
                    break
    assert completed == ["Begun, done.", "Faster it is."]
    await client.close()
