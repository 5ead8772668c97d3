"""Choices of an operator's, or a client's, that older gateways had: calls in the text, no system prompt, no tools."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Bridge, running_bridge
from turnbridge.scripted_model.replies import answer, function_call, message
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
PARAMETERS: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}}
RESPONSES_TOOL: Any = {"type": "function", "name": "weather", "parameters": PARAMETERS}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
XML = {"x-proxy-output-mode": "obsidian-xml"}
BLOCK = "<use_tool>\n  <name>weather</name>\n  <city>Paris</city>\n</use_tool>"


def calls_weather(bridge: Bridge) -> None:
    bridge.script(answer(message("Let me see."), function_call("weather", {"city": "Paris"}, call_id="call_1")))


@pytest.mark.promise("parameters.output-mode")
async def test_a_response_tells_its_calls_in_the_text_if_the_client_asks(bridge: Bridge) -> None:
    # Other tests of the same gateway may have left theirs.
    bridge.gateway.calls.close()
    calls_weather(bridge)
    raw = await bridge.client.responses.with_raw_response.create(
        model=MODEL, input="Weather?", tools=[RESPONSES_TOOL], extra_headers=XML
    )
    response = raw.parse()
    assert [(item.type, response.status) for item in response.output] == [("message", "completed")] * 2
    assert response.output_text == f"Let me see.{BLOCK}"
    assert raw.headers["x-proxy-output-mode"] == "obsidian-xml"
    assert len(bridge.gateway.calls) == 0, "nobody will send the output of this call"


@pytest.mark.promise("parameters.output-mode")
async def test_a_chat_completion_tells_its_calls_in_the_text_if_the_client_asks(bridge: Bridge) -> None:
    calls_weather(bridge)
    stream = await bridge.client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Weather?"}],
        tools=[CHAT_TOOL],
        stream=True,
        extra_headers=XML,
    )
    choices = [chunk.choices[0] async for chunk in stream]
    assert "".join(choice.delta.content or "" for choice in choices) == f"Let me see.\n\n{BLOCK}"
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    assert not any(choice.delta.tool_calls for choice in choices)


@pytest.mark.promise("parameters.output-mode")
async def test_an_unknown_output_mode_is_refused(bridge: Bridge) -> None:
    answered = await bridge.http.post(
        "/v1/responses", json={"model": MODEL, "input": "hi"}, headers={"x-proxy-output-mode": "yaml"}
    )
    assert (answered.status_code, answered.json()["error"]["param"]) == (400, "x-proxy-output-mode")


@pytest.mark.promise("parameters.operator")
async def test_an_operator_can_choose_what_older_gateways_did(tmp_path: Path) -> None:
    async with running_bridge(
        tmp_path,
        PROXY_RESPONSES_OUTPUT_MODE="obsidian-xml",
        PROXY_IGNORE_CLIENT_SYSTEM_PROMPT=True,
        PROXY_RESPONSES_OMIT_TOOL_MANIFEST=True,
    ) as bridge:
        bridge.says("ok")
        raw = await bridge.client.responses.with_raw_response.create(
            model=MODEL, input="Weather?", instructions="Be brief.", tools=[RESPONSES_TOOL]
        )
        assert (raw.headers["x-proxy-output-mode"], raw.headers["x-turnbridge-ignored"]) == ("obsidian-xml", "tools")
        assert bridge.seen()["tools"] == []

        bridge.says("ok")
        completion = await bridge.client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
            tools=[CHAT_TOOL],
        )
        assert completion.headers["x-turnbridge-ignored"] == "messages (system)"
        seen: Any = bridge.seen()
        assert [item["role"] for item in seen["input"]] == ["user"]
        assert [tool["name"] for tool in seen["tools"]] == ["weather"]
