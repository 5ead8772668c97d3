"""Arguments that are made up: the table of the system that users come from, and conformance to any schema."""

from typing import TypeAlias

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.codex.legacy.flat_text import example_arguments
from turnbridge.scripted_model.schema_sample import FORMATS
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import simple_size

Schemas: TypeAlias = st.SearchStrategy[JsonObject]


def of(**properties: Json) -> JsonObject:
    return {"type": "object", "properties": {**properties}}


def needing(**properties: Json) -> JsonObject:
    return of(**properties) | {"required": [*properties], "additionalProperties": False}


def conforms(arguments: Json, schema: JsonObject) -> bool:
    return jsonschema_rs.validator_cls_for(schema)(schema, offline=True, validate_formats=True).is_valid(arguments)


FOUND: list[tuple[JsonObject, Json]] = [
    ({}, {}),
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
        {"a": "example", "b": 1, "c": True, "d": 1, "e": None, "f": "example"},
    ),
    (
        of(a={"enum": ["x", "y"]}, b={"const": 5}, c={"default": None}, d={"examples": ["ex"]}),
        {"a": "x", "b": 5, "c": None, "d": "ex"},
    ),
    (of(a={"type": ["null", "integer"]}, b={"type": ["null"]}), {"a": 1, "b": None}),
    (of(d={"oneOf": [of(z={"type": "number"})], "description": "d"}), {"d": {"z": 1}}),
    (of(l={"type": "array", "items": {"type": "integer"}}, m={"type": "array"}), {"l": [1], "m": ["example"]}),
    ({"anyOf": [of(q={"type": "string"}) | {"required": ["q"]}]}, {"q": "example"}),
    (of(a={"type": "integer"}) | {"default": {"a": 1}}, {"a": 1}),
    (of(c={"anyOf": [{"type": "null"}, {"type": "string"}]}), {"c": "example"}),
    (of(a=of(b=of(c=needing(d={"type": "string"})))), {"a": {"b": {"c": {"d": "example"}}}}),
    (of(a={"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}), {"a": [[1]]}),
    (of(a={"items": {"type": "integer"}}), {"a": [1]}),
    ({"allOf": [needing(a={"type": "string"}), {"required": ["a"]}]}, {"a": "example"}),
]


@pytest.mark.parametrize(("parameters", "arguments"), FOUND)
def test_an_example_shows_every_parameter_that_it_can(parameters: JsonObject, arguments: Json) -> None:
    assert simple_size(parameters) is not None
    assert example_arguments(parameters) == arguments
    assert conforms(arguments, parameters)


BOUNDED: list[tuple[JsonObject, Json]] = [
    ({"type": "integer", "minimum": 3}, 3),
    ({"type": "integer", "exclusiveMinimum": 3}, 4),
    ({"type": "integer", "maximum": -3}, -3),
    ({"type": "integer", "exclusiveMaximum": -3}, -4),
    ({"type": "string", "minLength": 10}, "example..."),
    ({"type": "string", "maxLength": 3}, "exa"),
    ({"type": "string", "maxLength": 0}, ""),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 3}, [1, 1, 1]),
    ({"type": "array", "maxItems": 0}, []),
]


@pytest.mark.parametrize(("schema", "value"), BOUNDED)
def test_bounds_are_kept(schema: JsonObject, value: Json) -> None:
    assert example_arguments(needing(p=schema)) == {"p": value}


@pytest.mark.parametrize("name", sorted({*map(str, FORMATS), "password"}))
def test_a_format_is_kept(name: str) -> None:
    schema = needing(p={"type": "string", "format": name})
    arguments = example_arguments(schema)
    assert arguments is not None
    assert conforms(arguments, schema)


NOT_FOUND: list[JsonObject] = [
    {"type": "string"},
    needing(a=False),
    needing(a={"type": "string", "minLength": 10**9}),
    needing(a={"type": "array", "minItems": 10**9}),
    {"type": "object", "minProperties": 10**9},
    {"type": "object", "required": ["x"]},
    {"allOf": [needing(a={"type": "string"}), needing(a={"type": "integer"})]},
]


def nested(levels: int) -> JsonObject:
    return {"type": "array", "items": nested(levels - 1), "minItems": 20} if levels else {"type": "string"}


@pytest.mark.parametrize("parameters", [*NOT_FOUND, needing(a=nested(10))])
def test_no_example_is_better_than_one_that_breaks_the_schema(parameters: JsonObject) -> None:
    assert example_arguments(parameters) is None


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
