"""Tools and the choice among them, as clients write them."""

import pytest

from tests.api.shared.told import Told, told
from turnbridge.api.shared.schema_budget import SchemaChecker
from turnbridge.api.shared.tool_choice import ToolUse
from turnbridge.api.shared.tools import (
    NO_PARAMETERS,
    WebSearchOptions,
    decode_tools,
    decode_web_search,
)
from turnbridge.api.shared.validation import convert
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.mcp import McpFilter
from turnbridge.turn.request import Tool, WebSearch

SCHEMA: JsonObject = {"type": "object", "properties": {"a": {"type": "string"}}}
STRICT: JsonObject = {**SCHEMA, "required": ["a"], "additionalProperties": False}
A = Tool(name="a", description="", parameters=NO_PARAMETERS)
B = Tool(name="b", description="", parameters=NO_PARAMETERS)
FLAT: list[JsonObject] = [{"type": "function", "name": "a"}, {"type": "function", "name": "b"}]
SEARCH: JsonObject = {"type": "web_search"}


@pytest.mark.promise("tools.declared")
@pytest.mark.parametrize(
    ("declared", "tool"),
    [
        ({"name": "a"}, A),
        ({"name": "a", "parameters": None, "description": None, "strict": None}, A),
        (
            {"name": "a", "description": "An a.", "parameters": SCHEMA},
            Tool(name="a", description="An a.", parameters=SCHEMA),
        ),
        (
            {"name": "a", "parameters": STRICT, "strict": True},
            Tool(name="a", description="", parameters=STRICT, strict=True),
        ),
        ({"name": "mcp__x.天気"}, Tool(name="mcp__x.天気", description="", parameters=NO_PARAMETERS)),
    ],
    ids=["bare", "nulls", "whole", "strict", "any name"],
)
def test_a_function_may_be_flat_nested_or_legacy(declared: JsonObject, tool: Tool) -> None:
    assert decode_tools([{"type": "function", **declared}], None, SchemaChecker()) == ToolUse(tools=(tool,))
    assert decode_tools([{"type": "function", "function": declared}], None, SchemaChecker()) == ToolUse(tools=(tool,))
    assert decode_tools([declared], None, SchemaChecker(), legacy=True) == ToolUse(tools=(tool,))


def allowed(mode: Json, *tools: Json) -> JsonObject:
    return {"type": "allowed_tools", "mode": mode, "tools": [*tools]}


@pytest.mark.parametrize(
    ("choice", "use"),
    [
        (None, ToolUse(tools=(A, B), web_search=WebSearch())),
        ("auto", ToolUse(tools=(A, B), web_search=WebSearch())),
        ("none", ToolUse()),
        ("required", ToolUse(tools=(A, B), web_search=WebSearch(), must_call=True)),
        ({"type": "function", "name": "b"}, ToolUse(tools=(B,), must_call=True)),
        ({"type": "function", "function": {"name": "b"}}, ToolUse(tools=(B,), must_call=True)),
        (allowed("auto", FLAT[1]), ToolUse(tools=(B,))),
        (allowed("required", FLAT[1], FLAT[0], FLAT[1]), ToolUse(tools=(B, A), must_call=True)),
        (allowed("auto", FLAT[0], SEARCH), ToolUse(tools=(A,), web_search=WebSearch())),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "a"}}]}},
            ToolUse(tools=(A,)),
        ),
    ],
)
def test_a_choice_narrows_what_may_be_called(choice: str | JsonObject | None, use: ToolUse) -> None:
    assert decode_tools([*FLAT, SEARCH], choice, SchemaChecker()) == use


@pytest.mark.parametrize(
    ("choice", "use"),
    [("none", ToolUse()), ("auto", ToolUse(tools=(A, B))), ({"name": "b"}, ToolUse(tools=(B,), must_call=True))],
)
def test_a_legacy_choice_does_too(choice: str | JsonObject, use: ToolUse) -> None:
    assert decode_tools([{"name": "a"}, {"name": "b"}], choice, SchemaChecker(), legacy=True) == use


SEVERAL = (
    "Tools of type 'file_search' and 'shell' cannot be carried to Codex (tools[0], tools[2], tools[3]). "
    "Functions, custom tools and 'web_search' can. "
    "No files are searched here. Send the text, or declare a function that searches. "
    "Nothing is run on this server for a client: declare a function, and run what the model calls."
)
NOT_FOUND = "Tool choice '{}' not found in 'tools' parameter."
CHOICES = (
    "Invalid 'tool_choice'. Supported are 'none', 'auto', 'required', a function, custom tool or MCP server by its "
    "name, and 'allowed_tools'."
)
MODES = "Supported values are: 'auto' and 'required'."


@pytest.mark.parametrize(
    ("tools", "choice", "message", "code", "param"),
    [
        ([], "required", "'tool_choice' is only allowed when tools are specified.", "invalid_value", "tool_choice"),
        (FLAT, {"type": "function", "name": "c"}, NOT_FOUND.format("c"), "invalid_value", "tool_choice"),
        (FLAT, {"type": "function"}, NOT_FOUND.format("None"), "invalid_value", "tool_choice"),
        (FLAT, allowed("auto", {"name": "c"}), NOT_FOUND.format("c"), "invalid_value", "tool_choice"),
        (FLAT, allowed("auto", SEARCH), NOT_FOUND.format("web_search"), "invalid_value", "tool_choice"),
        (FLAT, allowed("any", FLAT[0]), f"Invalid value: 'any'. {MODES}", "invalid_value", "tool_choice.mode"),
        (
            FLAT,
            allowed("auto"),
            "Missing required parameter: 'tool_choice.tools'.",
            "missing_required_parameter",
            "tool_choice.tools",
        ),
        (
            FLAT,
            {"type": "allowed_tools", "allowed_tools": {"tools": []}},
            f"Invalid value: 'None'. {MODES}",
            "invalid_value",
            "tool_choice.allowed_tools.mode",
        ),
        (
            FLAT,
            "any",
            CHOICES,
            "invalid_value",
            "tool_choice",
        ),
        ([*FLAT, FLAT[0]], None, "Two tools are named 'a'.", "duplicate_tool_name", "tools"),
        (
            [{"type": "function", "function": {}}],
            None,
            "Missing required parameter: 'tools[0].function.name'.",
            "missing_required_parameter",
            "tools[0].function.name",
        ),
        (
            [*FLAT, {"type": "gesture", "name": "c"}],
            "none",
            "Tools of type 'gesture' cannot be carried to Codex. Functions, custom tools and 'web_search' can.",
            "unsupported_tool",
            "tools[2].type",
        ),
        (
            [{"type": "file_search"}, {"type": "function"}, {"type": "shell", "name": "c"}, {"type": "file_search"}],
            None,
            SEVERAL,
            "unsupported_tool",
            "tools[0].type",
        ),
        (
            [{"type": ["function"], "name": "c"}],
            None,
            "Tools of type '['function']' cannot be carried to Codex. Functions, custom tools and 'web_search' can.",
            "unsupported_tool",
            "tools[0].type",
        ),
        (FLAT, allowed("auto", {"type": {}, "name": "c"}), NOT_FOUND.format("c"), "invalid_value", "tool_choice"),
        (
            [{"type": "web_search", "search_context_size": "huge"}],
            None,
            "Invalid value: 'huge'. Supported values are: 'low', 'medium', and 'high'.",
            "invalid_value",
            "tools[0].search_context_size",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tools: list[JsonObject], choice: str | JsonObject | None, message: str, code: str, param: str
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        decode_tools(tools, choice, SchemaChecker())
    assert told(raised.value) == Told(InvalidRequest, message, code, param)


@pytest.mark.parametrize("strict", [False, True])
def test_a_schema_that_openai_would_refuse_is_refused_by_its_place(strict: bool) -> None:
    broken: JsonObject = {"type": "strin"}
    with pytest.raises(InvalidRequest) as raised:
        decode_tools(
            [*FLAT, {"type": "function", "name": "c", "parameters": broken, "strict": strict}], None, SchemaChecker()
        )
    assert (raised.value.error_code, raised.value.param) == ("invalid_function_parameters", "tools[2].parameters")


@pytest.mark.promise("tools.objects")
@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"type": "null"}, "'type: \"null\"'"),
        ({"type": "string"}, "'type: \"string\"'"),
        ({"type": "array", "items": {}}, "'type: \"array\"'"),
        ({"type": ["string", "null"]}, '\'type: ["string", "null"]\''),
        ({"enum": [None]}, "values that are none"),
        ({"const": "a"}, "values that are none"),
    ],
)
def test_parameters_that_are_no_object_are_refused(schema: JsonObject, found: str) -> None:
    wanted = "schema must be a JSON Schema of 'type: \"object\"'"
    message = f"Invalid schema for function 'c': {wanted}, got {found}."
    tool: JsonObject = {"name": "c", "parameters": schema}
    flat: JsonObject = {"type": "function", **tool}
    nested: JsonObject = {"type": "function", "function": tool}
    for declared, param in ((flat, "tools[0].parameters"), (nested, "tools[0].function.parameters")):
        with pytest.raises(InvalidRequest) as raised:
            decode_tools([declared], None, SchemaChecker())
        assert told(raised.value) == Told(InvalidRequest, message, "invalid_function_parameters", param)


@pytest.mark.parametrize(
    "schema", [{}, {"type": ["object", "null"]}, {"properties": {}}, {"anyOf": [{"type": "object"}]}, {"enum": [{}]}]
)
def test_parameters_that_may_be_an_object_are_taken(schema: JsonObject) -> None:
    (tool,) = decode_tools([{"type": "function", "name": "c", "parameters": schema}], None, SchemaChecker()).tools
    assert tool.parameters == schema


PLACE: JsonObject = {"city": "Rome", "country": "IT"}


@pytest.mark.parametrize(
    ("wanted", "search"),
    [
        ({}, WebSearch()),
        ({"search_context_size": "low", "external_web_access": False}, WebSearch(context_size="low", live=False)),
        ({"filters": {"allowed_domains": ["a.org"]}}, WebSearch(allowed_domains=("a.org",))),
        (
            {"user_location": {"type": "approximate", **PLACE}},
            WebSearch(location={"city": "Rome", "country": "IT"}),
        ),
        (
            {"user_location": {"type": "approximate", "approximate": PLACE}},
            WebSearch(location={"city": "Rome", "country": "IT"}),
        ),
        ({"user_location": None, "filters": None}, WebSearch()),
    ],
)
def test_web_search_takes_the_options_of_both_apis(wanted: JsonObject, search: WebSearch) -> None:
    assert decode_web_search(convert(wanted, WebSearchOptions), param="p") == search


MCP: JsonObject = {
    "type": "mcp",
    "server_label": "wx",
    "server_url": "https://mcp.example",
    "require_approval": "never",
    "allowed_tools": {"tool_names": ["look", "hear"], "read_only": True},
}


def test_the_choice_of_a_servers_tool_leaves_it_alone_with_what_else_it_must_be() -> None:
    use = decode_tools(
        [*FLAT, MCP], {"type": "mcp", "server_label": "wx", "name": "look"}, SchemaChecker(), also=("mcp",)
    )
    (server,) = use.servers
    assert (use.tools, use.must_call) == ((), True)
    assert server.allowed == McpFilter(names=("look",), read_only=True)


@pytest.mark.parametrize("reference", [{"server_label": "wx", "name": "burn"}, {"server_label": "other"}])
def test_the_choice_of_a_servers_tool_that_is_not_allowed_is_refused(reference: JsonObject) -> None:
    with pytest.raises(InvalidRequest, match="not found in 'tools'"):
        decode_tools([MCP], {"type": "mcp", **reference}, SchemaChecker(), also=("mcp",))


@pytest.mark.parametrize(("said", "strict"), [(None, True), (False, False), (True, True)])
def test_where_functions_are_strict_by_default_a_client_may_say_that_one_is_not(said: Json, strict: bool) -> None:
    declared: JsonObject = {"type": "function", "name": "a", "parameters": STRICT, "strict": said}
    (tool,) = decode_tools([declared], None, SchemaChecker(), strict=True).tools
    assert tool.strict is strict


def test_of_tools_that_may_not_be_called_nothing_is_named_as_ignored() -> None:
    deferred: JsonObject = {**FLAT[0], "defer_loading": True}
    assert decode_tools([deferred], "auto", SchemaChecker(), also=("mcp",)).ignored == ("tools[0].defer_loading",)
    assert decode_tools([deferred], "none", SchemaChecker(), also=("mcp",)) == ToolUse()
