"""Calls as items, both ways: of functions, of custom tools, and searches for tools that the client runs."""

from typing import NamedTuple, assert_never

from msgspec import json

from turnbridge.api.responses import schema
from turnbridge.api.shared.tools import TOOL_SEARCH
from turnbridge.turn.events import FunctionCallDone
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    Json,
    JsonObject,
    custom_arguments,
    custom_input,
)
from turnbridge.turn.request import Tool

IN_PROGRESS = "in_progress"


class ShownCall(NamedTuple):
    """A call before it has its arguments, the field that gets them, and the events that tell of it, if any."""

    item: JsonObject
    field: str
    value: Json
    event: str | None
    done: JsonObject
    """What the last of these events has besides."""


def shown_call(call: FunctionCallDone, tool: Tool | None) -> ShownCall:
    """Return a call as the client of this tool reads it."""
    head: JsonObject = {"id": call.item_id, "call_id": call.call_id}
    named: JsonObject = {**head, "name": call.name}
    if call.namespace is not None:
        named["namespace"] = call.namespace
    match "function" if tool is None else tool.kind:
        case "function" | "mcp":
            field, value, event = "arguments", call.arguments, "response.function_call_arguments"
            done: JsonObject = {"name": call.name}
            item: JsonObject = {"type": "function_call", **named}
        case "custom":
            field, value, event = "input", custom_input(call.arguments), "response.custom_tool_call_input"
            done = {}
            item = {"type": "custom_tool_call", **named}
        case "tool_search":
            found: Json = json.decode(call.arguments)
            item = {"type": "tool_search_call", **head, "execution": "client", "arguments": {}, "status": IN_PROGRESS}
            return ShownCall(item, "arguments", found, None, {})
        case kind:
            assert_never(kind)
    return ShownCall({**item, field: "", "status": IN_PROGRESS}, field, value, event, done)


def function_call(item: schema.FunctionCallItem) -> FunctionCall:
    """Return a call of a function."""
    return FunctionCall(
        call_id=item.call_id, name=item.name, arguments=item.arguments, namespace=item.namespace, id=item.id
    )


def custom_call(item: schema.CustomCallItem) -> FunctionCall:
    """Return a call of a custom tool."""
    return FunctionCall(
        call_id=item.call_id,
        name=item.name,
        arguments=custom_arguments(item.input),
        namespace=item.namespace,
        custom=True,
        id=item.id,
    )


def is_clients_search(item: JsonObject) -> bool:
    """Tell whether the client ran a search for tools itself."""
    return item.get("execution") == "client"


def search_call(item: schema.ToolSearchCallItem) -> FunctionCall:
    """Return a search for tools as the call of the function that it is to the model."""
    return FunctionCall(call_id=item.call_id, name=TOOL_SEARCH, arguments=json.encode(item.arguments).decode())


def search_output(item: schema.ToolSearchOutputItem) -> FunctionCallOutput:
    """Return the tools that a client found, as the output of that function."""
    return FunctionCallOutput(call_id=item.call_id, output=json.encode(item.tools).decode())
