"""Namespaces, and tools that the input brings, through the real Codex: declared, called, given back, kept."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.free_form_clients import answered, both_ways, converse_raw, plain_outputs
from tests.support.gateway import Bridge, running_bridge
from tests.support.tool_clients import (
    HI,
    MODEL,
    Seen,
    ask,
    bare,
    declared,
    inputs,
    output_item,
    threads,
    weather_call,
)
from turnbridge.scripted_model.replies import OutputItem, answer, function_call, message
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
async def bridge(bridge: Bridge) -> Bridge:
    """Return a gateway where no turn waits: these tests all have the same ids of calls."""
    bridge.gateway.calls.close()
    return bridge


def in_namespace(made: OutputItem, namespace: str) -> OutputItem:
    """Return a call of the model's with a namespace."""
    return replace(made, item={**made.item, "namespace": namespace})


@pytest.mark.promise("items.namespaces")
async def test_the_namespace_of_a_call_reaches_the_client_and_goes_back_to_the_model(bridge: Bridge) -> None:
    calls = [in_namespace(weather_call("Oslo", "c1"), "functions"), weather_call("Bern", "c2")]
    bridge.script(answer(*calls), answer(message("Sunny.")), answer(message("Still.")))
    asked: dict[str, Any] = {"model": MODEL, "tools": declared("responses")}
    first = await bridge.client.responses.create(input=[HI], **asked)  # type: ignore[list-item]
    assert [item.namespace for item in first.output if item.type == "function_call"] == ["functions", None]
    kept = await bridge.client.responses.retrieve(first.id)
    assert kept.output == first.output
    outputs: Any = [output_item("responses", call_id, "sunny") for call_id in ("c1", "c2")]
    raw = await bridge.client.responses.with_raw_response.create(input=outputs, previous_response_id=first.id, **asked)
    assert raw.headers["x-turnbridge-thread"] == "parked"
    await bridge.client.responses.create(input="And now?", previous_response_id=raw.parse().id, **asked)
    for request in bridge.model.requests[1:]:
        items: Any = request.body["input"]
        assert [item.get("namespace") for item in items if item["type"] == "function_call"] == ["functions", None]


@pytest.mark.promise("items.namespaces")
async def test_a_call_in_a_namespace_that_nobody_declared_is_answered_by_codex(bridge: Bridge) -> None:
    bridge.script(answer(in_namespace(weather_call("Oslo", "c1"), "crm")), answer(message("I cannot.")))
    shown, calls = await ask(bridge, "responses", [HI])
    assert (shown["text"], calls) == ("I cannot.", [])


SCHEMA: JsonObject = {"type": "object", "properties": {"q": {"type": "string", "description": "What."}}}
FREE_FORM: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
FREE_FORM_NOTE = "Free-form tool: write its whole text, and nothing else, into the string `input`."


def function(name: str, **fields: Json) -> JsonObject:
    return {"type": "function", "name": name, "description": f"It is {name}.", "parameters": SCHEMA, **fields}


def group(name: str, *tools: JsonObject, description: str = "A group.") -> JsonObject:
    return {"type": "namespace", "name": name, "description": description, "tools": [*tools]}


TOOLS = [
    function("look"),
    group("crm", function("look"), {"type": "custom", "name": "note"}),
    group("mcp__clock", function("now.utc"), function("mcp__x")),
    group("web", function("exec_command")),
]
# The same as the model knows it.
GIVEN: list[JsonObject] = [
    function("look", strict=False),
    group(
        "crm",
        function("look", strict=False),
        {
            "type": "function",
            "name": "note",
            "description": FREE_FORM_NOTE,
            "strict": False,
            "parameters": FREE_FORM,
        },
    ),
    group(
        "client_mcp__clock",
        {**function("now.utc", strict=False), "name": "now_utc"},
        {**function("mcp__x", strict=False), "name": "client_mcp__x"},
    ),
    group("client_web", function("exec_command", strict=False)),
]


def made(namespace: str | None, name: str, call_id: str, arguments: JsonObject | None = None) -> OutputItem:
    """Return a call of the model's, by the names that it knows."""
    call = function_call(name, arguments or {"q": "x"}, call_id=call_id)
    return call if namespace is None else in_namespace(call, namespace)


EVERY = [
    made("crm", "look", "c1"),
    made(None, "look", "c2"),
    made("crm", "note", "c3", {"input": "a\nb"}),
    made("client_mcp__clock", "now_utc", "c4"),
    made("client_mcp__clock", "client_mcp__x", "c5"),
    made("client_web", "exec_command", "c6"),
]


def in_order(tools: Any) -> Any:
    """Return declared tools with the functions of each namespace in one order: Codex has its own."""
    return [
        {**tool, "tools": sorted(tool["tools"], key=lambda inner: inner["name"])} if "tools" in tool else tool
        for tool in tools
    ]


def nested(tool: JsonObject) -> JsonObject:
    """Return a tool in the words of chat, which has namespaces here only."""
    if "tools" in tool:
        return {**tool, "tools": [nested(member) for member in tool["tools"]]}  # type: ignore[arg-type, union-attr]
    kind = str(tool["type"])
    return {"type": kind, kind: {name: value for name, value in tool.items() if name != "type"}}


def check_what_the_model_saw(bridge: Bridge, seen: Seen) -> None:
    """Judge the tools of each request, and the history with the calls and their outputs."""
    for request in bridge.model.requests:
        assert in_order(request.body["tools"]) == in_order(GIVEN)
    told: Any = seen.model[1]
    assert told[1:7] == [bare(call.item) for call in EVERY]
    assert told[7:] == [
        {"type": "function_call_output", "call_id": f"c{number}", "output": f"done c{number}"} for number in range(1, 7)
    ]


@pytest.mark.promise("tools.namespaces", "tools.parked", "tools.replay")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_chat_has_namespaces_in_the_names_of_functions(bridge: Bridge, stream: bool) -> None:
    script = [answer(*EVERY), answer(made("crm", "look", "c7")), answer(message("Done."))]
    tools = [nested(tool) for tool in TOOLS]
    seen = await both_ways(bridge, script, api="chat", stream=stream, tools=tools)
    said: Any = seen.client[0]
    assert [(call["type"], call[call["type"]]["name"]) for call in said[0]["tool_calls"]] == [
        ("function", "crm__look"),
        ("function", "look"),
        ("custom", "crm__note"),
        ("function", "mcp__clock__now.utc"),
        ("function", "mcp__clock__mcp__x"),
        ("function", "web__exec_command"),
    ]
    check_what_the_model_saw(bridge, seen)


@pytest.mark.promise("tools.namespaces", "tools.parked", "tools.replay")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_parked_and_replayed_calls_in_namespaces_cannot_be_told_apart(bridge: Bridge, stream: bool) -> None:
    script = [answer(*EVERY), answer(made("crm", "look", "c7")), answer(message("Done."))]
    seen = await both_ways(bridge, script, api="responses", stream=stream, tools=TOOLS)
    first: Any = seen.client[0]
    assert [(call.get("namespace"), call["name"], call["call_id"]) for call in first] == [
        ("crm", "look", "c1"),
        (None, "look", "c2"),
        ("crm", "note", "c3"),
        ("mcp__clock", "now.utc", "c4"),
        ("mcp__clock", "mcp__x", "c5"),
        ("web", "exec_command", "c6"),
    ]
    assert (first[2]["type"], first[2]["input"]) == ("custom_tool_call", "a\nb")
    check_what_the_model_saw(bridge, seen)


@pytest.mark.promise("tools.namespaces", "threads.warm")
async def test_a_conversation_with_calls_in_namespaces_goes_on_in_its_thread(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_WARM_THREADS_MAX=8) as bridge:
        bridge.script(answer(EVERY[3]), answer(message("Done.")), answer(message("More.")))
        history: list[Any] = [HI]
        ways = []
        for more in (None, plain_outputs([{"type": "function_call", "call_id": "c4"}]), [HI]):
            history += more or []
            said, served = await answered(bridge, "responses", {"input": history, "tools": TOOLS})
            history += said
            ways.append(served)
        assert (ways, threads(bridge)) == (["fresh", "parked", "warm"], 1)


@pytest.mark.promise("tools.namespaces")
async def test_what_is_declared_without_the_provider_s_search_is_named(bridge: Bridge) -> None:
    bridge.says("Hi.")
    tools = [group("crm", function("look", defer_loading=True)), {"type": "tool_search"}]
    raw = await bridge.http.post("/v1/responses", json={"model": MODEL, "input": "hi", "tools": tools})
    assert raw.headers["x-turnbridge-ignored"] == "tools[0].tools[0].defer_loading, tools[1]"
    assert bridge.seen()["tools"] == [group("crm", function("look", strict=False))]


SEARCH: JsonObject = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
FOUND = [group("mcp__crm", function("look", defer_loading=True)), function("other")]


def found_outputs(calls: Sequence[Any]) -> list[Any]:
    """Return the outputs of calls; a search finds the same tools every time."""
    return [
        {"type": "tool_search_output", "call_id": call["call_id"], "execution": "client", "tools": FOUND}
        if call["type"] == "tool_search_call"
        else plain_outputs([call])[0]
        for call in calls
    ]


@pytest.mark.promise("tools.search")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_a_client_finds_can_be_called(bridge: Bridge, stream: bool) -> None:
    script = [
        answer(function_call("tool_search", {"query": "crm"}, call_id="s1")),
        answer(made("client_mcp__crm", "look", "c1"), made(None, "other", "c2")),
        answer(message("Done.")),
    ]
    seen, ways = await converse_raw(
        bridge, script, api="responses", way="parked", stream=stream, tools=[SEARCH], outputs=found_outputs
    )
    # With the new tools there has to be a new thread.
    assert ways == ["fresh", "replayed", "parked"]
    client: Any = seen.client
    assert [bare(item) for item in client[0]] == [
        {"type": "tool_search_call", "call_id": "s1", "execution": "client", "arguments": {"query": "crm"}}
    ]
    assert [(call.get("namespace"), call["name"]) for call in client[1]] == [("mcp__crm", "look"), (None, "other")]
    search = {key: SEARCH[key] for key in ("description", "parameters")}
    declared_search: JsonObject = {"type": "function", "name": "tool_search", "strict": False, **search}
    assert [request.body["tools"] for request in bridge.model.requests] == [
        [declared_search],
        *[
            [
                declared_search,
                group("client_mcp__crm", function("look", strict=False)),
                function("other", strict=False),
            ]
        ]
        * 2,
    ]
    told: Any = seen.model[1]
    assert told[1] == {"type": "function_call", "name": "tool_search", "call_id": "s1", "arguments": '{"query": "crm"}'}
    assert (told[2]["type"], json.loads(told[2]["output"])) == ("function_call_output", FOUND)


@pytest.mark.promise("tools.added")
async def test_tools_that_the_input_adds_can_be_called(bridge: Bridge) -> None:
    added: JsonObject = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [group("functions", function("look"), description=""), group("crm", function("look"))],
    }
    bridge.script(answer(made("crm", "look", "c1"), made(None, "look", "c2")), answer(message("Done.")))
    history: list[Any] = [added, HI]
    said, _ = await answered(bridge, "responses", {"input": history})
    assert [(call.get("namespace"), call["name"]) for call in said] == [("crm", "look"), (None, "look")]
    _, served = await answered(bridge, "responses", {"input": [*history, *said, *plain_outputs(said)]})
    assert served == "parked"
    for request in bridge.model.requests:
        assert request.body["tools"] == [function("look", strict=False), group("crm", function("look", strict=False))]
    shown: Any = inputs(bridge)
    assert [item["type"] for item in shown[1]] == ["message", *["function_call"] * 2, *["function_call_output"] * 2]
