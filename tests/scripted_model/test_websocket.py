"""The scripted model over WebSocket: what a client of the Responses API meets there."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from turnbridge.scripted_model.replies import (
    Hangup,
    Json,
    JsonObject,
    Pause,
    StreamReply,
    answer,
    created,
    error_reply,
    message,
)
from turnbridge.scripted_model.server import Respond, in_order
from turnbridge.scripted_model.websocket import WebSocketModel

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connected(respond: Respond) -> AsyncIterator[tuple[WebSocketModel, ClientConnection]]:
    async with WebSocketModel(respond, record=True) as model, connect(f"{model.websocket_url}/responses") as socket:
        yield model, socket


async def create(socket: ClientConnection, *items: Json, **more: Json) -> list[JsonObject]:
    """Ask for a response; return its events."""
    await socket.send(json.dumps({"type": "response.create", "model": "m", "input": list(items), **more}))
    events: list[JsonObject] = [json.loads(await socket.recv())]
    while events[-1]["type"] not in ("error", "response.completed"):
        events.append(json.loads(await socket.recv()))
    return events


def response_id(events: list[JsonObject]) -> Json:
    response = events[-1]["response"]
    assert isinstance(response, dict)
    return response["id"]


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


async def test_a_response_has_the_same_events_as_over_http() -> None:
    reply = answer(message("hello", pieces=["hel", "lo"]))
    async with connected(lambda _: reply) as (model, socket):
        assert await create(socket, user("hi")) == list(reply.render(1))
    assert (model.received, model.dropped, model.sockets, model.warmed_up) == (1, 0, 1, 0)


async def test_a_script_sees_the_whole_conversation_although_only_new_items_were_sent() -> None:
    async with connected(in_order(answer(message("one", id="msg_1")), answer(message("two")))) as (model, socket):
        warm = await create(socket, user("a"), generate=False, instructions="Be brief.")
        first = await create(socket, user("b"), previous_response_id=response_id(warm))
        await create(socket, user("c"), previous_response_id=response_id(first))
    (said,) = [event["item"] for event in first if event["type"] == "response.output_item.done"]
    assert [request.body for request in model.requests] == [
        {"model": "m", "input": [user("a"), user("b")]},
        {"model": "m", "input": [user("a"), user("b"), said, user("c")]},
    ]


async def test_a_warm_up_asks_nothing_of_the_script() -> None:
    async with connected(in_order()) as (model, socket):
        events = await create(socket, generate=False)
    assert [event["type"] for event in events] == ["response.created", "response.completed"]
    assert (model.received, model.warmed_up) == (0, 1)


async def test_an_unknown_response_cannot_be_continued_and_the_connection_stays() -> None:
    async with connected(lambda _: answer(message("ok"))) as (model, socket):
        (error,) = await create(socket, user("a"), previous_response_id="resp_nobody")
        assert model.received == 0
        assert (await create(socket, user("a")))[-1]["type"] == "response.completed"
    assert error == {
        "type": "error",
        "status": 400,
        "error": {
            "message": "Previous response with id 'resp_nobody' not found.",
            "type": "invalid_request_error",
            "param": "previous_response_id",
            "code": "previous_response_not_found",
        },
        "headers": {},
    }


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"type": "response.steer"}'])
async def test_a_message_that_asks_for_nothing_known_is_an_error(text: str) -> None:
    async with connected(in_order()) as (_, socket):
        await socket.send(text)
        assert json.loads(await socket.recv())["status"] == 400


async def test_an_error_reply_is_an_error_message() -> None:
    async with connected(lambda _: error_reply(429, "Slow down.")) as (_, socket):
        (error,) = await create(socket, user("a"))
    assert (error["type"], error["status"]) == ("error", 429)


async def test_a_hangup_breaks_the_connection() -> None:
    async with connected(lambda _: StreamReply(steps=(created(), Hangup()))) as (_, socket):
        with pytest.raises(ConnectionClosed):
            await create(socket, user("a"))


async def test_a_peer_that_leaves_drops_its_stream() -> None:
    async with connected(lambda _: answer(Pause(seconds=60))) as (model, socket):
        await socket.send(json.dumps({"type": "response.create", "input": []}))
        await socket.recv()
        await socket.close()
        await model.until(lambda model: model.active == 0)
        assert model.dropped == 1


async def test_only_the_responses_route_is_there() -> None:
    async with WebSocketModel(in_order()) as model:
        with pytest.raises(InvalidStatus, match="403"):
            await connect(f"{model.websocket_url}/chat")


async def test_the_log_of_a_demo_has_none_of_its_connections(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="uvicorn.error"):
        async with connected(lambda _: answer(message("ok"))) as (_, socket):
            await create(socket, user("hi"))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == []
