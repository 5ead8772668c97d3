"""The official SDKs of Anthropic and Ollama for node, through the whole gateway and the real Codex."""

import pytest

from tests.support.gateway import Bridge
from tests.support.node import run_script
from tests.support.ollama_client import OllamaBridge
from tests.support.tool_clients import inputs, shown_outputs, threads, weather_call
from turnbridge.scripted_model.replies import answer, message, reasoning

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.mark.promise("ollama.clients")
async def test_ollama_for_node_lists_calls_tools_streams_and_fails(ollama_bridge: OllamaBridge) -> None:
    bridge = ollama_bridge.bridge
    bridge.script(
        answer(weather_call("Rome", "call_1")),
        answer(message("Sun.", pieces=["Su", "n."])),
        answer(message('{"colour": "red"}')),
    )
    told = await run_script("ollama.mjs", bridge, package="ollama", OLLAMA_HOST=ollama_bridge.url)
    failure = told.pop("failure")
    assert told == {
        "listed": True,
        "capabilities": ["completion", "tools", "vision", "thinking"],
        "running": [],
        "call": {"index": 0, "name": "weather", "arguments": {"city": "Rome"}},
        "pieces": [["Su", False], ["n.", False], ["", True]],
        "text": {"colour": "red"},
    }
    assert isinstance(failure, dict)
    assert (failure["status"], "model 'llama3.2' not found" in str(failure["message"])) == (404, True)
    assert shown_outputs(inputs(bridge)[1]) == ["sun"]
    # Two of three requests are one turn.
    assert threads(bridge) == 2


@pytest.mark.promise("anthropic.messages", "anthropic.versions", "anthropic.keys", "anthropic.stream.order")
async def test_anthropic_for_node_streams_calls_tools_counts_and_fails(bridge: Bridge) -> None:
    bridge.script(
        answer(reasoning(["Hm."], encrypted="SECRET"), message("I look."), weather_call("Rome", "call_1")),
        answer(message("Sun.")),
        answer(message("Hello.")),
    )
    told = await run_script("anthropic.mjs", bridge, package="@anthropic-ai/sdk", ANTHROPIC_BASE_URL=bridge.url)
    counted = told.pop("counted")
    assert told == {
        "first": ["thinking", "text", "tool_use"],
        "started": 1,
        "input": {"city": "Rome"},
        "reasons": ["tool_use", "end_turn", "end_turn"],
        "texts": ["Sun.", "Hello."],
        "listed": True,
        # The newer version of the API has no `temperature`; the older one ignores it.
        "failure": {"status": 400, "type": "invalid_request_error", "named": True},
    }
    assert isinstance(counted, int)
    assert counted > 0
    assert shown_outputs(inputs(bridge)[1]) == ["sun"]
    assert threads(bridge) == 2
