"""Calls of functions, custom tools and searches for tools, as a response tells of them."""

from typing import Any

import pytest

from tests.api.responses.decoded import decode
from tests.api.responses.test_encode import encoded, encoder
from turnbridge.turn import events as ev
from turnbridge.turn.items import FunctionCall, Json, JsonObject
from turnbridge.turn.request import Namespace

CRM: JsonObject = {
    "type": "namespace",
    "name": "crm",
    "description": "The CRM.",
    "tools": [{"type": "function", "name": "sql"}, {"type": "custom", "name": "note"}],
}
TOOLS: list[Json] = [{"type": "custom", "name": "sql"}, {"type": "tool_search", "execution": "client"}, CRM]
IN_CALL: JsonObject = {"item_id": "fc_1", "output_index": 0}


def call(name: str, arguments: str, namespace: str | None = None) -> ev.FunctionCallDone:
    return ev.FunctionCallDone("fc_1", "call_1", name, arguments, namespace)


CALLS: list[tuple[ev.FunctionCallDone, JsonObject, JsonObject, list[JsonObject]]] = [
    (
        call("sql", '{"input": "SELECT 1"}'),
        {"type": "custom_tool_call", "name": "sql", "input": "SELECT 1"},
        {"input": ""},
        [
            {"type": "response.custom_tool_call_input.delta", **IN_CALL, "delta": "SELECT 1"},
            {"type": "response.custom_tool_call_input.done", **IN_CALL, "input": "SELECT 1"},
        ],
    ),
    (
        call("sql", '{"input": ""}', "functions"),
        {"type": "custom_tool_call", "name": "sql", "namespace": "functions", "input": ""},
        {"input": ""},
        [{"type": "response.custom_tool_call_input.done", **IN_CALL, "input": ""}],
    ),
    (
        call("note", '{"input": "n"}', "crm"),
        {"type": "custom_tool_call", "name": "note", "namespace": "crm", "input": "n"},
        {"input": ""},
        [
            {"type": "response.custom_tool_call_input.delta", **IN_CALL, "delta": "n"},
            {"type": "response.custom_tool_call_input.done", **IN_CALL, "input": "n"},
        ],
    ),
    (
        call("sql", '{"input": "n"}', "crm"),
        {"type": "function_call", "name": "sql", "namespace": "crm", "arguments": '{"input": "n"}'},
        {"arguments": ""},
        [
            {"type": "response.function_call_arguments.delta", **IN_CALL, "delta": '{"input": "n"}'},
            {
                "type": "response.function_call_arguments.done",
                **IN_CALL,
                "name": "sql",
                "arguments": '{"input": "n"}',
            },
        ],
    ),
    (
        call("tool_search", '{"query": "crm"}'),
        {"type": "tool_search_call", "execution": "client", "arguments": {"query": "crm"}},
        {"arguments": {}},
        [],
    ),
]


@pytest.mark.promise("tools.custom", "tools.namespaces", "tools.search")
@pytest.mark.parametrize(("made", "item", "opened", "between"), CALLS)
def test_a_call_is_told_in_the_words_of_its_tool(
    made: ev.FunctionCallDone, item: JsonObject, opened: JsonObject, between: list[JsonObject]
) -> None:
    answer = encoder(tools=TOOLS)
    events = encoded(answer, [made, ev.CallsAwaited(ev.Usage(), ("fc_1",))])
    whole: JsonObject = {**item, "id": "fc_1", "call_id": "call_1", "status": "completed"}
    told = [{key: value for key, value in event.items() if key != "sequence_number"} for event in events[2:-1]]
    assert told == [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**whole, "status": "in_progress", **opened},
        },
        *between,
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
    ]
    assert answer.whole()["output"] == [whole]


@pytest.mark.promise("tools.custom", "tools.namespaces", "tools.search")
@pytest.mark.parametrize(("made", "item"), [(made, item) for made, item, _, _ in CALLS])
def test_what_a_client_gives_back_is_the_call_that_the_model_made(made: ev.FunctionCallDone, item: JsonObject) -> None:
    kind = str(item["type"])
    output: JsonObject = {"type": f"{kind}_output", "call_id": "call_1", "output": "done"}
    if kind == "tool_search_call":
        output = {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "tools": []}
    given: Json = [{**item, "id": "fc_1", "call_id": "call_1", "status": "completed"}, output]
    back, _ = decode({"model": "gpt-5.5", "input": given, "tools": TOOLS}).turn.items
    assert isinstance(back, FunctionCall)
    assert (back.call_id, back.name, back.namespace) == (made.call_id, made.name, made.namespace)
    assert back.arguments == made.arguments.replace(": ", ":", 1) or back.arguments == made.arguments


@pytest.mark.promise("tools.added")
def test_tools_in_the_input_are_declared_like_any_other() -> None:
    crm: Any = {**CRM, "tools": [{"type": "function", "name": "look", "defer_loading": True}]}
    found: list[Json] = [
        {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "crm"}},
        {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [crm, CRM]},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "now"}, CRM]},
        {"role": "user", "content": "Hi"},
    ]
    turn = decode({"model": "gpt-5.5", "input": found, "tools": TOOLS[:2]}).turn
    namespace = Namespace(name="crm", description="The CRM.")
    assert [(tool.namespace, tool.name, tool.kind) for tool in turn.spec.tools] == [
        (None, "sql", "custom"),
        (None, "tool_search", "tool_search"),
        (namespace, "look", "function"),
        (namespace, "sql", "function"),
        (namespace, "note", "custom"),
        (None, "now", "function"),
    ]
    assert turn.ignored == ()
    assert [type(item).__name__ for item in turn.items] == ["FunctionCall", "FunctionCallOutput", "Message"]
