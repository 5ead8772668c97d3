"""A model's answer against what was asked for: the verdict, the place, and what cannot bring it down."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnbridge.engine.structured_output import Conformance, repair_instruction
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject

ANYTHING = Conformance.for_schema({})


def obj(**properties: Json) -> JsonObject:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def problem(schema: JsonObject, value: Json) -> str | None:
    return Conformance.for_schema(schema).problem(json.dumps(value))


def json_values() -> st.SearchStrategy[Json]:
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    scalars = st.none() | st.booleans() | numbers | texts
    return nested(scalars, names=texts)


def nested(scalars: st.SearchStrategy[Json], *, names: st.SearchStrategy[str]) -> st.SearchStrategy[Json]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=8,
    )


@settings(deadline=None)
@given(json_values())
def test_any_json_is_what_an_empty_schema_asks_for(value: Json) -> None:
    assert ANYTHING.problem(json.dumps(value)) is None
    assert ANYTHING.problem(json.dumps(value, ensure_ascii=False, indent=2)) is None


@settings(deadline=None)
@given(st.text())
def test_no_text_can_raise(text: str) -> None:
    for conformance in (ANYTHING, Conformance.for_schema({"type": "object"})):
        found = conformance.problem(text)
        assert found is None or found.endswith(".")


def some_schemas() -> st.SearchStrategy[JsonObject]:
    """Schemas with all kinds of keywords, strict or not."""
    leaves: st.SearchStrategy[JsonObject] = st.sampled_from(
        [
            {"type": "string"},
            {"type": ["integer", "null"], "maximum": 2},
            {"const": 1},
            {"enum": ["a", None]},
            {"$ref": "#"},
            {"$ref": "#/$defs/d"},
            {"$anchor": "here", "type": "array"},
            {"format": "date"},
            {"not": {"type": "null"}},
            {},
        ]
    )
    names = st.sampled_from(["a", "b~/ %"])

    def combine(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
        lists = st.lists(inner, min_size=1, max_size=3)
        listing = st.sampled_from(["anyOf", "oneOf", "allOf", "prefixItems"])
        applying = st.sampled_from(["items", "additionalProperties", "contains", "if"])
        return st.one_of(
            st.dictionaries(names, inner, min_size=1).map(lambda properties: obj(**properties)),
            st.dictionaries(names, inner).map(lambda properties: {"properties": dict(properties)}),
            st.dictionaries(listing, lists, min_size=1, max_size=1).map(lambda schema: {**schema}),
            st.dictionaries(applying, inner, min_size=1, max_size=2).map(lambda schema: {**schema}),
        )

    roots = st.recursive(leaves, combine, max_leaves=6)
    return st.tuples(roots, roots).map(lambda two: {**two[0], "$defs": {"d": two[1]}})


def some_values() -> st.SearchStrategy[Json]:
    scalars: st.SearchStrategy[Json] = st.sampled_from([None, True, 0, 1, 3, 1.5, "a", "x"])
    names = st.sampled_from(["a", "b~/ %", "c"])
    return nested(scalars, names=names)


@pytest.mark.promise("structured.checked")
@settings(deadline=None)
@given(some_schemas(), some_values())
def test_the_verdict_is_that_of_the_json_schema(schema: JsonObject, value: Json) -> None:
    expected = jsonschema_rs.Draft202012Validator(schema, offline=True).is_valid(value)
    found = problem(schema, value)
    assert (found is None) == expected
    assert found is None or found.startswith("The JSON does not match the schema")


@settings(deadline=None)
@given(st.lists(st.sampled_from(["member", "item", "nullable", "either", "more"]), max_size=8))
def test_the_one_wrong_value_is_named_with_its_place(kinds: list[str]) -> None:
    schema: JsonObject = {"type": "integer"}
    value: Json = "wrong"
    pointer = ""
    for kind in kinds:
        match kind:
            case "member":
                properties: JsonObject = {"other": {"type": "null"}, "a/b~c %41": schema}
                schema = obj(**properties)
                value, pointer = {"other": None, "a/b~c %41": value}, f"/a~1b~0c %41{pointer}"
            case "item":
                schema = {"type": "array", "items": schema}
                value, pointer = [value], f"/0{pointer}"
            case "nullable":
                schema = {"anyOf": [{"type": "null"}, obj(here=schema)]}
                value, pointer = {"here": value}, f"/here{pointer}"
            case "either":
                this = obj(kind={"type": "string", "const": "this"}, here=schema)
                that = obj(kind={"type": "string", "const": "that"}, here={"type": "null"})
                schema = {"oneOf": [that, this]}
                value, pointer = {"kind": "this", "here": value}, f"/here{pointer}"
            case _:
                schema = {"additionalProperties": {"allOf": [{}, schema]}}
                value, pointer = {"more": value}, f"/more{pointer}"
    referring: JsonObject = {**obj(root={"$ref": "#/$defs/r%20~1s"}), "$defs": {"r /s": schema}}
    assert problem(referring, {"root": value}) == (
        f'The JSON does not match the schema: at "/root{pointer}", the value is not of type "integer".'
    )


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        (obj(a={"type": "null"}), {}, 'at the top level, "a" is a required property'),
        (obj(), {"b": 1}, "at the top level, Additional properties are not allowed ('b' was unexpected)"),
        (obj(a={"enum": ["x", "y"]}), {"a": "z"}, 'at "/a", the value is not one of "x" or "y"'),
        (obj(a={"type": "string", "pattern": "^x"}), {"a": "z"}, 'at "/a", the value does not match "^x"'),
        ({"items": {"maximum": 2}}, [1, 3], 'at "/1", the value is greater than the maximum of 2'),
        ({"properties": {"a": False}}, {"a": 1}, 'at "/a", no value is allowed'),
        ({"additionalProperties": {"type": "null"}}, {"a": 1}, 'at "/a", the value is not of type "null"'),
        (
            {"items": {"anyOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}},
            ["a", "b", "c"],
            'at "/2", the value matches none of 2 alternatives',
        ),
        (
            {"items": {"type": "string"}},
            [1, "s", 2, 3],
            "; ".join(f'at "/{index}", the value is not of type "string"' for index in (0, 2, 3)),
        ),
        (
            {"items": {"type": "null"}},
            [1, 2, 3, 4],
            "; ".join(f'at "/{index}", the value is not of type "null"' for index in range(3)) + "; and more",
        ),
    ],
)
def test_the_problem_says_what_is_wrong_and_where(schema: JsonObject, value: Json, words: str) -> None:
    assert problem(schema, value) == f"The JSON does not match the schema: {words}."


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"not": {"type": "null"}}, None),
        ({"prefixItems": [{"type": "null"}], "items": {"type": "string"}}, [None, 1]),
        (
            {"patternProperties": {"^a": {"type": "null"}}, "additionalProperties": {"type": "string"}},
            {"a": None, "b": 1},
        ),
    ],
)
def test_where_the_search_does_not_look_no_place_is_made_up(schema: JsonObject, value: Json) -> None:
    assert problem(schema, value) == "The JSON does not match the schema."


def test_the_alternative_that_was_meant_is_known_by_its_fixed_properties() -> None:
    schema: JsonObject = {
        "items": {"anyOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]},
        "$defs": {
            "cat": obj(kind={"type": "string", "enum": ["cat"]}, lives={"type": "integer"}),
            "dog": obj(kind={"type": "string", "enum": ["dog"]}, tricks={"type": "integer"}),
        },
    }
    assert problem(schema, [{"kind": "cat", "lives": 9}, {"kind": "dog", "tricks": "many"}]) == (
        'The JSON does not match the schema: at "/1/tricks", the value is not of type "integer".'
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value at line 1, column 1"),
        ("```json\n{}\n```", "Expecting value at line 1, column 1"),
        ('{"a": 1} done', "Extra data at line 1, column 10"),
        ('{"a": "x\ny"}', "Invalid control character at line 1, column 9"),
        ('{"a":\n 1', "Expecting ',' delimiter at line 2, column 3"),
        ("\ufeff{}", "Unexpected UTF-8 BOM (decode using utf-8-sig) at line 1, column 1"),
        ("[NaN]", "NaN is not a JSON value"),
        ("[-Infinity]", "-Infinity is not a JSON value"),
        ("[1e400]", "the number 1e400 is too large"),
        (f"[{'9' * 5000}]", "a number has more than 4000 digits"),
        ('[{"a": 1, "b": 2, "a": 3}]', 'the key "a" appears twice in one object'),
        ('["\\ud800"]', "a string contains half of a surrogate pair"),
        ('{"\\udfff": 1}', "a string contains half of a surrogate pair"),
        ('["\ud800"]', "a string contains half of a surrogate pair"),
        ("[" * 201 + "]" * 201, "it is nested more than 200 levels deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "it is nested more than 200 levels deep"),
    ],
)
def test_what_is_no_json_is_told_as_such(text: str, words: str) -> None:
    assert ANYTHING.problem(text) == f"The answer is not valid JSON: {words}."


@pytest.mark.parametrize(("length", "shown"), [(298, '"' + "k" * 298 + '"'), (299, '"' + "k" * 299 + "...")])
def test_what_a_problem_quotes_is_cut_at_300_characters(length: int, shown: str) -> None:
    key = "k" * length
    problem = ANYTHING.problem(f'{{"{key}": 1, "{key}": 2}}')
    assert problem == f"The answer is not valid JSON: the key {shown} appears twice in one object."


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "minimum": 10**399}, "1" + "0" * 400),
        ({"type": "integer"}, "9" * 4000),
        ({"type": "integer"}, "1.0"),
        ({"type": "string"}, '"\\ud83d\\ude00"'),
        ({"items": {"$ref": "#"}}, "[" * 200 + "]" * 200),
        ({"$ref": "#"}, "1"),
        ({"$id": "https://example.com/s", "$defs": {"n": {"type": "null"}}, "$ref": "s#/$defs/n"}, "null"),
        ({"type": "string", "format": "date"}, '"tomorrow"'),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "null"}]}, "[null, 1]"),
    ],
    ids=[
        "huge integer",
        "4000 digits",
        "integer as float",
        "surrogate pair",
        "deep",
        "circle",
        "named",
        "format",
        "older draft",
    ],
)
def test_unusual_json_that_conforms_is_taken(schema: JsonObject, text: str) -> None:
    assert Conformance.for_schema(schema).problem(text) is None


def test_json_mode_asks_for_any_object() -> None:
    conformance = Conformance.for_schema({"type": "object"})
    assert conformance.problem('{"a": [1, null]}') is None
    assert conformance.problem("[{}]") == (
        'The JSON does not match the schema: at the top level, the value is not of type "object".'
    )


def test_a_fault_deep_in_a_recursive_union_is_found_without_trying_all_ways_to_it() -> None:
    node: JsonObject = {"$ref": "#/$defs/node"}
    kinds: list[Json] = [obj(kind={"type": "string", "const": kind}, left=node, right=node) for kind in "abc"]
    schema: JsonObject = {**obj(node=node), "$defs": {"node": {"anyOf": [*kinds, {"type": "null"}]}}}
    value: Json = {"kind": "c", "left": "wrong", "right": None}
    for _ in range(60):
        value = {"kind": "c", "left": value, "right": None}
    where = "/node" + "/left" * 61
    assert problem(schema, {"node": value}) == (
        f'The JSON does not match the schema: at "{where}", the value matches none of 4 alternatives.'
    )


@pytest.mark.parametrize("name", ["relative", "https://example.com/s", "urn:example:s"])
def test_a_schema_with_a_name_of_its_own_is_searched_too(name: str) -> None:
    schema: JsonObject = {"$id": name, "anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}], "$defs": {"n": obj()}}
    assert problem(schema, {"a": 1}) == (
        "The JSON does not match the schema: "
        "at the top level, Additional properties are not allowed ('a' was unexpected)."
    )


def test_a_schema_that_leads_in_circles_is_searched_once() -> None:
    circles: list[Json] = [{"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]
    assert problem({"allOf": circles}, 1) == (
        'The JSON does not match the schema: at the top level, the value is not of type "string".'
    )


def test_the_search_ends_at_a_large_answer_without_a_place() -> None:
    rows: list[Json] = [0] * 50_000
    assert problem({"items": {"type": "integer"}}, [*rows, "wrong"]) == "The JSON does not match the schema."


def test_a_problem_is_cut_when_the_schema_would_make_it_huge() -> None:
    kept = '"' + "c" * 299
    assert problem({"const": "c" * 10_000}, "x") == (
        f"The JSON does not match the schema: at the top level, {kept}...."
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "#/$defs/none"}, "Pointer '/$defs/none' does not exist"),
        ({"properties": []}, '[] is not of type "object"'),
        ({"pattern": "("}, '"(" is not a "regex"'),
    ],
)
def test_what_is_no_schema_cannot_be_conformed_to(schema: JsonObject, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Conformance.for_schema(schema)
    error = caught.value
    assert (error.message, error.error_code) == (f"Invalid schema: {words}.", "invalid_json_schema")


def test_text_in_a_schema_must_be_unicode() -> None:
    with pytest.raises(InvalidRequest, match="surrogates not allowed"):
        Conformance.for_schema({"title": "\ud800"})


@pytest.mark.promise("safety.schemas")
def test_nothing_that_a_schema_refers_to_is_read(tmp_path: Path) -> None:
    elsewhere = tmp_path / "schema.json"
    elsewhere.write_text(json.dumps({"type": "string"}))
    with pytest.raises(InvalidRequest, match="Retrieval is disabled"):
        Conformance.for_schema({"$ref": elsewhere.as_uri()})
    unknown_dialect: JsonObject = {"$schema": (tmp_path / "none.json").as_uri(), "type": "string"}
    assert problem(unknown_dialect, "s") is None
    assert problem(unknown_dialect, 1) == (
        'The JSON does not match the schema: at the top level, the value is not of type "string".'
    )


def test_the_repair_tells_the_model_the_problem_and_asks_for_json_only() -> None:
    assert repair_instruction("The JSON does not match the schema.") == (
        "Your last answer cannot be used. The JSON does not match the schema. "
        "Answer again with the corrected JSON only: no explanation, no code fence."
    )


def test_members_that_a_pattern_allows_are_no_problem_beside_one_that_is() -> None:
    asked = Conformance.for_schema(
        {
            "properties": {"a": {"type": "integer"}},
            "patternProperties": {"^x": {}},
            "additionalProperties": False,
        }
    )
    problem = asked.problem('{"a": "s", "x1": 1}')
    assert problem is not None
    assert '"/a"' in problem
    assert "top level" not in problem
