"""Custom tools, namespaces and searches for tools, as clients declare and choose them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.shared.schema_budget import SchemaChecker
from turnbridge.api.shared.tool_choice import ToolUse
from turnbridge.api.shared.tools import (
    CUSTOM_PARAMETERS,
    MAX_TOOLS,
    NO_PARAMETERS,
    OF_RESPONSES,
    SEARCH_PARAMETERS,
    WHY,
    decode_tools,
)
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject, custom_arguments, custom_input
from turnbridge.turn.request import Namespace, Tool

NOTE = "Free-form tool: write its whole text, and nothing else, into the string `input`."
GRAMMAR: JsonObject = {"syntax": "lark", "definition": "start: /a+/"}
CRM = Namespace(name="crm", description="The CRM.")


def custom(name: str, description: str = NOTE, namespace: Namespace | None = None) -> Tool:
    return Tool(
        name=name,
        description=description,
        parameters=CUSTOM_PARAMETERS,
        strict=True,
        kind="custom",
        namespace=namespace,
    )


def function(name: str, namespace: Namespace | None = None) -> Tool:
    return Tool(name=name, description="", parameters=NO_PARAMETERS, namespace=namespace)


def group(*tools: JsonObject, **fields: Json) -> JsonObject:
    return {"type": "namespace", "name": "crm", "description": "The CRM.", "tools": [*tools], **fields}


def decoded(*tools: JsonObject, choice: str | JsonObject | None = None) -> ToolUse:
    return decode_tools(tools, choice, SchemaChecker(), also=OF_RESPONSES, strict=True)


@pytest.mark.promise("tools.custom")
@pytest.mark.parametrize(
    ("tool", "expected", "ignored"),
    [
        ({"name": "a"}, custom("a"), ()),
        ({"name": "a", "description": "An a."}, custom("a", f"An a.\n\n{NOTE}"), ()),
        ({"name": "a", "format": {"type": "text"}}, custom("a"), ()),
        (
            {"name": "a", "format": {"type": "grammar", **GRAMMAR}},
            custom("a", f"{NOTE}\n\nThe text must match this Lark grammar:\nstart: /a+/"),
            ("format",),
        ),
        (
            {"name": "a", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}},
            custom("a", f"{NOTE}\n\nThe text must match this regular expression:\na+"),
            ("format",),
        ),
    ],
)
def test_a_custom_tool_is_a_function_with_one_text(tool: JsonObject, expected: Tool, ignored: tuple[str, ...]) -> None:
    flat = decoded({"type": "custom", **tool})
    assert flat == ToolUse(tools=(expected,), ignored=tuple(f"tools[0].{name}" for name in ignored))
    nested = decode_tools([{"type": "custom", "custom": tool}], None, SchemaChecker())
    assert nested == ToolUse(tools=(expected,), ignored=tuple(f"tools[0].custom.{name}" for name in ignored))


@pytest.mark.promise("tools.namespaces")
def test_a_namespace_is_the_group_of_its_tools() -> None:
    members: list[JsonObject] = [{"type": "function", "name": "a"}, {"type": "custom", "name": "b"}]
    use = decoded({"type": "function", "name": "a"}, group(*members))
    assert use.tools == (function("a"), function("a", CRM), custom("b", namespace=CRM))


def test_the_namespace_of_all_functions_is_none() -> None:
    use = decoded(group({"type": "function", "name": "a"}, name="functions"))
    assert use == ToolUse(tools=(function("a"),), ignored=("tools[0].description",))


@pytest.mark.promise("tools.search")
def test_a_search_that_the_client_runs_is_a_function_and_one_of_the_provider_is_not_needed() -> None:
    search: JsonObject = {"type": "tool_search", "execution": "client"}
    expected = Tool(name="tool_search", description="", parameters=SEARCH_PARAMETERS, strict=True, kind="tool_search")
    assert decoded(search) == ToolUse(tools=(expected,))
    deferred = group({"type": "function", "name": "a", "defer_loading": True})
    assert decoded({"type": "tool_search"}, deferred) == ToolUse(
        tools=(function("a", CRM),), ignored=("tools[0]", "tools[1].tools[0].defer_loading")
    )


A, B, C = function("a"), custom("b"), function("c", CRM)
DECLARED: list[JsonObject] = [
    {"type": "function", "name": "a"},
    {"type": "custom", "name": "b"},
    group({"type": "function", "name": "c"}),
]


def allowed(*tools: Json) -> JsonObject:
    return {"type": "allowed_tools", "mode": "auto", "tools": [*tools]}


@pytest.mark.promise("tools.custom", "tools.namespaces")
@pytest.mark.parametrize(
    ("choice", "use"),
    [
        ({"type": "custom", "name": "b"}, ToolUse(tools=(B,), must_call=True)),
        ({"type": "custom", "custom": {"name": "b"}}, ToolUse(tools=(B,), must_call=True)),
        ({"type": "function", "name": "c", "namespace": "crm"}, ToolUse(tools=(C,), must_call=True)),
        (
            allowed({"type": "custom", "custom": {"name": "b"}}, {"type": "function", "name": "a"}),
            ToolUse(tools=(B, A)),
        ),
        (allowed({"type": "namespace", "name": "crm"}), ToolUse(tools=(C,))),
        ("none", ToolUse()),
    ],
)
def test_a_choice_may_name_any_tool(choice: str | JsonObject, use: ToolUse) -> None:
    assert decoded(*DECLARED, choice=choice) == use


FORMAT: JsonObject = {"type": "grammar", **GRAMMAR}
TWICE: JsonObject = {"type": "custom", "name": "b"}
MANY: list[JsonObject] = [{"type": "function", "name": f"f{number}"} for number in range(MAX_TOOLS)]


@pytest.mark.parametrize(
    ("tools", "choice", "code", "param"),
    [
        ([{"type": "custom"}], None, "missing_required_parameter", "tools[0].name"),
        ([{"type": "custom", "custom": {}}], None, "missing_required_parameter", "tools[0].custom.name"),
        ([{"type": "custom", "name": "a", "format": "text"}], None, "invalid_type", "tools[0].format"),
        ([{"type": "custom", "name": "a", "format": {}}], None, "invalid_value", "tools[0].format.type"),
        (
            [{"type": "custom", "name": "a", "format": {**FORMAT, "syntax": "ebnf"}}],
            None,
            "invalid_value",
            "tools[0].format.syntax",
        ),
        (
            [{"type": "custom", "name": "a", "format": {"type": "grammar", "grammar": {"syntax": "lark"}}}],
            None,
            "missing_required_parameter",
            "tools[0].format.grammar.definition",
        ),
        ([*DECLARED, {"type": "function", "name": "b"}], None, "duplicate_tool_name", "tools"),
        ([group(TWICE, TWICE)], None, "duplicate_tool_name", "tools"),
        ([group(name="")], None, "missing_required_parameter", "tools[0].name"),
        ([group()], None, "missing_required_parameter", "tools[0].tools"),
        ([group(group())], None, "unsupported_tool", "tools[0].tools[0].type"),
        ([{"type": "tool_search", "execution": "client", "parameters": 5}], None, "invalid_function_parameters", None),
        (DECLARED, {"type": "custom", "name": "c"}, "invalid_value", "tool_choice"),
        (DECLARED, {"type": "function", "name": "c"}, "invalid_value", "tool_choice"),
        (DECLARED, allowed({"type": "namespace", "name": "other"}), "invalid_value", "tool_choice"),
        (DECLARED, allowed({"type": "tool_search"}), "invalid_value", "tool_choice"),
        (
            [
                group(*MANY),
                {"type": "custom", "name": "a"},
            ],
            None,
            "array_above_max_length",
            "tools",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tools: list[JsonObject], choice: JsonObject | None, code: str, param: str | None
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        decoded(*tools, choice=choice)
    assert raised.value.error_code == code
    assert param in (None, raised.value.param)


@pytest.mark.promise("tools.hosted")
def test_all_tools_that_cannot_be_carried_are_named_at_once() -> None:
    hosted: list[JsonObject] = [
        {"type": "file_search", "allowed_tools": ["a"]},
        {"type": "function", "name": "a"},
        group({"type": "web_search"}),
        {"type": "shell"},
    ]
    with pytest.raises(InvalidRequest) as raised:
        decoded(*hosted)
    assert (raised.value.error_code, raised.value.param) == ("unsupported_tool", "tools[0].type")
    assert raised.value.message == (
        "Tools of type 'file_search', 'web_search' and 'shell' cannot be carried to Codex "
        "(tools[0], tools[2].tools[0], tools[3]). "
        "Functions, custom tools, namespaces of these, 'image_generation', 'mcp', 'tool_search' and 'web_search' can. "
        f"{WHY['file_search']} {WHY['shell']}"
    )


def test_what_a_long_history_found_many_times_is_read_once() -> None:
    parameters: JsonObject = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(500)}}
    crm = group({"type": "function", "name": "a", "parameters": parameters})
    found = {f"input[{n}].tools": [crm] for n in range(100)}
    use = decode_tools([], None, SchemaChecker(), also=OF_RESPONSES, found=found)
    assert [tool.key for tool in use.tools] == [("crm", "a")]


def test_what_is_found_later_takes_the_place_of_what_was_declared() -> None:
    later = [group({"type": "custom", "name": "c"})]
    use = decode_tools(DECLARED, None, SchemaChecker(), also=OF_RESPONSES, strict=True, found={"input[0].tools": later})
    assert use.tools == (A, B, custom("c", namespace=CRM))


@pytest.mark.parametrize("kind", ["namespace", "tool_search"])
def test_an_api_without_namespaces_refuses_them(kind: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        decode_tools([{"type": kind, "name": "a"}], None, SchemaChecker())
    assert (raised.value.error_code, raised.value.param) == ("unsupported_tool", "tools[0].type")


@pytest.mark.promise("tools.custom")
@given(st.text())
def test_any_text_survives_as_an_argument(text: str) -> None:
    assert custom_input(custom_arguments(text)) == text


@pytest.mark.parametrize("arguments", ["", "{", "[]", "{}", '{"input": 5}', '{"patch": "x"}', "[" * 5000])
def test_arguments_that_are_no_custom_tools_own_are_its_text(arguments: str) -> None:
    assert custom_input(arguments) == arguments
