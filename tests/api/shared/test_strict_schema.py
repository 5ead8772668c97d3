"""Structured-output schemas: what OpenAI takes passes, what it refuses is refused in its words."""

import json
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnbridge.api.shared import schema_budget
from turnbridge.api.shared.parameters import check_schema_name
from turnbridge.api.shared.schema_budget import SchemaChecker
from turnbridge.api.shared.strict_schema import NOT_PERMITTED, schema_error, strict_schema_error
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject

Step: TypeAlias = tuple[str, ...]

REQUIRED = "'required' is required to be supplied and to be an array including every key in properties."


def obj(**properties: Json) -> JsonObject:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def check(schema: Json, *, strict: bool) -> None:
    schemas = SchemaChecker()
    schemas.check(schema, strict=strict, param="text.format.schema", name="x", use="response_format")
    for place in schemas.uncompiled:
        if (why := schema_error(place.schema)) is not None:
            raise place.refused(why)


def refusal(schema: Json) -> str:
    """Return the words of the refusal, without what stands before every one of them."""
    with pytest.raises(InvalidRequest) as caught:
        check(schema, strict=True)
    start = "Invalid schema for response_format 'x': "
    assert caught.value.message.startswith(start)
    return caught.value.message.removeprefix(start)


def leaves() -> st.SearchStrategy[JsonObject]:
    """Schemas of the documented subset that have no schema inside."""
    return st.sampled_from(
        [
            {"type": "string"},
            {"type": ["string", "null"], "description": "optional"},
            {"type": "string", "enum": ["a", "b"], "title": "E", "default": "a", "examples": ["b"]},
            {"type": "string", "const": "a"},
            {"type": "string", "pattern": "^@[a-z]+$", "minLength": 1, "maxLength": 9},
            {"type": "string", "format": "date-time"},
            {"type": "number", "minimum": 0, "exclusiveMaximum": 9, "multipleOf": 0.5},
            {"type": "integer", "enum": [1, 2.0], "x-unknown": True},
            {"type": "boolean"},
            {"type": "null"},
            {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
            {"$ref": "#"},
            {"$ref": "#/$defs/tree"},
            {"$ref": "#/$defs/a~1b~0c%20d"},
        ]
    )


def schemas(depth: int = 3) -> st.SearchStrategy[JsonObject]:
    """Schemas of the documented subset."""
    if depth == 0:
        return leaves()
    inner = schemas(depth - 1)
    arrays = inner.map(lambda items: {"type": "array", "items": items, "minItems": 0, "maxItems": 5})
    unions = st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": list(branches)})
    return st.one_of(leaves(), roots(depth), arrays, unions)


def roots(depth: int = 3) -> st.SearchStrategy[JsonObject]:
    names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    return st.dictionaries(names, schemas(depth - 1), max_size=3).map(lambda properties: obj(**properties))


def with_definitions(root: JsonObject) -> JsonObject:
    tree = obj(children={"type": "array", "items": {"$ref": "#/$defs/tree"}})
    return {**root, "$defs": {"tree": tree, "a/b~c d": {"type": "string"}}}


@pytest.mark.promise("structured.refused-schemas")
@settings(deadline=None)
@given(roots())
def test_any_schema_of_the_documented_subset_is_taken(root: JsonObject) -> None:
    schema = with_definitions(root)
    check(schema, strict=True)
    check(schema, strict=False)
    assert strict_schema_error(schema) is None


NOT_CLOSED = "'additionalProperties' is required to be supplied and to be false."
REFERENCES = ("#/$defs/none", "#/required/0", "#tree", "https://example.com/s.json", "")

BROKEN: list[tuple[Json, str]] = [
    ({"type": "object", "properties": {}}, NOT_CLOSED),
    ({"type": "object", "properties": {}, "additionalProperties": True}, NOT_CLOSED),
    ({"type": ["object", "null"], "properties": {}, "additionalProperties": {}}, NOT_CLOSED),
    ({"type": "object", "additionalProperties": False}, "object schema missing properties."),
    ({**obj(a={"type": "null"}), "required": []}, f"{REQUIRED} Missing 'a'."),
    ({**obj(a={"type": "null"}), "required": None}, REQUIRED),
    ({**obj(a={"type": "null"}), "required": ["a", "b"]}, f"{REQUIRED} Extra required key 'b' supplied."),
    ({**obj(), "required": [{}]}, f"{REQUIRED} Extra required key 'an object' supplied."),
    ({}, "schema must have a 'type' key."),
    (True, "schema must have a 'type' key."),
    ({"const": "a"}, "schema must have a 'type' key."),
    ({"enum": ["a"]}, "schema must have a 'type' key."),
    ({"type": "array"}, "array schema missing items."),
    ({"type": "array", "items": True}, "array schema items is not an object."),
    ({"type": "string", "format": "uri"}, "'uri' is not a valid format."),
    ({"type": "string", "enum": ["a", 1]}, "enum value 1 does not validate against {'type': 'string'}."),
    (
        {"type": ["integer", "null"], "const": True},
        "const value True does not validate against {'type': ['integer', 'null']}.",
    ),
    ({"$ref": "#", "title": "T", "description": "d"}, "$ref cannot have keywords {'description', 'title'}."),
]
BROKEN += [
    ({"$ref": to}, f"$ref '{to}' points to no schema in this one. Use '#' or '#/$defs/<name>'.") for to in REFERENCES
]
BROKEN += [
    ({"type": "array", "items": {"type": "null"}, keyword: {}}, f"'{keyword}' is not permitted.")
    for keyword in sorted(NOT_PERMITTED)
]


KINDS = st.lists(st.sampled_from(["properties", "items", "anyOf", "$defs"]), max_size=3)
OTHERS = st.lists(schemas(1), max_size=2)


@st.composite
def wrapped(draw: st.DrawFn, broken: Json) -> tuple[JsonObject, Step]:
    """Return a schema that is right but for the broken one inside, and where that is."""
    schema = broken
    context: Step = ()
    for kind in draw(KINDS):
        others = draw(OTHERS)
        if kind == "properties":
            before: JsonObject = {f"before{index}": other for index, other in enumerate(others)}
            schema = obj(**before, here=schema, after={"type": "null"})
            context = ("properties", "here", *context)
        elif kind == "$defs":
            schema, context = {"type": "null", "$defs": {"here": schema}}, ("$defs", "here", *context)
        elif kind == "anyOf":
            schema, context = {"anyOf": [*others, schema]}, ("anyOf", str(len(others)), *context)
        elif isinstance(schema, dict):
            schema, context = {"type": "array", "items": schema}, ("items", *context)
    return with_definitions(obj(here=schema)), ("properties", "here", *context)


@pytest.mark.promise("structured.refused-schemas")
@pytest.mark.parametrize(("broken", "words"), BROKEN)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_one_broken_rule_is_refused_with_its_place(data: st.DataObject, broken: Json, words: str) -> None:
    schema, context = data.draw(wrapped(broken))
    assert refusal(schema) == f"In context={context}, {words}"


NO_UNION_AT_THE_TOP = (
    "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
)


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ([], "an array is not of type 'object'."),
        (True, "True is not of type 'object'."),
        ({}, "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."),
        ({"type": "array"}, "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"array\"'."),
        (
            {**obj(), "type": ["object", "null"]},
            "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"an array\"'.",
        ),
        ({"$ref": "#/$defs/a"}, "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."),
        *(
            ({**obj(), keyword: []}, f"{NO_UNION_AT_THE_TOP} Found '{keyword}'.")
            for keyword in ("oneOf", "anyOf", "allOf", "enum", "not")
        ),
        ({"type": "object"}, f"In context=(), {NOT_CLOSED}"),
        ({**obj(), "if": {}}, "In context=(), 'if' is not permitted."),
    ],
)
def test_the_root_must_be_a_plain_object(root: Json, words: str) -> None:
    assert refusal(root) == words


def chain(levels: int) -> JsonObject:
    """A schema with this many levels of nesting, by properties and items in turn."""
    schema: JsonObject = {"type": "string"}
    for level in reversed(range(levels)):
        schema = {"type": "array", "items": schema} if level % 2 else obj(a={"anyOf": [schema]})
    return schema


def enum(count: int, chars: int) -> JsonObject:
    return {"type": "string", "enum": [f"{index:0{chars}}" for index in range(count)]}


def many(count: int) -> JsonObject:
    return {f"p{index}": {"type": "null"} for index in range(count)}


LONG: JsonObject = {"p" * 60_000: {"type": "string", "const": "c" * 60_000}}
ADVICE = "Consider reducing the number of enums, or use 'strict: false' to opt out of structured outputs."
TOO_MANY_VALUES = (
    "Expected at most 1000 enum values in total within a single schema when using structured outputs, "
    f"but received 1001. {ADVICE}"
)
TOO_LONG_VALUES = (
    "Expected at most 15000 total characters across enum values when there are more than 250 enum values, "
    f"but received 15300. {ADVICE}"
)
TOO_LONG_NAMES = (
    "120001 characters in property names, definition names, enum values and const values exceeds limit of 120000."
)


@pytest.mark.parametrize(
    ("fits", "too_much", "words"),
    [
        (chain(10), chain(11), "11 levels of nesting exceeds limit of 10."),
        (obj(**many(5000)), obj(a=obj(**many(5000))), "5001 parameters exceeds limit of 5000."),
        (obj(a=enum(500, 3), b=enum(500, 3)), obj(a=enum(500, 3), b=enum(501, 3)), TOO_MANY_VALUES),
        (obj(a=enum(250, 61), b=enum(300, 50)), obj(a=enum(300, 51)), TOO_LONG_VALUES),
        (obj(**LONG), {**obj(**LONG), "$defs": {"d": {"type": "null"}}}, TOO_LONG_NAMES),
    ],
    ids=["levels", "properties", "enum values", "enum characters", "characters"],
)
def test_a_schema_may_reach_a_limit_but_not_exceed_it(fits: JsonObject, too_much: Json, words: str) -> None:
    assert strict_schema_error(fits) is None
    assert refusal(too_much) == words


def test_of_several_broken_rules_the_first_is_told() -> None:
    assert refusal(obj(a={"type": "array", "items": {}}, b={})) == (
        "In context=('properties', 'a', 'items'), schema must have a 'type' key."
    )


def test_a_schema_of_as_many_values_as_are_looked_at_is_taken() -> None:
    check({"enum": [0] * 49_998}, strict=False)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"minimum": "1"}, 'In context=(\'minimum\',), "1" is not of type "number".'),
        ({"properties": []}, "In context=('properties',), [] is not of type \"object\"."),
        ({"$ref": "#/$defs/none"}, "In context=(), Pointer '/$defs/none' does not exist."),
        ("object", "object is not of type 'object'."),
        ({"enum": [0] * 49_999}, "the schemas of the request have more than 50000 JSON values. Make them smaller."),
    ],
    ids=["minimum", "properties", "reference", "no object", "too large"],
)
def test_what_is_no_json_schema_is_refused_even_if_not_strict(schema: Json, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(schema, strict=False)
    error = caught.value
    assert (error.message, error.error_code, error.param) == (
        f"Invalid schema for response_format 'x': {words}",
        "invalid_json_schema",
        "text.format.schema",
    )


def test_a_strict_schema_must_be_a_json_schema_too() -> None:
    assert refusal(obj(a={"type": "string", "pattern": "("})) == (
        "In context=('properties', 'a', 'pattern'), \"(\" is not a \"regex\"."
    )


def nested(levels: int) -> JsonObject:
    schema: JsonObject = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def test_a_schema_nested_beyond_reason_is_refused_without_a_crash() -> None:
    check(nested(250), strict=False)
    for levels in (251, 40_000):
        assert refusal(nested(levels)) == ("the schema has more than 250 levels of JSON. Use '$ref' and '$defs'.")


def test_text_in_a_schema_must_be_unicode() -> None:
    assert refusal({**obj(), "title": "\ud800"}).endswith("surrogates not allowed.")
    assert refusal({**obj(), "$defs": {"\ud800": {"type": "null"}}}).endswith("surrogates not allowed.")


def test_a_message_is_cut_when_the_schema_would_make_it_huge() -> None:
    assert len(refusal(obj(**{"p" * 100_000: {}}))) == schema_budget.MAX_DETAIL_CHARS + len("...")


@pytest.mark.promise("safety.schemas")
def test_nothing_that_a_schema_refers_to_is_read(tmp_path: Path) -> None:
    elsewhere = tmp_path / "schema.json"
    elsewhere.write_text(json.dumps({"type": "string"}))
    with pytest.raises(InvalidRequest, match="Retrieval is disabled"):
        check({"$ref": elsewhere.as_uri()}, strict=False)
    check({"$schema": (tmp_path / "none.json").as_uri()}, strict=False)


@pytest.mark.promise("tools.strict.schema")
def test_the_parameters_of_a_function_are_refused_as_such() -> None:
    with pytest.raises(InvalidRequest) as caught:
        SchemaChecker().check(
            {"type": "object"}, strict=True, param="tools[0].parameters", name="look_up", use="function"
        )
    error = caught.value
    assert (error.message, error.error_code, error.param) == (
        f"Invalid schema for function 'look_up': In context=(), {NOT_CLOSED}",
        "invalid_function_parameters",
        "tools[0].parameters",
    )


@settings(deadline=None)
@given(st.from_regex("[a-zA-Z0-9_-]{1,64}", fullmatch=True))
def test_a_name_of_letters_digits_dashes_and_underscores_is_taken(name: str) -> None:
    assert check_schema_name(name, param="text.format.name") == name


EMPTY_NAME = (
    "Invalid 'text.format.name': empty string. "
    "Expected a string with minimum length 1, but got an empty string instead."
)
LONG_NAME = (
    "Invalid 'text.format.name': string too long. "
    "Expected a string with maximum length 64, but got a string with length 65 instead."
)
ODD_NAME = (
    "Invalid 'text.format.name': string does not match pattern. "
    "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
)


@pytest.mark.parametrize(
    ("name", "message", "code"),
    [
        (None, "Missing required parameter: 'text.format.name'.", "missing_required_parameter"),
        ("", EMPTY_NAME, "empty_string"),
        ("a" * 65, LONG_NAME, "string_above_max_length"),
        ("my schema", ODD_NAME, "invalid_value"),
        ("name\n", ODD_NAME, "invalid_value"),
        ("é", ODD_NAME, "invalid_value"),
    ],
)
def test_any_other_name_is_refused(name: str | None, message: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_schema_name(name, param="text.format.name")
    error = caught.value
    assert (error.message, error.error_code, error.param) == (message, code, "text.format.name")
