"""Counting the input of a Responses request before it is made."""

import base64
import struct
from pathlib import Path

import openai
import pytest

from tests.real.test_images import data_url, png
from tests.support.gateway import Bridge, running_bridge
from turnbridge.engine.image_tokens import image_tokens
from turnbridge.scripted_model.replies import answer, message, reasoning
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
ROUTE = "/v1/responses/input_tokens"
WEATHER: JsonObject = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


SERVER: JsonObject = {"type": "mcp", "server_label": "x", "server_url": "https://mcp.example.com/mcp"}


async def count(bridge: Bridge, **body: Json) -> int:
    """Return what the route counts; the model must not hear of it."""
    bridge.script()
    answered = await bridge.http.post(ROUTE, json=body)
    assert answered.status_code == 200, answered.text
    assert answered.headers["x-turnbridge-usage"] == "estimated"
    assert bridge.model.requests == []
    match answered.json():
        case {"object": "response.input_tokens", "input_tokens": int(tokens), **rest} if not rest:
            return tokens
        case other:
            pytest.fail(f"Not a count: {other}")


@pytest.mark.promise("usage.counted", "usage.counted.published")
async def test_the_official_client_gets_a_count_without_asking_the_model(bridge: Bridge) -> None:
    bridge.script()
    counted = await bridge.client.responses.input_tokens.count(model=MODEL, input="Tell me a joke.")
    assert counted.to_dict() == {"object": "response.input_tokens", "input_tokens": 11}
    assert bridge.model.requests == []


@pytest.mark.promise("usage.counted")
async def test_instructions_tools_and_formats_count_and_so_does_a_choice_of_no_tool(bridge: Bridge) -> None:
    schema: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    form: JsonObject = {"type": "json_schema", "name": "n", "strict": True, "schema": schema}
    plain = await count(bridge, model=MODEL, input="Tell me a joke.")
    with_tools = await count(bridge, model=MODEL, input="Tell me a joke.", tools=[WEATHER])
    assert await count(bridge, model=MODEL, input="Tell me a joke.", instructions="Be kind.") == plain + 4 + 3
    assert plain + 20 < with_tools < plain + 60
    assert await count(bridge, model=MODEL, input="Tell me a joke.", tools=[WEATHER], tool_choice="none") == plain
    assert await count(bridge, model=MODEL, input="Tell me a joke.", text={"format": form}) > plain + 10


@pytest.mark.promise("usage.counted")
async def test_tools_of_servers_count_once_they_are_listed_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    asked: JsonObject = {"model": MODEL, "tools": [SERVER, {"type": "web_search"}]}
    listed: JsonObject = {
        "type": "mcp_list_tools",
        "id": "mcpl_1",
        "server_label": "x",
        "tools": [{"name": "get_weather", "input_schema": WEATHER["parameters"]}],
    }
    said: JsonObject = {"role": "user", "content": "Tell me a joke."}
    told, tokens = [], []
    async with running_bridge(tmp_path, PROXY_MCP="public") as bridge:
        for items in ([said], [listed, said]):
            answered = await bridge.http.post(ROUTE, json={**asked, "input": items})
            told.append(answered.headers["x-turnbridge-uncounted"])
            tokens.append(answered.json()["input_tokens"])
    assert told == ["web_search, mcp:x", "web_search"]
    assert (tokens[0], tokens[1] > tokens[0] + 20) == (11, True)


@pytest.mark.promise("usage.counted.stored")
@pytest.mark.parametrize("kept_in", ["previous_response_id", "conversation"])
async def test_what_is_stored_counts_like_the_same_history_in_the_request(bridge: Bridge, kept_in: str) -> None:
    conversation = await bridge.client.conversations.create()
    bridge.script(answer(reasoning(["Hm."], encrypted="E1"), message("one")))
    asked = {"conversation": conversation.id} if kept_in == "conversation" else {}
    made = await bridge.client.responses.create(model=MODEL, input="first", extra_body=asked)
    history: Json = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "second"},
    ]
    place = made.id if kept_in == "previous_response_id" else conversation.id
    stored = await count(bridge, model=MODEL, input="second", **{kept_in: place})
    assert stored == await count(bridge, model=MODEL, input=history)


@pytest.mark.promise("usage.counted.images")
@pytest.mark.parametrize("detail", ["auto", "high", "original"])
async def test_an_image_counts_as_it_is_shown_to_the_model(bridge: Bridge, detail: str) -> None:
    part: JsonObject = {"type": "input_image", "image_url": data_url(png(3000, 2500)), "detail": detail}
    items: Json = [{"role": "user", "content": [part]}]
    counted = await count(bridge, model=MODEL, input=items)
    bridge.says("ok")
    await bridge.http.post("/v1/responses", json={"model": MODEL, "input": items})
    match bridge.seen()["input"]:
        case [{"content": [{"image_url": str(url)}]}]:
            width, height = struct.unpack(">II", base64.b64decode(url.partition(",")[2])[16:24])
        case other:
            pytest.fail(f"The model saw {other}")
    assert counted == 6 + image_tokens(MODEL, width, height, detail)


@pytest.mark.promise("usage.counted")
async def test_neither_model_nor_input_is_needed(bridge: Bridge) -> None:
    assert await count(bridge) == 2
    assert await count(bridge, input="Tell me a joke.") == 11


@pytest.mark.promise("usage.counted.refused")
@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"model": "nope", "input": "hi"}, 404, "model_not_found", "model"),
        ({"input": "hi", "previous_response_id": "resp_0"}, 400, "previous_response_not_found", "previous_response_id"),
        ({"input": "hi", "conversation": "conv_0"}, 404, "not_found", "conversation"),
        ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, 400, "unsupported_content_part", None),
        ({"input": 7}, 400, "invalid_type", "input"),
        # The default is that no server is asked.
        ({"input": "hi", "tools": [SERVER]}, 400, "mcp_not_enabled", "tools[0]"),
    ],
)
async def test_what_could_not_be_asked_is_not_counted(
    bridge: Bridge, body: JsonObject, status: int, code: str, param: str | None
) -> None:
    answered = await bridge.http.post(ROUTE, json=body)
    error = answered.json()["error"]
    assert (answered.status_code, error["code"]) == (status, code)
    assert error["param"] == (param or "input[0].content[0].type")


@pytest.mark.promise("usage.counted.refused")
async def test_the_count_of_a_strangers_response_is_refused(bridge: Bridge) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await bridge.client.responses.input_tokens.count(previous_response_id="resp_of_another")
    assert caught.value.code == "previous_response_not_found"
