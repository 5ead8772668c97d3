"""Answers of a shape that the client asked for, through the real Codex: checked, repaired once, or honestly failed."""

import asyncio
import json

import httpx2
import openai
import pytest
from dirty_equals import IsStr
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

from tests.support.gateway import Bridge
from turnbridge.scripted_model.replies import (
    Json,
    JsonObject,
    StreamReply,
    Usage,
    Wait,
    answer,
    created,
    incomplete,
    message,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
def bridge(either_bridge: Bridge) -> Bridge:
    """Return a gateway for each transport to the provider."""
    return either_bridge


MODEL = "gpt-5.5"
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "A colour, as JSON."}]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
BOTH_APIS = pytest.mark.parametrize("path", [CHAT, RESPONSES])

PATIENCE_S = 25
"""Far longer than anything here takes; less than the test's own limit, so that a failure names its place."""


class Colour(BaseModel):
    """What the model is asked for."""

    name: str
    rgb: list[int]


SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "rgb": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name", "rgb"],
    "additionalProperties": False,
}
RED = Colour(name="red", rgb=[255, 0, 0])
GOOD = RED.model_dump_json()
BAD = '{"name": "red", "rgb": "#ff0000"}'


def asking(path: str, kind: JsonObject, **fields: Json) -> JsonObject:
    """Return a request for an answer of a format, given flat as the Responses API has it."""
    if path == RESPONSES:
        return {"model": MODEL, "input": "A colour, as JSON.", "text": {"format": kind}, **fields}
    nested: JsonObject = {key: value for key, value in kind.items() if key != "type"}
    wanted: JsonObject = {"type": kind["type"], "json_schema": nested} if nested else kind
    messages: list[Json] = [{"role": "user", "content": "A colour, as JSON."}]
    return {"model": MODEL, "messages": messages, "response_format": wanted, **fields}


def text_of(path: str, response: httpx2.Response) -> str:
    """Return what the only message of a good answer says."""
    assert response.status_code == 200
    body = response.json()
    if path == RESPONSES:
        (item,) = body["output"]
        text = item["content"][0]["text"]
    else:
        text = body["choices"][0]["message"]["content"]
    return str(text)


def strict(schema: JsonObject) -> JsonObject:
    """Return the format of a strict schema."""
    return {"type": "json_schema", "name": "colour", "schema": schema, "strict": True}


def texts_of(request: JsonObject) -> list[tuple[Json, Json]]:
    """Return who said what in a request that the model got."""
    said: list[tuple[Json, Json]] = []
    assert isinstance(request["input"], list)
    for item in request["input"]:
        match item:
            case {"role": role, "content": [{"text": text}]}:
                said.append((role, text))
            case _:
                raise AssertionError(f"The model was shown something else: {item}")
    return said


@pytest.mark.promise("structured.sdks")
async def test_the_sdk_parses_a_response(bridge: Bridge) -> None:
    bridge.says(GOOD)
    response = await bridge.client.responses.parse(model=MODEL, input="A colour.", text_format=Colour)
    assert response.output_parsed == RED
    assert bridge.seen()["text"] == {
        "format": {"type": "json_schema", "name": IsStr(), "schema": _schema_of(Colour), "strict": True}
    }


@pytest.mark.promise("structured.sdks")
async def test_the_sdk_parses_a_chat_completion(bridge: Bridge) -> None:
    bridge.says(GOOD)
    completion = await bridge.client.chat.completions.parse(model=MODEL, messages=HI, response_format=Colour)
    assert completion.choices[0].message.parsed == RED


@pytest.mark.promise("structured.sdks")
async def test_the_sdk_parses_a_response_stream(bridge: Bridge) -> None:
    bridge.script(answer(message(GOOD, pieces=[GOOD[:7], GOOD[7:]])))
    async with bridge.client.responses.stream(model=MODEL, input="A colour.", text_format=Colour) as stream:
        response = await stream.get_final_response()
    assert response.output_parsed == RED


@pytest.mark.promise("structured.sdks")
async def test_the_sdk_parses_a_chat_stream(bridge: Bridge) -> None:
    bridge.script(answer(message(GOOD, pieces=[GOOD[:7], GOOD[7:]])))
    async with bridge.client.chat.completions.stream(model=MODEL, messages=HI, response_format=Colour) as stream:
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.parsed == RED


@pytest.mark.promise("structured.repair")
@BOTH_APIS
async def test_an_answer_that_does_not_conform_is_repaired_once_on_the_same_thread(bridge: Bridge, path: str) -> None:
    bridge.script(
        answer(message(BAD), usage=Usage(input_tokens=100, output_tokens=20)),
        answer(message(GOOD), usage=Usage(input_tokens=200, output_tokens=30)),
    )
    response = await bridge.http.post(path, json=asking(path, strict(SCHEMA)))
    assert text_of(path, response) == GOOD
    assert response.json()["usage"]["total_tokens"] == 350
    first, second = bridge.model.requests
    assert texts_of(first.body) == [("user", "A colour, as JSON.")]
    assert texts_of(second.body) == [
        ("user", "A colour, as JSON."),
        ("assistant", BAD),
        ("user", IsStr(regex="Your last answer cannot be used.*rgb.*JSON only.*")),
    ]
    assert first.body["text"] == second.body["text"]
    assert first.body["prompt_cache_key"] == second.body["prompt_cache_key"]


@pytest.mark.promise("structured.failure", "errors.retryable")
@pytest.mark.parametrize("second", [BAD, "Sorry!", ""])
@BOTH_APIS
async def test_an_answer_that_still_does_not_conform_is_an_error_that_no_sdk_retries(
    bridge: Bridge, path: str, second: str
) -> None:
    bridge.script(answer(message(BAD)), answer(message(second)))
    patient = bridge.client.with_options(max_retries=2)
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        await patient.post(path.removeprefix("/v1"), body=asking(path, strict(SCHEMA)), cast_to=object)
    error = caught.value
    assert (error.status_code, error.code) == (422, "invalid_structured_output")
    assert "does not conform" in error.message
    assert len(bridge.model.requests) == 2


async def read_stream_of_bad_json(bridge: Bridge, path: str) -> list[JsonObject]:
    """Return what a stream carries whose first piece was read before its last one came."""
    begun = asyncio.Event()
    bridge.script(answer(message(BAD, pieces=[BAD[:7], Wait(gate=begun), BAD[7:]])))
    body = asking(path, strict(SCHEMA), stream=True)
    async with asyncio.timeout(PATIENCE_S), bridge.http.stream("POST", path, json=body) as response:
        begun.set()
        lines = [line.removeprefix("data: ") async for line in response.aiter_lines() if line.startswith("data: ")]
    assert len(bridge.model.requests) == 1
    return [json.loads(line) for line in lines]


@pytest.mark.promise("structured.streams")
async def test_a_response_stream_that_does_not_conform_ends_as_failed(bridge: Bridge) -> None:
    events = await read_stream_of_bad_json(bridge, RESPONSES)
    assert [event["type"] for event in events][-3:] == ["response.output_item.done", "error", "response.failed"]
    response = events[-1]["response"]
    assert isinstance(response, dict)
    assert events[-2]["code"] == "invalid_structured_output"
    assert response["error"] == {"code": "server_error", "message": IsStr(regex=".*does not conform.*rgb.*")}
    assert isinstance(response["usage"], dict)
    assert response["usage"]["total_tokens"] == 15


@pytest.mark.promise("structured.streams")
async def test_a_chat_stream_that_does_not_conform_ends_in_an_error(bridge: Bridge) -> None:
    *chunks, last = await read_stream_of_bad_json(bridge, CHAT)
    assert last == {
        "error": {
            "message": IsStr(regex=".*does not conform.*rgb.*"),
            "type": "server_error",
            "param": None,
            "code": "invalid_structured_output",
        }
    }
    assert '"finish_reason": "stop"' not in json.dumps(chunks)


@pytest.mark.promise("structured.cut-short")
@BOTH_APIS
async def test_an_answer_cut_short_is_incomplete_and_not_repaired(bridge: Bridge, path: str) -> None:
    bridge.script(StreamReply(steps=(created(), message('{"name": "re'), incomplete("max_output_tokens"))))
    response = await bridge.http.post(path, json=asking(path, strict(SCHEMA)))
    body = response.json()
    ending = body["status"] if path == RESPONSES else body["choices"][0]["finish_reason"]
    assert (response.status_code, ending) == (200, "incomplete" if path == RESPONSES else "length")
    assert len(bridge.model.requests) == 1


@pytest.mark.promise("structured.checked")
@BOTH_APIS
async def test_narration_is_no_part_of_the_answer_that_must_conform(bridge: Bridge, path: str) -> None:
    bridge.script(answer(message("Let me see.", phase="commentary"), message(GOOD, phase="final_answer")))
    response = await bridge.http.post(path, json=asking(path, strict(SCHEMA)))
    assert (response.status_code, len(bridge.model.requests)) == (200, 1)


@pytest.mark.promise("structured.json-object")
@BOTH_APIS
async def test_json_mode_takes_any_object_and_repairs_anything_else(bridge: Bridge, path: str) -> None:
    bridge.script(answer(message("[1, 2]")), answer(message('{"a": 1}')))
    response = await bridge.http.post(path, json=asking(path, {"type": "json_object"}))
    assert text_of(path, response) == '{"a": 1}'
    first, second = bridge.model.requests
    assert "text" not in first.body
    assert texts_of(second.body)[1] == ("assistant", "[1, 2]")


@pytest.mark.promise("structured.not-strict")
@BOTH_APIS
async def test_a_schema_that_no_provider_enforces_is_put_into_words(bridge: Bridge, path: str) -> None:
    loose: JsonObject = {"type": "object", "properties": {"name": {"type": "string"}}}
    bridge.script(answer(message('{"name": 5}')), answer(message('{"name": "red", "more": 1}')))
    kind: JsonObject = {"type": "json_schema", "name": "colour", "schema": loose, "strict": False}
    response = await bridge.http.post(path, json=asking(path, kind))
    assert text_of(path, response) == '{"name": "red", "more": 1}'
    first, _ = bridge.model.requests
    assert "text" not in first.body
    words = dict(texts_of(first.body))
    assert words.keys() == {"user", "developer"}
    assert json.dumps(loose) in str(words["developer"])


def nested(levels: int) -> JsonObject:
    """Return a schema inside as many others."""
    schema: JsonObject = {"type": "string"}
    for _ in range(levels):
        schema = {"anyOf": [schema]}
    return schema


REFUSED: dict[str, JsonObject] = {
    "no additionalProperties": {key: value for key, value in SCHEMA.items() if key != "additionalProperties"},
    "an optional property": SCHEMA | {"required": ["name"]},
    "no object at the root": {"type": "array", "items": {"type": "string"}},
    "no such type": SCHEMA | {"properties": {"name": {"type": "colour"}, "rgb": {"type": "string"}}},
    "more levels than Codex reads": SCHEMA | {"properties": {"name": nested(70), "rgb": {"type": "string"}}},
    "a number that Codex cannot read": SCHEMA
    | {"properties": {"name": {"type": "integer", "maximum": 2**70}, "rgb": {"type": "string"}}},
    "a reference to nowhere": SCHEMA | {"properties": {"name": {"$ref": "#/$defs/name"}, "rgb": {"type": "string"}}},
}


@pytest.mark.promise("structured.refused-schemas")
@pytest.mark.parametrize("schema", REFUSED.values(), ids=REFUSED.keys())
@BOTH_APIS
async def test_a_schema_that_openai_would_refuse_is_refused_before_the_model_is_asked(
    bridge: Bridge, path: str, schema: JsonObject
) -> None:
    bridge.script()
    response = await bridge.http.post(path, json=asking(path, strict(schema)))
    error = response.json()["error"]
    assert response.status_code == 400
    assert error == {
        "message": IsStr(min_length=20),
        "type": "invalid_request_error",
        "param": "text.format.schema" if path == RESPONSES else "response_format.json_schema.schema",
        "code": IsStr(),
    }
    assert bridge.model.requests == []


UNUSABLE: list[tuple[str, JsonObject, str | None, str]] = [
    (RESPONSES, {"text": {"format": {"type": "yaml"}}}, "invalid_value", "text.format.type"),
    (CHAT, {"response_format": {"type": "yaml"}}, "invalid_value", "response_format.type"),
    (
        CHAT,
        {"response_format": {"type": "json_schema"}},
        "missing_required_parameter",
        "response_format.json_schema",
    ),
    (
        RESPONSES,
        {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        "missing_required_parameter",
        "text.format.name",
    ),
    (
        RESPONSES,
        {"text": {"format": {"type": "json_schema", "name": "a"}}},
        "missing_required_parameter",
        "text.format.schema",
    ),
    (RESPONSES, {"text": {"format": {"type": "json_object"}}, "input": "A colour."}, None, "input"),
]


@pytest.mark.promise("structured.json-object")
@pytest.mark.parametrize(("path", "fields", "code", "param"), UNUSABLE, ids=[f"{c[0]} {c[3]}" for c in UNUSABLE])
async def test_a_format_that_cannot_be_meant_is_refused(
    bridge: Bridge, path: str, fields: JsonObject, code: str | None, param: str
) -> None:
    bridge.script()
    response = await bridge.http.post(path, json=asking(path, {"type": "text"}) | fields)
    error = {"message": IsStr(min_length=20), "type": "invalid_request_error", "param": param, "code": code}
    assert (response.status_code, response.json()) == (400, {"error": error})
    assert bridge.model.requests == []


def _schema_of(shape: type[BaseModel]) -> JsonObject:
    """Return the schema that the SDK sends for a model."""
    return {**shape.model_json_schema(), "additionalProperties": False}
