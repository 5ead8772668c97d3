"""What somebody who tries the gateway asks of its demo model: every kind of wish gets an answer, and no error."""

import json
from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import Bridge, running_bridge_over_websocket
from turnbridge.scripted_model.persona import respond
from turnbridge.scripted_model.replies import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

SCHEMA: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
STRICT: JsonObject = {**SCHEMA, "additionalProperties": False}
TOOL: JsonObject = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway with the demo model behind it, over WebSocket as in the demo."""
    del anyio_backend  # Named so that its scope fits.
    async with running_bridge_over_websocket(tmp_path_factory.mktemp("demo")) as running:
        running.model.respond = respond
        yield running


def formatted(**json_schema: Json) -> JsonObject:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "place", **json_schema}}}


@pytest.mark.promise("start.demo")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("asked", "wish"),
    [
        ("Where is it?", formatted(schema=STRICT, strict=True)),
        ("Where is it?", formatted(schema=SCHEMA)),
        ("Where is it? Answer in JSON.", {"response_format": {"type": "json_object"}}),
    ],
    ids=["strict schema", "any schema", "any object"],
)
async def test_an_answer_in_json_is_one(demo: Bridge, asked: str, wish: JsonObject, stream: bool) -> None:
    body = {"model": "gpt-5.5", "messages": [{"role": "user", "content": asked}], "stream": stream, **wish}
    response = await demo.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200
    if stream:
        frames = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
        text = "".join(frame["choices"][0]["delta"].get("content") or "" for frame in frames)
    else:
        text = response.json()["choices"][0]["message"]["content"]
    assert isinstance(json.loads(text), dict)


@pytest.mark.promise("start.demo")
async def test_a_call_that_is_required_is_made(demo: Bridge) -> None:
    body = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "Hello"}], "tools": [TOOL]}
    response = await demo.http.post("/v1/chat/completions", json={**body, "tool_choice": "required"})
    (call,) = response.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "clock"
