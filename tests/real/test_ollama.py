"""Ollama's API through the real Codex, with the official client as judge."""

import asyncio
import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import ollama
import pytest

from tests.real.test_anthropic import shown
from tests.real.test_errors import begun_and_then
from tests.real.test_images import png
from tests.support.ollama_client import OllamaBridge, running_ollama, unmeasured
from tests.support.tool_clients import WEATHER, inputs, threads, weather_call
from turnbridge.scripted_model.replies import (
    Pause,
    Usage,
    answer,
    error_reply,
    failed,
    message,
    reasoning,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": WEATHER}}
]
PICTURE = base64.b64encode(png(4, 4)).decode()


@pytest.fixture
def running(ollama_bridge: OllamaBridge) -> OllamaBridge:
    """Return a gateway with its second listener."""
    return ollama_bridge


def said(text: str, role: str = "user") -> JsonObject:
    return {"role": role, "content": text}


def asks(text: str, **rest: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [said(text)], **rest}


@pytest.mark.promise("ollama.chat", "ollama.usage")
async def test_a_chat_is_answered_whole(running: OllamaBridge) -> None:
    running.bridge.script(answer(reasoning(["Hm."]), message("hello"), usage=Usage(input_tokens=100, output_tokens=9)))
    answered = await running.client.chat(f"{MODEL}:latest", [said("whole")])
    assert unmeasured(answered.model_dump(exclude_none=True)) == {
        "model": f"{MODEL}:latest",
        "message": {"role": "assistant", "content": "hello", "thinking": "Hm."},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 100,
        "eval_count": 9,
    }


@pytest.mark.promise("ollama.stream", "ollama.stream.fold")
async def test_a_stream_is_lines_whose_fold_is_the_whole_answer(running: OllamaBridge) -> None:
    told = answer(
        reasoning(["Hm.", "So."]),
        message("hello", pieces=["hel", "lo"]),
        weather_call("Rome", "call_1"),
        weather_call("Oslo", "call_2"),
        key="same",
    )
    running.bridge.script(told, told)
    asked = asks("fold", tools=TOOLS)
    lines = await running.lines("/api/chat", asked)
    whole = (await running.http.post("/api/chat", json={**asked, "stream": False})).json()
    calls = [
        {"id": "call_1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Rome"}}},
        {"id": "call_2", "function": {"index": 1, "name": "weather", "arguments": {"city": "Oslo"}}},
    ]
    assert [unmeasured(line)["message"] for line in lines] == [
        {"role": "assistant", "content": "", "thinking": "Hm."},
        {"role": "assistant", "content": "", "thinking": "\n\nSo."},
        {"role": "assistant", "content": "hel"},
        {"role": "assistant", "content": "lo"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "assistant", "content": ""},
    ]
    assert [line["done"] for line in lines] == [False] * 5 + [True]
    together = {"role": "assistant", "content": "hello", "thinking": "Hm.\n\nSo.", "tool_calls": calls}
    assert {**unmeasured(lines[-1]), "message": together} == unmeasured(whole)


@pytest.mark.promise("ollama.stream")
async def test_the_official_client_streams_by_default_as_ollama_does(running: OllamaBridge) -> None:
    running.bridge.script(answer(message("hello", pieces=["hel", "lo"])), answer(message("hi", pieces=["h", "i"])))
    pieces = [piece async for piece in await running.client.chat(MODEL, [said("parts")], stream=True)]
    assert [piece.message.content for piece in pieces] == ["hel", "lo", ""]
    texts = [piece async for piece in await running.client.generate(MODEL, "parts", stream=True)]
    assert [(piece.response, piece.done) for piece in texts] == [("h", False), ("i", False), ("", True)]


SCHEMA: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}}
CALLS: list[JsonObject] = [
    {"id": "call_x", "function": {"name": "weather", "arguments": {"city": "Rome"}}},
    {"function": {"name": "weather", "arguments": {"city": "Oslo"}, "index": 1}},
]
CHAT_CALLS: list[JsonObject] = [
    {"id": "call_x", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
]
SHOWN_SCHEMA = {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}}

PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a conversation": (
        {"messages": [said("Be kind.", "system"), said("a"), said("b", "assistant"), said("c")]},
        {"messages": [said("Be kind.", "system"), said("a"), said("b", "assistant"), said("c")]},
    ),
    "images": (
        {"messages": [{**said("Look."), "images": [PICTURE, f"data:image/jpeg;base64,{PICTURE}"]}]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look."},
                        *[{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}] * 2,
                    ],
                }
            ]
        },
    ),
    "calls and results": (
        {
            "tools": TOOLS,
            "messages": [
                said("hi"),
                {"role": "assistant", "content": "I look.", "thinking": "Hm.", "tool_calls": CALLS},
                {"role": "tool", "content": "rain"} | {"tool_call_id": "call_x", "tool_name": "weather"},
                {"role": "tool", "content": "sun"},
            ],
        },
        {
            "tools": TOOLS,
            "messages": [
                said("hi"),
                {"role": "assistant", "content": "I look.", "tool_calls": CHAT_CALLS},
                {"role": "tool", "tool_call_id": "call_x", "content": "rain"},
                {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
            ],
        },
    ),
    "a tool without a type, of any schema": (
        {"tools": [{"function": {"name": "f", "parameters": {"properties": {"a": {"type": ["string", "null"]}}}}}]},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"properties": {"a": {"type": ["string", "null"]}}}},
                }
            ]
        },
    ),
    "a schema": ({"format": SCHEMA}, {"response_format": SHOWN_SCHEMA}),
    "any JSON": (
        {"format": "json", "messages": [said("Answer in JSON.")]},
        {"response_format": {"type": "json_object"}, "messages": [said("Answer in JSON.")]},
    ),
    "an effort": ({"think": "low"}, {"reasoning_effort": "low"}),
    "the most effort": ({"think": "max"}, {"reasoning_effort": "xhigh"}),
    "an effort as a tag": ({"model": f"{MODEL}:high"}, {"model": f"{MODEL}-high"}),
    "thinking as ever": ({"think": True}, {}),
    "the least effort": ({"think": False}, {"reasoning_effort": "low", "reasoning": {"summary": "none"}}),
}


@pytest.mark.promise("ollama.fidelity", "ollama.tools", "ollama.images", "ollama.format", "ollama.think")
@pytest.mark.parametrize("name", PAIRS)
async def test_the_model_sees_what_chat_completions_would_show_it(running: OllamaBridge, name: str) -> None:
    bridge, (in_ollama, in_chat) = running.bridge, PAIRS[name]
    reply = answer(message('{"city": "Rome"}'))
    bridge.script(reply, reply)
    asked = {**asks("hi"), **in_ollama}
    answered = await running.http.post("/api/chat", json={**asked, "stream": False})
    assert (answered.status_code, answered.headers.get("x-turnbridge-ignored")) == (200, None), answered.text
    other = await bridge.http.post("/v1/chat/completions", json={**asks("hi"), **in_chat})
    assert other.status_code == 200, other.text
    ours, theirs = (shown(request.body) for request in bridge.model.requests)
    assert ours == theirs


@pytest.mark.promise("ollama.generate")
async def test_a_prompt_is_a_chat_of_one_message(running: OllamaBridge) -> None:
    bridge = running.bridge
    bridge.script(answer(reasoning(["Hm."]), message("hello")), answer(message("hello")))
    answered = await running.client.generate(MODEL, "hi", system="Be kind.", images=[PICTURE], keep_alive="5m")
    whole = unmeasured(answered.model_dump(exclude_none=True))
    assert (whole["response"], whole["thinking"], whole["done_reason"]) == ("hello", "Hm.", "stop")
    await running.client.chat(MODEL, [said("Be kind.", "system"), {**said("hi"), "images": [PICTURE]}])
    ours, theirs = (shown(request.body) for request in bridge.model.requests)
    assert ours == theirs


@pytest.mark.promise("ollama.tools.without-ids", "ollama.threads")
@pytest.mark.parametrize("named", [True, False], ids=["by name", "by order"])
async def test_results_without_ids_resume_the_turn_of_two_equal_calls(running: OllamaBridge, named: bool) -> None:
    bridge = running.bridge
    bridge.script(
        answer(reasoning(["Two."], encrypted="SECRET"), weather_call("Rome", "call_r"), weather_call("Oslo", "call_o")),
        answer(message("Sun and rain.")),
        answer(message("Bye.")),
    )
    messages: list[Any] = [said(f"without ids, {named}")]
    asked: JsonObject = {"model": MODEL, "messages": messages, "tools": TOOLS, "stream": False}
    first = await running.http.post("/api/chat", json=asked)
    # The official client drops the ids.
    messages.append(ollama.Message(**first.json()["message"]).model_dump(exclude_none=True))
    assert [set(call) for call in messages[-1]["tool_calls"]] == [{"function"}] * 2
    name = {"tool_name": "weather"} if named else {}
    messages += [{"role": "tool", "content": city, **name} for city in ("sun", "rain")]
    second = await running.http.post("/api/chat", json=asked)
    assert second.headers["x-turnbridge-thread"] == "parked", second.text
    messages += [second.json()["message"], said("Bye.")]
    third = await running.http.post("/api/chat", json=asked)
    assert third.headers["x-turnbridge-thread"] == "warm", third.text
    assert threads(bridge) == 1
    kinds = [(item["type"], item.get("call_id"), item.get("output")) for item in inputs(bridge)[-1]]  # type: ignore[index, call-overload, union-attr]
    assert kinds == [
        ("message", None, None),
        ("reasoning", None, None),
        ("function_call", "call_r", None),
        ("function_call", "call_o", None),
        ("function_call_output", "call_r", "sun"),
        ("function_call_output", "call_o", "rain"),
        ("message", None, None),
        ("message", None, None),
    ]


@pytest.mark.promise("ollama.tools.without-ids")
@pytest.mark.parametrize(
    ("results", "told"),
    [
        ([{}], "Without a result are: call_1."),
        ([{}, {}, {}], "messages[4]: There is no open call before this result."),
        ([{"tool_name": "other"}], "There is no open call of 'other' before this result."),
        ([{"tool_call_id": "call_9"}, {}, {}], "messages[4]: There is no open call before this result."),
    ],
    ids=["too few", "too many", "another name", "an id that nobody told"],
)
async def test_results_that_fit_no_call_are_refused(
    running: OllamaBridge, results: list[JsonObject], told: str
) -> None:
    calls: list[JsonObject] = [{"function": {"name": "weather", "arguments": {}}}] * 2
    asked = asks("hi", tools=TOOLS)
    asked["messages"] = [
        said("hi"),
        {"role": "assistant", "tool_calls": calls},
        *[{"role": "tool", "content": "x", **result} for result in results],
    ]
    refused = await running.http.post("/api/chat", json=asked)
    assert (refused.status_code, list(refused.json())) == (400, ["error"])
    assert told in refused.json()["error"]


@pytest.mark.promise("ollama.format")
async def test_json_is_asked_for_in_words_if_the_client_does_not(running: OllamaBridge) -> None:
    bridge = running.bridge
    bridge.script(answer(message('{"a": 1}')))
    answered = await running.client.chat(MODEL, [said("Name a number.")], format="json")
    assert json.loads(answered.message.content or "") == {"a": 1}
    told: Any = inputs(bridge)[-1]
    assert [item["role"] for item in told] == ["developer", "user"]
    assert '{"type":"object"}' in told[0]["content"][0]["text"].replace(" ", "")


@pytest.mark.promise("ollama.options")
async def test_options_are_met_or_named(running: OllamaBridge) -> None:
    bridge = running.bridge
    bridge.script(*[answer(message("one two three four five six"))] * 3)
    options: JsonObject = {"stop": [" three"], "num_predict": -1, "num_ctx": 8192, "temperature": 0, "seed": None}
    asked = asks("options", stream=False, options=options, keep_alive=-1, truncate=True)
    stopped = await running.http.post("/api/chat", json=asked)
    assert stopped.json()["message"]["content"] == "one two"
    assert stopped.headers["x-turnbridge-ignored"] == "options.num_ctx, options.temperature"
    cut = await running.client.chat(MODEL, [said("options")], options={"num_predict": 3})
    assert (cut.message.content, cut.done_reason) == ("one two three", "length")
    asked = asks("options", stream=False, num_predict=2)
    above = (await running.http.post("/api/chat", json=asked)).json()
    assert (above["message"]["content"], above["done_reason"]) == ("one two", "length")


@pytest.mark.promise("ollama.options")
@pytest.mark.parametrize(
    ("path", "given", "status", "told"),
    [
        ("chat", {"logprobs": True}, 400, "'logprobs'"),
        ("chat", {"format": "yaml"}, 400, "expected 'json' or a JSON schema"),
        ("chat", {"think": "hard"}, 400, "think: Invalid value: 'hard'"),
        ("chat", {"messages": [said("x", "robot")]}, 400, "messages[0].role: Invalid value: 'robot'"),
        ("chat", {"messages": [{"role": "user", "images": ["no"]}]}, 400, "messages[0].images[0]"),
        ("chat", {"options": {"stop": [""]}}, 400, "must not be empty"),
        ("generate", {"prompt": "x", "raw": True}, 400, "'raw'"),
        ("generate", {"prompt": "x", "suffix": "}"}, 400, "'suffix'"),
        ("chat", {"model": None}, 400, "'model'"),
        ("chat", {"model": "llama3.2"}, 404, "model 'llama3.2' not found"),
        ("generate", {"model": "gpt-5.5:70b", "prompt": "x"}, 404, "model 'gpt-5.5:70b' not found"),
    ],
)
async def test_what_cannot_be_served_is_refused(
    running: OllamaBridge, path: str, given: JsonObject, status: int, told: str
) -> None:
    running.bridge.script()
    refused = await running.http.post(f"/api/{path}", json={**asks("hi"), **given})
    assert (refused.status_code, list(refused.json())) == (status, ["error"]), refused.text
    assert told in refused.json()["error"]
    assert running.bridge.model.requests == []


@pytest.mark.promise("ollama.load")
@pytest.mark.parametrize(("keep_alive", "reason"), [(0, "unload"), ("0s", "unload"), ("5m", "load"), (None, "load")])
async def test_loading_and_unloading_a_model_runs_no_turn(running: OllamaBridge, keep_alive: Any, reason: str) -> None:
    running.bridge.script()
    chat = await running.client.chat(MODEL, [], keep_alive=keep_alive)
    text = await running.client.generate(MODEL, "", keep_alive=keep_alive)
    assert (chat.done, chat.done_reason, text.done, text.done_reason) == (True, reason, True, reason)
    assert (chat.message.content, text.response) == ("", "")
    assert running.bridge.model.requests == []


@pytest.mark.promise("ollama.models")
async def test_models_are_listed_and_described_as_clients_read_them(running: OllamaBridge) -> None:
    listed = await running.client.list()
    names = [model.model for model in listed.models]
    catalogue = (await running.bridge.http.get("/v1/models")).json()["data"]
    assert names == [model["id"] for model in catalogue]
    for model, known in zip(listed.models, catalogue, strict=True):
        assert len(model.digest or "") == 64
        assert (model.size or 0) > 0
        assert isinstance(model.modified_at, datetime)
        assert model.modified_at.tzinfo is not None
        told = await running.client.show(f"{model.model}:latest")
        assert told.modelinfo == {
            "general.architecture": "codex",
            "general.basename": model.model,
            "codex.context_length": known["context_window"],
        }
        sees = ["vision"] if "image" in known["input_modalities"] else []
        assert told.capabilities == ["completion", "tools", *sees, "thinking"]
        assert told.details is not None
        assert told.details.family == "codex"
    assert (await running.client.ps()).models == []
    older = await running.http.post("/api/show", json={"name": MODEL})
    assert older.status_code == 200


@pytest.mark.promise("ollama.models")
async def test_a_model_that_is_there_is_pulled_at_once(running: OllamaBridge) -> None:
    assert (await running.client.pull(MODEL)).status == "success"
    assert [step.status async for step in await running.client.pull(f"{MODEL}:latest", stream=True)] == ["success"]
    for asked in (running.client.pull, running.client.show):
        with pytest.raises(ollama.ResponseError) as caught:
            await asked("llama3.2")
        assert (caught.value.status_code, "model 'llama3.2' not found" in caught.value.error) == (404, True)


@pytest.mark.promise("ollama.presence")
async def test_a_client_finds_what_it_looks_for(running: OllamaBridge) -> None:
    alive = await running.http.get("/")
    assert (alive.status_code, alive.text) == (200, "Ollama is running")
    version = (await running.http.get("/api/version")).json()["version"]
    assert [int(part) for part in version.split(".")] >= [0, 6, 4]
    for path in ("/", "/api/version", "/api/tags"):
        head = await running.http.head(path)
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.promise("ollama.unserved")
@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("POST", "/api/embed", "Codex has no embedding models."),
        ("POST", "/api/embeddings", "Codex has no embedding models."),
        ("POST", "/api/create", "The models are Codex's"),
        ("DELETE", "/api/delete", "The models are Codex's"),
        ("HEAD", "/api/blobs/sha256:0", ""),
        ("POST", "/v1/api/chat", "leave it out of the client's URL"),
        ("GET", "/api/no-such", "There is no such route. Served are /api/chat, /api/generate, /api/ps, /api/pull,"),
        ("POST", "/ollama/api/chat", "Did you mean /api/chat?"),
    ],
)
async def test_what_is_not_served_says_so(running: OllamaBridge, method: str, path: str, told: str) -> None:
    refused = await running.http.request(method, path, json={})
    assert refused.status_code == 404
    assert not told or (list(refused.json()) == ["error"] and told in refused.json()["error"])


@pytest.mark.promise("ollama.errors")
async def test_a_failure_before_any_output_has_a_status(running: OllamaBridge) -> None:
    running.bridge.script(error_reply(400, "No such thing."))
    with pytest.raises(ollama.ResponseError) as caught:
        await anext(await running.client.chat(MODEL, [said("fails")], stream=True))
    assert (caught.value.status_code, "No such thing." in caught.value.error) == (400, True)


@pytest.mark.promise("ollama.errors")
async def test_a_failure_after_output_is_the_last_line(running: OllamaBridge) -> None:
    read = asyncio.Event()
    running.bridge.script(begun_and_then(read, [failed("server_error", "Broken.")]))
    pieces = await running.client.chat(MODEL, [said("breaks")], stream=True)
    begun = await anext(pieces)
    read.set()
    with pytest.raises(ollama.ResponseError, match="Broken"):
        await anext(pieces)
    assert begun.message.content == "begun"


@pytest.mark.promise("ollama.stream.keepalive")
async def test_a_silent_stream_has_lines_without_news_and_nothing_else(tmp_path: Path) -> None:
    settings = {"PROXY_STREAM_HOLD_MS": 50, "PROXY_SSE_KEEPALIVE_MS": 100}
    async with running_ollama(tmp_path, **settings) as running:
        running.bridge.script(answer(Pause(seconds=0.5), message("one two three", pieces=["one two", " three"])))
        # The count of an answer that is cut is an estimate, which other formats tell in a comment.
        lines = await running.lines("/api/chat", asks("silence", options={"num_predict": 2}))
    empty = {"role": "assistant", "content": ""}
    assert [line["message"] for line in lines[:2]] == [empty, empty]
    said_aloud = [line["message"]["content"] for line in lines if line["message"] != empty]
    assert ("".join(said_aloud), lines[-1]["done_reason"]) == ("one two", "length")
