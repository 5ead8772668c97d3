"""Parameters in lines: the table of the system that users come from, corrected where it misled the model."""

import pytest

from turnbridge.codex.legacy.flat_text import summary_lines
from turnbridge.turn.items import JsonObject

KEPT: list[tuple[JsonObject, list[str]]] = [
    ({}, ["- (schema) {}"]),
    ({"type": "object"}, ["- (no parameters)"]),
    ({"type": "object", "properties": {}}, ["- (no parameters)"]),
    ({"properties": {}}, ["- (no parameters)"]),
    ({"type": "string"}, ['- (schema) {"type":"string"}']),
    (
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "description": " A desc "},
                "b": {"type": "integer", "description": "  "},
                "c": {"type": "boolean", "description": 5},
                "d": {"type": "number"},
                "e": {"type": "null"},
                "f": {},
            },
            "required": ["a", "f"],
        },
        [
            "- a (required, string): A desc",
            "- b (optional, integer)",
            "- c (optional, boolean)",
            "- d (optional, number)",
            "- e (optional, null)",
            "- f (required, unknown)",
        ],
    ),
    (
        {"properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 5}, "c": {"type": ["null", "integer"]}}},
        ["- a (optional, unknown)", "- b (optional, unknown)", "- c (optional, null|integer)"],
    ),
    (
        {"properties": {"a": {"properties": {"b": {}}}, "c": {"items": {"type": "integer"}}}},
        ["- a (optional, object)", "- c (optional, array)"],
    ),
    (
        {"anyOf": [{"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}]},
        ["- q (required, string)"],
    ),
]


@pytest.mark.parametrize(("parameters", "lines"), KEPT)
def test_the_lines_that_were_right_are_the_same(parameters: JsonObject, lines: list[str]) -> None:
    assert summary_lines(parameters) == lines


def line_of(schema: JsonObject, definitions: JsonObject | None = None) -> str:
    (line,) = summary_lines({"type": "object", "properties": {"p": schema}, "$defs": definitions or {}})
    return line


def test_an_alternative_that_is_not_null_is_described_because_null_says_nothing_about_the_parameter() -> None:
    assert line_of({"anyOf": [{"type": "null"}, {"type": "string"}]}) == "- p (optional, string)"


def test_a_description_beside_a_union_is_kept_because_it_is_about_the_parameter() -> None:
    schema: JsonObject = {"oneOf": [{"type": "object", "description": "inner"}], "description": "outer"}
    assert line_of(schema) == "- p (optional, object): outer"
    assert line_of({"oneOf": [{"type": "object", "description": "inner"}]}) == "- p (optional, object): inner"


def test_a_reference_is_followed_because_unknown_is_no_type() -> None:
    assert line_of({"$ref": "#/$defs/a~1b"}, {"a/b": {"type": "array"}}) == "- p (optional, array)"
    assert line_of({"$ref": "#/properties/p"}) == "- p (optional, unknown)"
    assert line_of({"$ref": "#elsewhere"}) == "- p (optional, unknown)"
    assert line_of({"$ref": "#/properties/p/no/where"}) == "- p (optional, unknown)"
    assert line_of({"$ref": "#/$defs/u/anyOf/1"}, {"u": {"anyOf": [{}, {"type": "null"}]}}) == "- p (optional, null)"


def test_parameters_of_all_parts_are_listed_because_all_of_them_apply() -> None:
    assert summary_lines(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "both": {"type": ["number", "string"]}},
            "required": ["a"],
            "allOf": [
                {"properties": {"b": {"type": "integer"}, "both": {"type": "integer"}}, "required": ["both", "a"]},
                {"$ref": "#/$defs/more"},
            ],
            "$defs": {"more": {"properties": {"c": {"type": "null"}}}},
        }
    ) == [
        "- a (required, string)",
        "- both (required, number|string)",
        "- b (optional, integer)",
        "- c (optional, null)",
    ]


def test_a_schema_that_leads_in_circles_comes_to_an_end() -> None:
    assert summary_lines({"$ref": "#"}) == ["- (schema) {}"]
    chain: JsonObject = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(5000)}
    assert summary_lines({"$ref": "#/$defs/d0", "$defs": chain}) == ["- (schema) {}"]


def test_a_schema_that_grows_tenfold_at_every_step_is_read_once() -> None:
    growing: JsonObject = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"} for _ in range(10)]} for number in range(50)
    }
    assert summary_lines({"$ref": "#/$defs/d0", "$defs": growing}) == ["- (schema) {}"]
