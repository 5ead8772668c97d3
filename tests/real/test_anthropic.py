"""Anthropic's Messages API through the real Codex, with the official SDK as judge."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import anthropic.types as official
import pydantic
import pytest

from tests.real.test_images import png
from tests.support.anthropic_client import anthropic_client
from tests.support.frames import parsed
from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.tool_clients import bare
from turnbridge.scripted_model.replies import (
    Pause,
    Usage,
    Wait,
    answer,
    function_call,
    message,
    reasoning,
    web_search_call,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "claude-gpt-5.5"
OLD, NEW = "2023-06-01", "2026-10-21"
HI: list[Any] = [{"role": "user", "content": "hi"}]
ASK: JsonObject = {"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [{"name": "weather", "description": "The weather of a city.", "input_schema": SCHEMA}]
ADAPTIVE: Any = {"type": "adaptive"}
PICTURE = base64.b64encode(png(4, 4)).decode()
IMAGE: JsonObject = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
INPUT_IMAGE: JsonObject = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}


@pytest.fixture(scope="module")
async def warm(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that keeps threads."""
    del anyio_backend
    async with running_bridge(tmp_path_factory.mktemp("anthropic"), PROXY_WARM_THREADS_MAX=64) as running:
        yield running


@pytest.fixture
async def client(bridge: Bridge) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic_client(bridge.url) as made:
        yield made


def weather(city: str, call_id: str) -> Any:
    return function_call("weather", {"city": city}, call_id=call_id)


@pytest.mark.promise("anthropic.messages", "anthropic.usage", "anthropic.models.echo")
async def test_a_message_is_answered_whole(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    bridge.script(answer(message("hello"), usage=Usage(input_tokens=100, cached_tokens=60, output_tokens=9)))
    raw = await client.messages.with_raw_response.create(model="claude-opus-5", max_tokens=1000, messages=HI)
    answered = await raw.parse()
    assert answered.to_dict() == {
        "id": answered.id,
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "usage": {
            "input_tokens": 40,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 0,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 1},
        },
    }
    assert raw.headers["request-id"] == raw.headers["x-request-id"] == answered._request_id
    assert raw.headers["x-turnbridge-fidelity"] == "exact"


@pytest.mark.promise("anthropic.stream.order", "anthropic.stream.fold")
async def test_a_streamed_message_is_the_whole_one(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    replies = answer(
        reasoning(["Hm.", "So."], encrypted="secret"),
        message("hello", pieces=["hel", "lo"]),
        weather("Paris", "call_1"),
        key="same",
    )
    bridge.script(replies, replies)
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 1000, "messages": HI, "tools": TOOLS, "thinking": ADAPTIVE}
    async with client.messages.stream(**asked) as stream:
        kinds = [event.type async for event in stream]
        live = await stream.get_final_message()
    whole = await client.messages.create(**asked)
    assert [kind for kind in kinds if kind.startswith(("message_", "content_block_"))] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    assert {**live.to_dict(), "id": ""} == {**whole.to_dict(), "id": ""}
    assert [block.type for block in live.content] == ["thinking", "text", "tool_use"]


PAIRS: dict[str, tuple[JsonObject, JsonObject]] = {
    "text": ({"messages": [{"role": "user", "content": "hi"}]}, {"input": "hi"}),
    "a system prompt": (
        {"system": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}], "messages": HI},
        {"instructions": "Be kind.\n\nBe brief.", "input": "hi"},
    ),
    "a conversation": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": "b"},
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
            ]
        },
        {
            "input": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "developer", "content": "Be kind."},
                {
                    "role": "user",
                    "content": [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}],
                },
            ]
        },
    ),
    "tools, calls and results": (
        {
            "tools": TOOLS,
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "call_x", "name": "weather", "input": {"city": "Rome"}},
                        {"type": "tool_use", "id": "call_y", "name": "weather", "input": {"city": "Oslo"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "call_x", "content": "sun"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "call_y",
                            "content": [{"type": "text", "text": "see"}, IMAGE],
                            "is_error": True,
                        },
                        {"type": "text", "text": "So?"},
                    ],
                },
            ],
        },
        {
            "tools": [
                {"type": "function", "name": "weather", "description": "The weather of a city.", "parameters": SCHEMA}
            ],
            "input": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "I look."},
                {"type": "function_call", "call_id": "call_x", "name": "weather", "arguments": '{"city":"Rome"}'},
                {"type": "function_call", "call_id": "call_y", "name": "weather", "arguments": '{"city":"Oslo"}'},
                {"type": "function_call_output", "call_id": "call_x", "output": "sun"},
                {
                    "type": "function_call_output",
                    "call_id": "call_y",
                    "output": [
                        {"type": "input_text", "text": "[The tool reported an error.]"},
                        {"type": "input_text", "text": "see"},
                        INPUT_IMAGE,
                    ],
                },
                {"role": "user", "content": "So?"},
            ],
        },
    ),
    "tools that failed": (
        {
            "tools": TOOLS,
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": f"call_{i}", "name": "weather", "input": {}} for i in (1, 2)
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "call_1", "content": "No such city.", "is_error": True},
                        {"type": "tool_result", "tool_use_id": "call_2", "is_error": True},
                    ],
                },
            ],
        },
        {
            "tools": [
                {"type": "function", "name": "weather", "description": "The weather of a city.", "parameters": SCHEMA}
            ],
            "input": [
                {"role": "user", "content": "hi"},
                {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
                {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": "{}"},
                {
                    "type": "function_call_output",
                    "call_id": "call_1",
                    "output": "[The tool reported an error.]\nNo such city.",
                },
                {"type": "function_call_output", "call_id": "call_2", "output": "[The tool reported an error.]"},
            ],
        },
    ),
    "images and documents": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        IMAGE,
                        {
                            "type": "document",
                            "title": "a.txt",
                            "source": {"type": "text", "media_type": "text/plain", "data": "hello"},
                        },
                    ],
                }
            ]
        },
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        INPUT_IMAGE,
                        {"type": "input_file", "filename": "a.txt", "file_data": "aGVsbG8="},
                    ],
                }
            ]
        },
    ),
    "effort and summaries": (
        {"thinking": ADAPTIVE, "output_config": {"effort": "max"}, "messages": HI},
        {"reasoning": {"effort": "xhigh", "summary": "auto"}, "input": "hi"},
    ),
    "web search": (
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}], "messages": HI},
        {"tools": [{"type": "web_search"}], "input": "hi"},
    ),
    "a format": (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, "messages": HI},
        {"text": {"format": {"type": "json_schema", "name": "output", "schema": SCHEMA}}, "input": "hi"},
    ),
    "metadata": (
        {"metadata": {"user_id": "u-1"}, "messages": HI},
        {"metadata": {"user_id": "u-1"}, "input": "hi"},
    ),
}


def shown(request: JsonObject) -> JsonObject:
    """Return all that a model was sent, but for ids that differ from request to request."""
    told = {key: bare(value) for key, value in request.items() if key not in ("prompt_cache_key", "client_metadata")}
    metadata: Any = request["client_metadata"]
    about = json.loads(metadata["x-codex-turn-metadata"])
    told["metadata"] = {key: value for key, value in about.items() if not key.endswith(("_id", "_ms"))}
    told["user_id"] = about.get("user_id")
    return told


@pytest.mark.promise("anthropic.fidelity", "anthropic.content", "anthropic.system", "anthropic.effort")
@pytest.mark.parametrize("name", PAIRS)
async def test_the_model_sees_what_the_responses_api_would_show_it(either_bridge: Bridge, name: str) -> None:
    bridge, (in_anthropic, in_responses) = either_bridge, PAIRS[name]
    reply = '{"city": "Rome"}'
    bridge.script(answer(message(reply)), answer(message(reply)))
    sent: JsonObject = {"model": MODEL, "max_tokens": 1000, **in_anthropic}
    answered = await bridge.http.post("/v1/messages?beta=true", json=sent)
    assert (answered.status_code, answered.headers.get("x-turnbridge-ignored")) == (200, None), answered.text
    other = await bridge.http.post("/v1/responses", json={"model": "gpt-5.5", **in_responses})
    assert other.status_code == 200, other.text
    first, second = (shown(request.body) for request in bridge.model.requests)
    assert first == second


@pytest.mark.promise("anthropic.tools", "anthropic.threads", "anthropic.thinking")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_loop_of_tools_is_parked_and_the_next_question_warm(warm: Bridge, streamed: bool) -> None:
    warm.script(
        answer(
            reasoning(["I have to look."], encrypted="E1"),
            message("Looking.", phase="commentary"),
            weather("Rome", "call_a"),
            weather("Oslo", "call_b"),
        ),
        answer(reasoning(["Once more."], encrypted="E2"), weather("Bern", "call_c")),
        answer(message("Sun everywhere.")),
        answer(message("Yes.")),
    )
    history: list[Any] = [{"role": "user", "content": [{"type": "text", "text": f"Where is sun? {streamed}"}]}]
    served: list[str] = []
    async with anthropic_client(warm.url) as client:
        while len(served) < 4:
            options: dict[str, Any] = {"model": MODEL, "max_tokens": 32_000, "tools": TOOLS, "thinking": ADAPTIVE}
            if streamed:
                async with client.messages.stream(messages=history, **options) as stream:
                    reply: Any = await stream.get_final_message()
                served.append(stream.response.headers["x-turnbridge-thread"])
            else:
                raw = await client.messages.with_raw_response.create(messages=history, **options)
                reply = await raw.parse()
                served.append(raw.headers["x-turnbridge-thread"])
            history.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
            # The last one first, as clients do that send results as they come.
            calls = [block for block in reversed(reply.content) if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sun"} for call in calls]
            history.append({"role": "user", "content": results or "Sure?"})
            # The same message comes as a block once and as a text then.
            history[0] = {"role": "user", "content": f"Where is sun? {streamed}"}
    assert served == ["fresh", "parked", "parked", "warm"]
    assert len({request.body["prompt_cache_key"] for request in warm.model.requests}) == 1
    last: Any = bare(warm.model.requests[-1].body["input"])
    kinds = [(item["type"], item.get("encrypted_content") or item.get("call_id") or item.get("role")) for item in last]
    assert kinds == [
        ("message", "user"),
        ("reasoning", "E1"),
        ("message", "assistant"),
        ("function_call", "call_a"),
        ("function_call", "call_b"),
        ("function_call_output", "call_a"),
        ("function_call_output", "call_b"),
        ("reasoning", "E2"),
        ("function_call", "call_c"),
        ("function_call_output", "call_c"),
        ("message", "assistant"),
        ("message", "user"),
    ]


@pytest.mark.promise("anthropic.thinking")
async def test_thinking_comes_back_to_the_model_as_it_was(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    bridge.script(
        answer(reasoning(["Hm.", "So."], id="rs_mine", encrypted="secret" * 1000), message("hello")),
        answer(message("bye")),
    )
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 1000, "thinking": ADAPTIVE}
    first = await client.messages.create(messages=HI, **asked)
    thought = first.content[0]
    assert isinstance(thought, official.ThinkingBlock)
    assert thought.thinking == "Hm.\n\nSo."
    history = [*HI, first.to_param(), {"role": "user", "content": "and?"}]
    await client.messages.create(messages=history, **asked)
    seen: Any = bridge.model.requests[-1].body["input"]
    returned = next(item for item in seen if item["type"] == "reasoning")
    assert (returned["id"], returned["encrypted_content"], returned["summary"]) == (
        "rs_mine",
        "secret" * 1000,
        [{"type": "summary_text", "text": "Hm."}, {"type": "summary_text", "text": "So."}],
    )


@pytest.mark.promise("anthropic.thinking")
async def test_without_thinking_the_first_block_is_the_text(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    bridge.script(answer(reasoning(["Hm."], encrypted="secret"), message("hello")))
    answered = await client.messages.create(model=MODEL, max_tokens=1000, messages=HI)
    assert [block.to_dict() for block in answered.content] == [{"type": "text", "text": "hello"}]


class City(pydantic.BaseModel):
    """What a structured answer is."""

    city: str


@pytest.mark.promise("anthropic.structured")
async def test_a_structured_answer_is_parsed(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    bridge.says('{"city": "Rome"}')
    answered = await client.messages.parse(model=MODEL, max_tokens=1000, messages=HI, output_format=City)
    assert answered.parsed_output == City(city="Rome")
    text: Any = bridge.seen()["text"]
    assert text["format"]["schema"]["required"] == ["city"]


@pytest.mark.promise("anthropic.structured", "anthropic.errors")
async def test_an_answer_of_another_shape_is_an_error_that_is_not_retried(bridge: Bridge) -> None:
    bridge.script(answer(message("no")), answer(message("no")))
    wanted: JsonObject = {"format": {"type": "json_schema", "schema": SCHEMA}}
    refused = await bridge.http.post("/v1/messages", json={**ASK, "output_config": wanted})
    assert (refused.status_code, refused.headers["x-should-retry"]) == (400, "false")
    assert refused.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.promise("anthropic.stop-sequences", "anthropic.parameters")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_stop_sequence_and_a_limit_end_an_answer(
    bridge: Bridge, client: anthropic.AsyncAnthropic, streamed: bool
) -> None:
    ended = []
    several = {"stop_sequences": ["three", "STOP", "four"], "max_tokens": 1000}
    for options in ({"stop_sequences": ["STOP"], "max_tokens": 1000}, several, {"max_tokens": 2}):
        chosen: dict[str, Any] = {"model": MODEL, "messages": HI, **options}
        bridge.says("one two STOP three")
        if streamed:
            async with client.messages.stream(**chosen) as stream:
                reply: Any = await stream.get_final_message()
        else:
            reply = await client.messages.create(**chosen)
        ended.append((reply.content[0].text, reply.stop_reason, reply.stop_sequence))
    stopped = ("one two ", "stop_sequence", "STOP")
    assert ended == [stopped, stopped, ("one two", "max_tokens", None)]


@pytest.mark.promise("anthropic.tools")
async def test_a_demanded_tool_is_called_alone(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    bridge.script(answer(weather("Rome", "call_a"), weather("Oslo", "call_b")))
    choice: Any = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    reply = await client.messages.create(model=MODEL, max_tokens=1000, messages=HI, tools=TOOLS, tool_choice=choice)
    assert [(block.type, block.to_dict()["id"]) for block in reply.content] == [("tool_use", "call_a")]
    assert reply.stop_reason == "tool_use"


@pytest.mark.promise("anthropic.web-search")
async def test_a_web_search_is_told_and_comes_back(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    bridge.script(answer(web_search_call("news"), message("News.")), answer(message("More.")))
    tools: Any = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]
    raw = await client.messages.with_raw_response.create(model=MODEL, max_tokens=1000, messages=HI, tools=tools)
    reply = await raw.parse()
    assert [block.type for block in reply.content] == ["server_tool_use", "web_search_tool_result", "text"]
    assert raw.headers["x-turnbridge-ignored"] == "tools[].max_uses"
    history = [*HI, reply.to_param(), {"role": "user", "content": "and?"}]
    await client.messages.create(model=MODEL, max_tokens=1000, messages=history, tools=tools)
    seen: Any = bridge.model.requests[-1].body["input"]
    assert [item["type"] for item in seen] == ["message", "web_search_call", "message", "message"]
    assert seen[1]["action"] == {"type": "search", "query": "news"}


@pytest.mark.promise("anthropic.stream.ping")
async def test_a_silent_stream_begins_after_the_hold_and_pings(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    settings: dict[str, Any] = {"PROXY_STREAM_HOLD_MS": 50, "PROXY_SSE_KEEPALIVE_MS": 100}
    async with running_bridge(tmp_path_factory.mktemp("pings"), **settings) as bridge:
        bridge.script(answer(Pause(seconds=0.5), message("hello")))
        answered = await bridge.http.post("/v1/messages", json={**ASK, "stream": True})
    kinds = [event["type"] for event in parsed(answered.content)]
    assert kinds[:3] == ["message_start", "ping", "ping"]
    assert [kind for kind in kinds if kind != "ping"] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]


@pytest.mark.promise("anthropic.count-tokens")
async def test_tokens_are_counted_without_the_model(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    bridge.script()
    conversations: list[tuple[JsonObject, JsonObject]] = [
        PAIRS[name] for name in ("text", "a system prompt", "tools, calls and results", "images and documents")
    ]
    for in_anthropic, in_responses in conversations:
        asked: Any = in_anthropic
        counted = await client.messages.count_tokens(model=MODEL, **asked)
        other = await bridge.http.post("/v1/responses/input_tokens", json={"model": "gpt-5.5", **in_responses})
        assert counted.input_tokens == other.json()["input_tokens"] > 0
    assert bridge.model.requests == []


@pytest.mark.promise("anthropic.models.list")
async def test_models_are_listed_in_the_shape_of_the_caller(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    names = [model.id async for model in client.models.list(limit=1000)]
    assert {"gpt-5.5", MODEL} <= set(names)
    assert (await client.models.retrieve("claude-opus-5")).id == "claude-opus-5"
    openai = [model.id async for model in bridge.client.models.list()]
    assert set(openai) == {name for name in names if not name.startswith("claude-")}
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("gemini-3")
    listed = await bridge.http.get("/v1/models", headers={"anthropic-version": OLD})
    assert (listed.json()["has_more"], listed.json()["first_id"]) == (False, names[0])


@pytest.mark.promise("anthropic.hello")
async def test_claude_code_is_told_that_a_server_is_there(bridge: Bridge) -> None:
    for headers in ({}, {"authorization": ""}):
        assert (await bridge.http.head("/api/hello", headers=headers)).status_code == 200
    elsewhere = {"authorization": "", "host": "attacker.example"}
    assert (await bridge.http.head("/api/hello", headers=elsewhere)).status_code == 401


@pytest.mark.promise("anthropic.keys")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": API_KEY}, 200),
        ({"authorization": f"Bearer {API_KEY}"}, 200),
        ({"x-api-key": API_KEY, "authorization": f"Bearer {API_KEY}"}, 200),
        ({"x-api-key": API_KEY, "authorization": "Bearer another"}, 401),
        ({"x-api-key": "another"}, 401),
        ({}, 401),
    ],
)
@pytest.mark.parametrize("version", [OLD, NEW])
async def test_a_key_is_taken_from_either_header(
    bridge: Bridge, headers: dict[str, str], status: int, version: str
) -> None:
    bridge.says("hello")
    sent = {"authorization": "", **headers, "anthropic-version": version}
    answered = await bridge.http.post("/v1/messages", json=ASK, headers=sent)
    assert answered.status_code == status
    listed = await bridge.http.get("/v1/models", headers=sent)
    assert listed.status_code == status
    if status == 401:
        for refused in (answered, listed):
            assert refused.json()["error"]["type"] == "authentication_error"
            assert refused.json()["request_id"] == refused.headers["request-id"]
            assert refused.headers["x-should-retry"] == "false"


@pytest.mark.promise("anthropic.keys")
async def test_the_sdk_signs_in_with_a_key_or_a_token(bridge: Bridge) -> None:
    for secret in ({"api_key": API_KEY, "auth_token": None}, {"api_key": None, "auth_token": API_KEY}):
        bridge.says("hello")
        async with anthropic_client(bridge.url, **secret) as client:
            assert (await client.messages.create(model=MODEL, max_tokens=1000, messages=HI)).content


@pytest.mark.promise("anthropic.ignored")
async def test_betas_without_effect_are_named_and_never_refused(bridge: Bridge) -> None:
    bridge.says("hello")
    betas = "claude-code-20250219, context-1m-2025-08-07,fast-mode-2026-02-01"
    answered = await bridge.http.post(
        "/v1/messages", json={**ASK, "context_management": {}}, headers={"anthropic-beta": betas}
    )
    assert answered.headers["x-turnbridge-ignored"] == (
        "context_management, anthropic-beta: context-1m-2025-08-07, anthropic-beta: fast-mode-2026-02-01"
    )


@pytest.mark.promise("anthropic.messages")
async def test_a_client_that_leaves_ends_the_turn(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    gate = asyncio.Event()
    bridge.script(answer(message("hello", pieces=["hel", Wait(gate=gate), "lo"])))
    before = bridge.model.dropped
    async with client.messages.stream(model=MODEL, max_tokens=1000, messages=HI) as stream:
        async for text in stream.text_stream:
            assert text == "hel"
            break
    async with asyncio.timeout(20):
        await bridge.model.until(lambda model: model.dropped == before + 1)
