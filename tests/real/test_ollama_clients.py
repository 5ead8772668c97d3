"""The requests that VS Code, Home Assistant and Open WebUI were seen to send, in their order and with their shapes."""

import base64
import json
from typing import Any

import pytest

from tests.real.test_images import png
from tests.support.ollama_client import OllamaBridge
from tests.support.tool_clients import inputs, threads
from turnbridge.scripted_model.replies import answer, function_call, message
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
PICTURE = base64.b64encode(png(4, 4)).decode()


def function(name: str, parameters: JsonObject) -> JsonObject:
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


@pytest.mark.promise("ollama.clients", "ollama.models", "ollama.presence", "ollama.listener")
async def test_vs_code_finds_the_models_and_chats_on_openais_route(ollama_bridge: OllamaBridge) -> None:
    http, bridge = ollama_bridge.http, ollama_bridge.bridge
    version = (await http.get("/api/version")).json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)
    offered: dict[str, Any] = {}
    for model in (await http.get("/api/tags")).json()["models"]:
        told = (await http.post("/api/show", json={"model": model["model"]})).json()
        window = told["model_info"][f"{told['model_info']['general.architecture']}.context_length"]
        if "tools" in told["capabilities"]:
            offered[model["model"]] = window
    assert offered[MODEL] == 272_000
    bridge.script(answer(function_call("read_file", {"path": "a"}, call_id="call_1")), answer(message("Done.")))
    messages: list[Any] = [
        {"role": "system", "content": "You are an assistant."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
            ],
        },
    ]
    tools = [function("read_file", {"type": "object", "properties": {"path": {"type": "string"}}})]
    asked: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": tools, "stream": False, "temperature": 0.1}
    first = (await http.post("/v1/chat/completions", json=asked)).json()["choices"][0]["message"]
    messages += [first, {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "hello"}]
    second = await http.post("/v1/chat/completions", json=asked)
    assert second.json()["choices"][0]["message"]["content"] == "Done."
    assert second.headers["x-turnbridge-thread"] == "parked"
    seen: Any = inputs(bridge)[-1]
    assert [item.get("role", item["type"]) for item in seen] == [
        *("developer", "user", "function_call", "function_call_output")
    ]
    assert seen[1]["content"][1]["image_url"] == f"data:image/png;base64,{PICTURE}"


@pytest.mark.promise("ollama.clients", "ollama.tools.without-ids", "ollama.threads")
async def test_home_assistant_calls_two_tools_and_sends_results_without_ids(ollama_bridge: OllamaBridge) -> None:
    bridge = ollama_bridge.bridge
    bridge.script(
        answer(
            function_call("HassTurnOn", {"name": "Lamp"}, call_id="call_a"),
            function_call("GetLiveContext", {}, call_id="call_b"),
        ),
        answer(message("The lamp is on.")),
    )
    # Its schemas come from voluptuous: some have no `type`.
    tools = [
        function("HassTurnOn", {"type": "object", "properties": {"name": {"type": "string"}, "area": {}}}),
        function("GetLiveContext", {"type": "object", "properties": {}}),
    ]
    messages: list[Any] = [
        {"role": "system", "content": "You control a house."},
        {"role": "user", "content": "Turn the lamp on."},
    ]
    asked: dict[str, Any] = {
        "model": f"{MODEL}:latest",
        "messages": messages,
        "tools": tools,
        "stream": True,
        "keep_alive": "-1s",
        "options": {"num_ctx": 8192},
        "think": False,
    }
    text, calls = _heard(await ollama_bridge.lines("/api/chat", asked))
    assert (text, [call["function"]["name"] for call in calls]) == ("", ["HassTurnOn", "GetLiveContext"])
    sent_back = [{"function": {"name": c["function"]["name"], "arguments": c["function"]["arguments"]}} for c in calls]
    messages += [
        {"role": "assistant", "content": text, "tool_calls": sent_back},
        {"role": "tool", "content": json.dumps({"success": True})},
        {"role": "tool", "content": json.dumps({"lamp": "on"})},
    ]
    assert _heard(await ollama_bridge.lines("/api/chat", asked)) == ("The lamp is on.", [])
    assert threads(bridge) == 1
    seen: Any = inputs(bridge)[-1]
    assert [(item["call_id"], item["output"]) for item in seen if item["type"] == "function_call_output"] == [
        ("call_a", '{"success": true}'),
        ("call_b", '{"lamp": "on"}'),
    ]


def _heard(lines: list[dict[str, Any]]) -> tuple[str, list[Any]]:
    """Return the text and the calls as Home Assistant collects them: it looks for neither in the last line."""
    text = ""
    calls: list[Any] = []
    for line in lines:
        said = line["message"]
        if line["done"]:
            assert (said["content"], "tool_calls" in said) == ("", False)
            break
        text += said.get("content") or ""
        calls += said.get("tool_calls") or []
    return text, calls


@pytest.mark.promise("ollama.clients", "ollama.load", "ollama.options")
async def test_open_webui_verifies_lists_chats_and_unloads(ollama_bridge: OllamaBridge) -> None:
    http, bridge = ollama_bridge.http, ollama_bridge.bridge
    assert "version" in (await http.get("/api/version")).json()
    names = [model["model"] for model in (await http.get("/api/tags")).json()["models"]]
    assert MODEL in names
    assert (await http.get("/api/ps")).json() == {"models": []}
    bridge.says("hello")
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Look.", "images": [PICTURE]}],
        "options": {"temperature": 0.7, "top_k": 40, "mirostat": 1},
        "num_predict": 1000,
        "stream": True,
    }
    last = (await ollama_bridge.lines("/api/chat", asked))[-1]
    rates = [last[f"{name}_count"] / (last[f"{name}_duration"] / 1e9) for name in ("eval", "prompt_eval")]
    assert min(rates) > 0
    unloaded = await http.post("/api/generate", json={"model": MODEL, "prompt": "", "keep_alive": 0})
    assert unloaded.json()["done_reason"] == "unload"
