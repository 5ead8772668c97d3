"""Arguments that are made up: the table of the system that users come from, and conformance to any schema."""

from typing import TypeAlias

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.codex.legacy.schema_example import FORMATS, example_arguments
from turnbridge.turn.items import Json, JsonObject

Schemas: TypeAlias = st.SearchStrategy[JsonObject]


def of(**properties: Json) -> JsonObject:
    return {"type": "object", "properties": {**properties}}


def needing(**properties: Json) -> JsonObject:
    return of(**properties) | {"required": [*properties], "additionalProperties": False}


def conforms(arguments: Json, schema: JsonObject) -> bool:
    return jsonschema_rs.validator_cls_for(schema)(schema, offline=True, validate_formats=True).is_valid(arguments)


KEPT: list[tuple[JsonObject, Json]] = [
    ({"type": "object"}, {}),
    (of(), {}),
    (
        of(
            a={"type": "string"},
            b={"type": "integer"},
            c={"type": "boolean"},
            d={"type": "number"},
            e={"type": "null"},
            f={},
        ),
        {"a": "example", "b": 0, "c": False, "d": 0, "e": None, "f": "example"},
    ),
    (
        of(a={"enum": ["x", "y"]}, b={"const": 5}, c={"default": None}, d={"examples": ["ex"]}, e={"example": False}),
        {"a": "x", "b": 5, "c": None, "d": "ex", "e": False},
    ),
    (of(f={"default": "dd", "example": "ee"}, g={"example": "ee", "examples": ["ff"]}), {"f": "dd", "g": "ee"}),
    (of(a={"type": ["null", "integer"]}, b={"type": ["null"]}), {"a": 0, "b": None}),
    (of(d={"oneOf": [of(z={"type": "number"})], "description": "d"}), {"d": {"z": 0}}),
    (of(l={"type": "array", "items": {"type": "integer"}}, m={"type": "array"}), {"l": [0], "m": ["example"]}),
    ({"anyOf": [of(q={"type": "string"}) | {"required": ["q"]}]}, {"q": "example"}),
    (of(a={"type": "integer"}) | {"default": {"a": 1}}, {"a": 1}),
]


@pytest.mark.parametrize(("parameters", "arguments"), KEPT)
def test_the_examples_that_were_right_are_the_same(parameters: JsonObject, arguments: Json) -> None:
    assert example_arguments(parameters) == arguments
    assert conforms(arguments, parameters)


CORRECTED: dict[str, tuple[JsonObject, Json]] = {
    "arguments are an object also for a schema that says nothing": ({}, {}),
    "a default that the schema itself rules out is not shown": (
        of(
            f={"default": "dd", "example": "ee", "const": "cc", "enum": ["cc", "z"]}, g={"type": "string", "default": 0}
        ),
        {"f": "cc", "g": "example"},
    ),
    "a parameter that nothing fits is left out": (of(f={"const": "cc", "enum": ["z"]}, g=False), {}),
    "an alternative that is not null is shown": (
        of(c={"anyOf": [{"type": "null"}, {"type": "string"}]}),
        {"c": "example"},
    ),
    "what is deep conforms too": (of(a=of(b=of(c=of(d={"type": "string"})))), {"a": {"b": {"c": {}}}}),
    "what is deep is shown if it is required": (
        of(a=of(b=of(c=needing(d={"type": "string"})))),
        {"a": {"b": {"c": {"d": "example"}}}},
    ),
    "a list of lists has no strings in it": (
        of(a={"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}}),
        {"a": [[[]]]},
    ),
    "items make a list also without a type": (of(a={"items": {"type": "integer"}}), {"a": [0]}),
    "references are followed": (
        of(a={"$ref": "#/$defs/color"}) | {"$defs": {"color": {"enum": ["red"]}}},
        {"a": "red"},
    ),
    "values of the chosen alternative count": (
        of(a={"anyOf": [{"type": "null"}, {"enum": ["x"]}]}, b={"oneOf": [{"type": "integer", "default": 3}]}),
        {"a": "x", "b": 3},
    ),
    "no more members than are allowed": (of(a={}, b={}) | {"maxProperties": 1, "required": ["b"]}, {"b": "example"}),
    "no two alternatives at once": (
        of(a={}, b={}) | {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"a": "example"},
    ),
    "the alternative that can be met": (
        of(a={"anyOf": [{"type": "string", "pattern": "^zebra-[0-9]{7}$"}, {"type": "integer"}]}),
        {"a": 0},
    ),
    "the type that can be met": (needing(a={"type": ["array", "null"], "items": False, "minItems": 1}), {"a": None}),
    "at least as many members as are asked for": (
        of(a={"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2}),
        {"a": {"example1": 0, "example2": 0}},
    ),
    "members that are required but not described": ({"type": "object", "required": ["x"]}, {"x": "example"}),
    "items of a tuple": (
        of(a={"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 2}),
        {"a": [0, "example"]},
    ),
    "a tuple of an older draft": (
        of(a={"type": "array", "items": [{"type": "integer"}, {"type": "boolean"}], "additionalItems": False})
        | {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"a": [0, False]},
    ),
    "a list that nothing can be in": (of(a={"type": "array", "items": False}, b={}), {"a": [], "b": "example"}),
    "a recursive schema ends with the alternative that has nothing inside": (
        needing(a={"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "integer"}]}, "minItems": 1}),
        {"a": [{"a": [0]}]},
    ),
    "a recursive schema": (
        {**needing(name={"type": "string"}, next={"anyOf": [{"$ref": "#"}, {"type": "null"}]})},
        {
            "name": "example",
            "next": {
                "name": "example",
                "next": {"name": "example", "next": {"name": "example", "next": None}},
            },
        },
    ),
}


@pytest.mark.parametrize(("parameters", "arguments"), CORRECTED.values(), ids=CORRECTED)
def test_the_examples_that_broke_their_schema_conform(parameters: JsonObject, arguments: Json) -> None:
    assert example_arguments(parameters) == arguments
    assert conforms(arguments, parameters)


BOUNDED: list[tuple[JsonObject, Json]] = [
    ({"type": "integer", "minimum": 3}, 3),
    ({"type": "integer", "exclusiveMinimum": 3}, 4),
    ({"type": "integer", "maximum": -3}, -3),
    ({"type": "integer", "exclusiveMaximum": -3}, -4),
    ({"type": "integer", "minimum": 0.5}, 1),
    ({"type": "integer", "minimum": 10, "multipleOf": 7}, 14),
    ({"type": "number", "minimum": 0.25, "multipleOf": 0.1}, 0.3),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
    ({"type": "string", "minLength": 10}, "exampleexa"),
    ({"type": "string", "maxLength": 3}, "exa"),
    ({"type": "string", "maxLength": 0}, ""),
    ({"type": "string", "pattern": "^[A-Z]{3}$"}, "ABC"),
    ({"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}, "2025-01-31"),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True}, [0, 1, 2]),
    ({"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True}, ["example", "example2"]),
    ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "uniqueItems": True}, ["a", "b"]),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "uniqueItems": True}, [False, True]),
    ({"type": "array", "maxItems": 0}, []),
]


@pytest.mark.parametrize(("schema", "value"), BOUNDED)
def test_bounds_are_kept(schema: JsonObject, value: Json) -> None:
    assert example_arguments(needing(p=schema)) == {"p": value}


@pytest.mark.parametrize("name", sorted({*FORMATS, "uri-reference", "regex", "uri-template", "password"}))
def test_a_format_is_kept(name: str) -> None:
    schema = needing(p={"type": "string", "format": name})
    arguments = example_arguments(schema)
    assert arguments is not None
    assert conforms(arguments, schema)


NOT_FOUND: list[JsonObject] = [
    {"type": "string"},
    needing(a=False),
    needing(a={"type": "string", "pattern": "^zebra-[0-9]{7}$"}),
    needing(a={"type": "string", "minLength": 10**9}),
    needing(a={"type": "integer", "minimum": 2**60}),
    needing(a={"type": "array", "minItems": 10**9}),
    needing(a={"$ref": "#"}),
    {"type": "object", "minProperties": 10**9},
    {"allOf": [needing(a={"type": "string"}), needing(a={"type": "integer"})]},
    {"not": {}},
]


@pytest.mark.parametrize("parameters", NOT_FOUND)
def test_no_example_is_better_than_one_that_breaks_the_schema(parameters: JsonObject) -> None:
    assert example_arguments(parameters) is None


def test_a_schema_that_grows_tenfold_at_every_level_is_given_up() -> None:
    last = 5
    definitions: JsonObject = {}
    for number in range(last):
        members: JsonObject = {f"p{member}": {"$ref": f"#/$defs/d{number + 1}"} for member in range(10)}
        definitions[f"d{number}"] = needing(**members)
    schema: JsonObject = {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{last}": {}}}
    assert example_arguments(schema) is None


def leaves() -> Schemas:
    """Schemas of single values, as people write them."""
    return st.sampled_from(
        [
            {},
            {"type": "string"},
            {"type": "string", "description": "text", "default": "given"},
            {"type": "string", "default": None},
            {"type": "string", "minLength": 3, "maxLength": 9},
            {"type": "string", "format": "date-time"},
            {"type": "string", "pattern": "^@[a-z]+$"},
            {"type": ["string", "null"]},
            {"type": "integer", "minimum": 1, "maximum": 100},
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "number", "multipleOf": 0.25, "maximum": -1},
            {"type": "boolean"},
            {"type": "null"},
            {"enum": ["a", 1, None]},
            {"type": "integer", "enum": ["a", 2]},
            {"const": {"a": []}},
            {"$ref": "#/$defs/leaf"},
            {"$ref": "#/$defs/tree"},
        ]
    )


NAMES = st.sampled_from(["a", "b", "c d", "é", '"<>'])


def ordinary(depth: int = 3) -> Schemas:
    """Schemas that some value conforms to."""
    if depth == 0:
        return leaves()
    inner = ordinary(depth - 1)
    least = st.integers(0, 2)
    arrays = st.builds(lambda items, count: {"type": "array", "items": items, "minItems": count}, inner, least)
    unions = st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches})
    joined = inner.map(lambda schema: {"allOf": [schema], "description": "joined"})
    return st.one_of(leaves(), objects(depth), arrays, unions, joined)


@st.composite
def objects(draw: st.DrawFn, depth: int = 3) -> JsonObject:
    properties: JsonObject = {**draw(st.dictionaries(NAMES, ordinary(depth - 1), max_size=3))}
    required: list[Json] = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@st.composite
def roots(draw: st.DrawFn) -> JsonObject:
    tree = of(left={"$ref": "#/$defs/tree"}, next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]})
    return draw(objects()) | {"$defs": {"leaf": draw(leaves()) | {"$ref": "#/$defs/end"}, "end": {}, "tree": tree}}


@given(roots())
def test_every_ordinary_schema_gets_an_example_that_conforms(parameters: JsonObject) -> None:
    arguments = example_arguments(parameters)
    assert arguments is not None
    assert conforms(arguments, parameters)


def unruly() -> Schemas:
    """Schemas of all kinds, many of which nothing conforms to."""

    def combined(inner: Schemas) -> Schemas:
        applying = st.sampled_from(["items", "additionalProperties", "contains", "if", "then", "not", "propertyNames"])
        listing = st.sampled_from(["anyOf", "oneOf", "allOf", "prefixItems"])
        numbers = st.sampled_from(["minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maximum"])
        return st.one_of(
            objects(1),
            st.dictionaries(applying, inner, min_size=1, max_size=2).map(lambda schema: {**schema}),
            st.dictionaries(listing, st.lists(inner, min_size=1, max_size=3), min_size=1).map(
                lambda schema: {**schema}
            ),
            st.dictionaries(numbers, st.integers(0, 3), min_size=1).map(lambda schema: {**schema}),
            st.tuples(inner, inner).map(lambda two: {**two[0], **two[1]}),
            st.dictionaries(NAMES, inner | st.booleans()).map(lambda members: {"properties": {**members}}),
            st.just({"$ref": "#"}),
        )

    schemas = st.recursive(leaves(), combined, max_leaves=8)
    return st.tuples(schemas, schemas).map(lambda two: {**two[0], "$defs": {"leaf": two[1], "tree": {"type": "array"}}})


@given(unruly())
def test_no_schema_gets_an_example_that_does_not_conform(parameters: JsonObject) -> None:
    arguments = example_arguments(parameters)
    assert arguments is None or conforms(arguments, parameters)
