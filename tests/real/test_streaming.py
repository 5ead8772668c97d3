"""What a client reads of a stream, through the real Codex."""

import asyncio
import json
from typing import Annotated

import pytest
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import Field, TypeAdapter

from tests.support.gateway import Bridge
from turnbridge.scripted_model.replies import (
    Json,
    JsonObject,
    Reply,
    StreamReply,
    Usage,
    Wait,
    answer,
    function_call,
    message,
    reasoning,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
def bridge(either_bridge: Bridge) -> Bridge:
    """Return a gateway for each transport to the provider."""
    return either_bridge


MODEL = "gpt-5.5"
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
BOTH_APIS = pytest.mark.parametrize("path", [CHAT, RESPONSES])

STREAM_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(
    Annotated[ResponseStreamEvent, Field(discriminator="type")]
)
"""The SDK's own types; with the discriminator, a complaint is about the one type that was meant."""

PATIENCE_S = 25
"""Far longer than anything here takes; less than the test's own limit, so that a failure names its place."""


def asking(path: str, text: str = "hi") -> JsonObject:
    """Return a streaming request."""
    said: JsonObject = {"input": text} if path == RESPONSES else {"messages": [{"role": "user", "content": text}]}
    return {"model": MODEL, "stream": True, **said}


def data_of(body: str) -> list[JsonObject]:
    """Return what the frames of a stream carry, without chat's `[DONE]`."""
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def pieces_of(path: str, data: list[JsonObject]) -> list[str]:
    """Return the pieces of the answer's text, one for each event that brought one."""
    if path == RESPONSES:
        return [str(event["delta"]) for event in data if event["type"] == "response.output_text.delta"]
    deltas = [ChatCompletionChunk.model_validate(chunk).choices[0].delta for chunk in data]
    return [delta.content for delta in deltas if delta.content]


async def streamed(bridge: Bridge, path: str, text: str = "hi") -> str:
    """Return the whole body of a stream."""
    response = await bridge.http.post(path, json=asking(path, text))
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return response.text


def rich_answer() -> StreamReply:
    """Return an answer with a bit of everything that a model without tools can say."""
    return answer(
        reasoning(["First thought.", "Second thought."], encrypted="sealed", text="Raw thought."),
        message("Let me see.", phase="commentary"),
        message("hello", phase="final_answer", pieces=["hel", "lo"]),
        usage=Usage(input_tokens=100, cached_tokens=40, output_tokens=50, reasoning_tokens=20),
        key="rich",
    )


@pytest.mark.promise("streaming.as-they-come")
@BOTH_APIS
async def test_text_in_pieces_arrives_whole_and_in_those_pieces(bridge: Bridge, path: str) -> None:
    bridge.script(answer(message("hello", pieces=["hel", "lo"])))
    assert pieces_of(path, data_of(await streamed(bridge, path))) == ["hel", "lo"]


@pytest.mark.promise("streaming.responses.order", "streaming.responses.sequence-numbers", "reasoning.summary")
async def test_a_response_stream_has_the_full_typed_order(bridge: Bridge) -> None:
    bridge.script(rich_answer())
    events = data_of(await streamed(bridge, RESPONSES))
    summary = [
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    raw = ["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"]
    said = ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
    assert [str(event["type"]).removeprefix("response.") for event in events] == [
        *("created", "in_progress"),
        *("output_item.added", *summary, *summary, *raw, "output_item.done"),
        *("output_item.added", *said, "output_item.done"),
        *("output_item.added", *said[:2], *said[1:], "output_item.done"),
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.promise("streaming.responses.stable-ids")
async def test_everything_in_a_response_stream_keeps_its_id_and_place(bridge: Bridge) -> None:
    bridge.script(rich_answer())
    events = data_of(await streamed(bridge, RESPONSES))
    final = events[-1]["response"]
    assert isinstance(final, dict)
    assert isinstance(final["output"], list)
    ids = [item["id"] for item in final["output"] if isinstance(item, dict)]
    assert ids == ["rs_rich_0", "msg_rich_1", "msg_rich_2"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == final["output"]
    for event in events:
        if isinstance(index := event.get("output_index"), int):
            item = event.get("item")
            assert (item["id"] if isinstance(item, dict) else event["item_id"]) == ids[index]


@pytest.mark.promise("streaming.responses.frames")
async def test_every_event_of_a_response_stream_is_one_that_the_sdk_knows(bridge: Bridge) -> None:
    bridge.script(rich_answer())
    frames = (await streamed(bridge, RESPONSES)).removesuffix("\n\n").split("\n\n")
    for frame in frames:
        name, data = frame.split("\n")
        event = STREAM_EVENT.validate_json(data.removeprefix("data: "))
        assert name == f"event: {event.type}"


@pytest.mark.promise("streaming.responses.envelope")
async def test_the_envelope_of_a_response_changes_only_in_what_the_answer_decides(bridge: Bridge) -> None:
    bridge.script(rich_answer())
    events = data_of(await streamed(bridge, RESPONSES))
    created, in_progress, completed = (
        event["response"] for event in (events[0], events[1], events[-1]) if isinstance(event["response"], dict)
    )
    assert created == in_progress
    assert created.keys() == completed.keys()
    assert {key for key in created if created[key] != completed[key]} == {"status", "completed_at", "output", "usage"}


@pytest.mark.promise("responses.sdks")
async def test_the_sdks_response_stream_ends_in_the_final_response(bridge: Bridge) -> None:
    bridge.script(rich_answer())
    async with bridge.client.responses.stream(model=MODEL, input="hi") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert [event.delta for event in events if event.type == "response.output_text.delta"][-2:] == ["hel", "lo"]
    assert (final.status, [item.type for item in final.output]) == ("completed", ["reasoning", "message", "message"])
    assert final.usage is not None
    assert final.usage.total_tokens == 150


@pytest.mark.promise("streaming.chat.order", "streaming.chat.same-head", "streaming.chat.usage", "reasoning.chat")
async def test_a_chat_stream_is_role_text_finish_usage_and_done(bridge: Bridge) -> None:
    bridge.script(rich_answer())
    body = asking(CHAT) | {"stream_options": {"include_usage": True}}
    response = await bridge.http.post(CHAT, json=body)
    assert response.text.endswith("\n\ndata: [DONE]\n\n")
    chunks = [ChatCompletionChunk.model_validate(chunk) for chunk in data_of(response.text)]
    first = chunks[0]
    assert first.id.startswith("chatcmpl-")
    assert {(chunk.id, chunk.object, chunk.created, chunk.model) for chunk in chunks} == {
        (first.id, "chat.completion.chunk", first.created, MODEL)
    }
    *spoken, usage = chunks
    assert [(c.delta.model_dump(exclude_unset=True), c.finish_reason) for chunk in spoken for c in chunk.choices] == [
        ({"role": "assistant", "content": None, "refusal": None}, None),
        ({"reasoning_content": "First thought."}, None),
        ({"reasoning_content": "\n\nSecond thought."}, None),
        ({"reasoning_content": "\n\nRaw thought."}, None),
        ({"reasoning_content": "\n\nLet me see."}, None),
        ({"content": "hel"}, None),
        ({"content": "lo"}, None),
        ({}, "stop"),
    ]
    assert [chunk.usage for chunk in spoken] == [None] * len(spoken)
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.total_tokens == 150


@pytest.mark.promise("streaming.chat.usage")
async def test_a_chat_stream_has_no_usage_unless_asked_for(bridge: Bridge) -> None:
    bridge.says("hello")
    assert [chunk for chunk in data_of(await streamed(bridge, CHAT)) if "usage" in chunk or not chunk["choices"]] == []


@pytest.mark.promise("chat.sdks")
async def test_the_sdks_chat_stream_ends_in_the_final_completion(bridge: Bridge) -> None:
    bridge.script(rich_answer())
    async with bridge.client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], stream_options={"include_usage": True}
    ) as stream:
        pieces = [event.delta async for event in stream if event.type == "content.delta"]
        final = await stream.get_final_completion()
    assert [piece for piece in pieces if piece] == ["hel", "lo"]
    assert (final.choices[0].message.content, final.choices[0].finish_reason) == ("hello", "stop")
    assert final.usage is not None
    assert final.usage.total_tokens == 150


@pytest.mark.promise("streaming.no-empty-delta", "streaming.chat.order")
@pytest.mark.parametrize(
    ("reply", "content"),
    [(answer(message("hello")), ""), (answer(function_call("f", "{}")), None)],
    ids=["text", "a call"],
)
async def test_a_chat_stream_begins_with_an_empty_text_only_if_text_comes_next(
    bridge: Bridge, reply: Reply, content: str | None
) -> None:
    bridge.script(reply)
    tool: JsonObject = {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
    }
    response = await bridge.http.post(CHAT, json=asking(CHAT) | {"tools": [tool]})
    choice = data_of(response.text)[0]["choices"][0]  # type: ignore[index]
    assert choice["delta"] == {"role": "assistant", "content": content, "refusal": None}  # type: ignore[index, call-overload]


EMPTY: dict[str, Reply] = {
    "a message of one empty piece": answer(message("")),
    "a message without pieces": answer(message("", pieces=[])),
    "nothing at all": answer(),
}


@pytest.mark.promise("streaming.no-empty-delta")
@pytest.mark.parametrize("reply", EMPTY.values(), ids=EMPTY.keys())
async def test_an_empty_answer_is_a_whole_stream_without_an_empty_delta(bridge: Bridge, reply: Reply) -> None:
    bridge.script(reply, reply)
    chat = data_of(await streamed(bridge, CHAT))
    assert [choice for chunk in chat for choice in _list(chunk["choices"])] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": None, "refusal": None},
            "logprobs": None,
            "finish_reason": None,
        },
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"},
    ]
    types = [event["type"] for event in data_of(await streamed(bridge, RESPONSES))]
    assert "response.output_text.delta" not in types
    assert types.count("response.output_item.added") == types.count("response.output_item.done")
    assert types[-1] == "response.completed"


@pytest.mark.promise("streaming.any-text")
async def test_no_character_is_taken_for_the_end_of_a_line(bridge: Bridge) -> None:
    text = "one\r\ntwo\rthree\n\nfour\u2028five\u2029six\u0085seven\x0b\x0ceight\x1cnine 😀 é"
    bridge.script(answer(message(text)), answer(message(text)))
    events = await bridge.client.responses.create(model=MODEL, input="hi", stream=True)
    assert "".join([event.delta async for event in events if event.type == "response.output_text.delta"]) == text
    chunks = await bridge.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
    )
    assert "".join([choice.delta.content or "" async for chunk in chunks for choice in chunk.choices]) == text


@pytest.mark.promise("streaming.ten-thousand")
@BOTH_APIS
async def test_ten_thousand_deltas_arrive_complete_and_in_order(bridge: Bridge, path: str) -> None:
    pieces = [f"{number} " for number in range(10_000)]
    bridge.script(answer(message("".join(pieces), pieces=pieces), burst=True))
    assert pieces_of(path, data_of(await streamed(bridge, path))) == pieces


@pytest.mark.promise("streaming.never-mixed")
@pytest.mark.parametrize("count", [2, 16])
async def test_streams_at_once_never_mix(bridge: Bridge, count: int) -> None:
    all_are_open = asyncio.Event()

    def respond(request: JsonObject) -> Reply:
        name = _text_of(request)
        pieces = [f"{name}:{number} " for number in range(50)]
        return answer(message("".join(pieces), pieces=[pieces[0], Wait(gate=all_are_open), *pieces[1:]]))

    bridge.script()
    bridge.model.respond = respond
    paths = [CHAT, RESPONSES] * (count // 2)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        bodies = [group.create_task(streamed(bridge, path, f"client {i}")) for i, path in enumerate(paths)]
        await bridge.model.until(lambda model: model.active == count)
        all_are_open.set()
    texts = ["".join(pieces_of(path, data_of(body.result()))) for path, body in zip(paths, bodies, strict=True)]
    assert texts == ["".join(f"client {i}:{number} " for number in range(50)) for i in range(count)]


@pytest.mark.promise("streaming.as-they-come", "streaming.whole-frames")
@BOTH_APIS
async def test_a_piece_arrives_while_the_model_still_thinks_and_no_frame_is_split(bridge: Bridge, path: str) -> None:
    first_was_read = asyncio.Event()
    bridge.script(answer(message("hello", pieces=["hel", Wait(gate=first_was_read), "lo"])))
    chunks: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S), bridge.http.stream("POST", path, json=asking(path)) as response:
        async for chunk in response.aiter_raw():
            chunks.append(chunk)
            if b'"hel"' in chunk:
                first_was_read.set()
    assert [chunk for chunk in chunks if not chunk.endswith(b"\n\n")] == []
    assert pieces_of(path, data_of(b"".join(chunks).decode())) == ["hel", "lo"]


def _list(value: Json) -> list[Json]:
    assert isinstance(value, list)
    return value


def _text_of(request: JsonObject) -> str:
    """Return what the user of a request said."""
    match request["input"]:
        case [{"content": [{"text": str(text)}]}]:
            return text
        case other:
            raise AssertionError(f"The model was asked something else: {other}")
