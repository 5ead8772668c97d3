"""The client's functions in Codex's terms: names that Codex takes and that lead back, declarations that it can read."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.codex.protocol.tools import MOST_SCHEMA_BYTES, dynamic_tools
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import MOST_LEVELS
from turnbridge.turn.request import Namespace, Tool

LONG = "a" * 200
AWKWARD = [
    "mcp__x__y",
    "mcp",
    "mcp..x",
    "a.b",
    "a_b",
    "a b",
    "exec_command",
    "client_exec_command",
    "天気",
    "気候",
    "a\n",
]


@pytest.mark.parametrize(
    ("declared", "renamed"),
    [
        (["weather", "Get-Weather_2"], {}),
        (["mcp__clock__now"], {"mcp__clock__now": "client_mcp__clock__now"}),
        (["mcp", "mcpx", "mcp_x"], {"mcp": "client_mcp"}),
        (["mcp..now"], {"mcp..now": "client_mcp__now"}),
        (
            ["exec_command", "shell_command"],
            {"exec_command": "client_exec_command", "shell_command": "client_shell_command"},
        ),
        (["files.read", "files/read"], {"files.read": "files_read", "files/read": "files_read_2"}),
        (["a.b", "a_b"], {"a.b": "a_b_2"}),
        (["mcp__a", "client_mcp__a"], {"mcp__a": "client_mcp__a_2"}),
        (["天気", "気候"], {"天気": "__", "気候": "___2"}),
        ([LONG, f"{LONG}b"], {LONG: "a" * 128, f"{LONG}b": f"{'a' * 126}_2"}),
        (["line\n"], {"line\n": "line_"}),
    ],
)
def test_a_name_that_codex_takes_stays_and_others_are_changed_as_little_as_possible(
    declared: list[str], renamed: dict[str, str]
) -> None:
    names = ToolNames(declared)
    assert {name: names.to_codex(name) for name in declared} == {name: renamed.get(name, name) for name in declared}


@pytest.mark.promise("tools.names")
@given(st.lists(st.text(min_size=1, max_size=150) | st.sampled_from([*AWKWARD, LONG]), max_size=20, unique=True))
def test_every_name_leads_back_to_one_function(declared: list[str]) -> None:
    names = ToolNames(declared)
    in_codex = [names.to_codex(name) for name in declared]
    assert [names.to_client(name) for name in in_codex] == declared
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,128}", name) for name in in_codex)
    assert not [n for n in in_codex if n.startswith("mcp__") or n in ("mcp", "exec_command", "shell_command")]


def test_a_function_of_an_earlier_turn_keeps_the_name_that_it_would_have() -> None:
    assert ToolNames(()).to_codex("mcp__x.y") == ToolNames(["mcp__x.y"]).to_codex("mcp__x.y") == "client_mcp__x_y"
    assert ToolNames(()).to_client("client_mcp__x_y") is None


def of_bytes(size: int) -> JsonObject:
    """Return a schema of this size, as Codex counts it."""
    empty: JsonObject = {"type": "object", "properties": {}, "description": ""}
    rest = size - len(json.dumps(empty, separators=(",", ":")))
    return {**empty, "description": "ö" * (rest // 2) + "o" * (rest % 2)}


@pytest.mark.parametrize(("size", "told_twice"), [(MOST_SCHEMA_BYTES, False), (MOST_SCHEMA_BYTES + 1, True)])
@pytest.mark.parametrize("about", ["", "About f."])
def test_a_schema_that_codex_would_cut_down_is_told_in_words_too(size: int, told_twice: bool, about: str) -> None:
    schema = of_bytes(size)
    whole = f"The arguments conform to this JSON Schema: {json.dumps(schema, ensure_ascii=False)}"
    words = "\n\n".join(filter(None, [about, whole if told_twice else ""]))
    assert dynamic_tools([Tool(name="f", description=about, parameters=schema)], ToolNames(["f"])) == [
        {"type": "function", "name": "f", "description": words, "inputSchema": schema}
    ]


def nested(levels: int) -> JsonObject:
    schema: JsonObject = {}
    for _ in range(levels - 1):
        schema = {"items": schema, "type": "array"}
    return schema


def test_tools_that_come_again_are_declared_as_the_first_time() -> None:
    about = Namespace(name="files", description="About files. " * 100)
    schema: JsonObject = {"type": "object", "properties": {"path": {"type": "string", "pattern": "^/"}}}
    tools = [
        Tool(name="read", description="Reads.", parameters=schema, namespace=about),
        Tool(name="write", description="Writes.", parameters=schema),
    ]
    first = json.dumps(dynamic_tools(tools, ToolNames.of(tools)))
    assert json.dumps(dynamic_tools(tools, ToolNames.of(tools))) == first
    assert first.count("About all tools here") == 1


def test_a_schema_that_is_nested_too_deeply_for_codex_is_refused() -> None:
    names = ToolNames(["f"])
    assert dynamic_tools([Tool(name="f", description="", parameters=nested(MOST_LEVELS))], names)
    with pytest.raises(InvalidRequest) as raised:
        dynamic_tools([Tool(name="f", description="", parameters=nested(MOST_LEVELS + 1))], names)
    assert (raised.value.error_code, raised.value.param) == ("invalid_function_parameters", "tools")


def anything(note: str) -> JsonObject:
    """Return a schema of any value with a note about what Codex would drop."""
    types: list[Json] = ["string", "number", "boolean", "object", "array", "null"]
    return {"description": f"JSON Schema: {note}", "type": types, "properties": {}, "items": {}}


@pytest.mark.promise("tools.schemas")
@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        # What Codex would add itself.
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": ["array", "null"]}, {"type": ["array", "null"], "items": {}}),
        ({"required": ["a"]}, {"required": ["a"], "type": "object", "properties": {}}),
        ({"minItems": 1}, {"minItems": 1, "type": "array", "items": {}}),
        ({"enum": [1, None, 2]}, {"enum": [1, None, 2], "type": ["integer", "null"]}),
        ({"const": 0.5}, {"enum": [0.5], "type": "number"}),
        # What it would drop.
        ({"type": "string", "pattern": "a"}, {"type": "string", "description": 'JSON Schema: {"pattern": "a"}'}),
        (
            {"type": "string", "minLength": 1, "description": "A name"},
            {"type": "string", "description": 'A name (JSON Schema: {"minLength": 1})'},
        ),
        (
            {"const": 1, "enum": [1, 2]},
            {"enum": [1, 2], "type": "integer", "description": 'JSON Schema: {"const": 1}'},
        ),
        ({"$schema": "x", "$id": "y", "$comment": "z"}, {}),
        # What it could not read.
        ({"enum": [2**64]}, anything(f'{{"enum": [{2**64}]}}')),
        ({"const": 2**64}, anything(f'{{"const": {2**64}}}')),
        ({"enum": [2**64 - 1]}, {"enum": [2**64 - 1], "type": "integer"}),
        (
            {"type": "array", "minItems": 2**64},
            {"type": "array", "description": f'JSON Schema: {{"minItems": {2**64}}}', "items": {}},
        ),
        # The same inside.
        (
            {"properties": {"a": False, "b": True, "c": {"default": 1}}},
            {"properties": {"a": anything('{"not": {}}'), "b": {}, "c": anything('{"default": 1}')}, "type": "object"},
        ),
        ({"anyOf": [{"title": "t"}, {"type": "null"}]}, {"anyOf": [anything('{"title": "t"}'), {"type": "null"}]}),
        ({"type": "array", "items": {"maximum": 1}}, {"type": "array", "items": anything('{"maximum": 1}')}),
        (
            {"type": "object", "additionalProperties": {"title": "t"}},
            {"type": "object", "additionalProperties": anything('{"title": "t"}'), "properties": {}},
        ),
        (
            {"type": "object", "additionalProperties": False},
            {"type": "object", "additionalProperties": False, "properties": {}},
        ),
    ],
)
def test_a_schema_becomes_one_that_codex_keeps_whole(schema: JsonObject, kept: JsonObject) -> None:
    assert dynamic_tools([Tool(name="f", description="F", parameters=schema)], ToolNames(["f"])) == [
        {"type": "function", "name": "f", "description": "F", "inputSchema": kept}
    ]


NULL: JsonObject = {"type": "null"}


@pytest.mark.promise("tools.schemas")
@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        (
            {"$ref": "#/$defs/a", "$defs": {"a": NULL, "b": NULL}},
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": NULL},
                "description": 'JSON Schema: {"$defs": {"b": {"type": "null"}}}',
            },
        ),
        (
            {"anyOf": [{"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": {"anyOf": [{"$ref": "#/$defs/c"}]}, "c": NULL}},
            {"anyOf": [{"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": {"anyOf": [{"$ref": "#/$defs/c"}]}, "c": NULL}},
        ),
        (
            {"$ref": "#", "definitions": {"a": NULL}},
            {"$ref": "#", "description": 'JSON Schema: {"definitions": {"a": {"type": "null"}}}'},
        ),
        (
            {"$ref": "#/definitions/a/items", "definitions": {"a": {"type": "array", "items": NULL}}},
            {"$ref": "#/definitions/a/items", "definitions": {"a": {"type": "array", "items": NULL}}},
        ),
    ],
    ids=["one of two", "by another", "none", "a part"],
)
def test_definitions_to_which_nothing_refers_are_told_in_words(schema: JsonObject, kept: JsonObject) -> None:
    (tool,) = dynamic_tools([Tool(name="f", description="", parameters=schema)], ToolNames(["f"]))
    assert isinstance(tool, dict)
    assert tool["inputSchema"] == kept
