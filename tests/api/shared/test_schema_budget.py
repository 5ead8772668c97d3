"""What the schemas of a request may cost together is bounded before any of them is compiled."""

import time

import pytest

from turnbridge.api.shared import schema_budget
from turnbridge.api.shared.schema_budget import SchemaChecker, SchemaPlace
from turnbridge.api.shared.strict_schema import SchemaUse
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import JsonObject
from turnbridge.turn.json_schema import MAX_SIMPLE_VALUES, simple_size


def check(schemas: SchemaChecker, schema: JsonObject, *, strict: bool = False, use: SchemaUse = "function") -> None:
    schemas.check(schema, strict=strict, param="p", name="n", use=use)


def refusal(schemas: SchemaChecker, schema: JsonObject, *, strict: bool = False, use: SchemaUse = "function") -> str:
    with pytest.raises(InvalidRequest) as caught:
        check(schemas, schema, strict=strict, use=use)
    assert caught.value.param == "p"
    return caught.value.message.partition(": ")[2]


def ladder(rungs: int) -> JsonObject:
    """Return definitions each of which refers twice to the next one."""
    steps: JsonObject = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(rungs)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{rungs}": {"type": "string"}}}


def test_the_schemas_of_a_request_are_counted_together() -> None:
    schemas = SchemaChecker()
    for _ in range(49):
        check(schemas, {"enum": [0] * 1000})
    assert refusal(schemas, {"enum": [0] * 1000}) == (
        "the schemas of the request have more than 50000 JSON values. Make them smaller."
    )


def test_patterns_are_counted_together() -> None:
    schemas = SchemaChecker()
    check(schemas, {"pattern": "a" * 25_000})
    check(schemas, {"properties": {"p": {"patternProperties": {"a" * 25_000: {}}}}})
    assert refusal(schemas, {"pattern": "a"}) == (
        "the patterns of the request have more than 50000 characters. Make them shorter."
    )


def test_ways_through_references_are_counted_in_what_answers_are_checked_against() -> None:
    words = "more than 100000 ways lead through its references. Let fewer '$ref' refer to others."
    check(SchemaChecker(), ladder(15), use="response_format")
    for rungs in (16, 2000):
        assert refusal(SchemaChecker(), ladder(rungs), use="response_format") == words
        assert refusal(SchemaChecker(), ladder(rungs), strict=True) == words
        # Nothing is ever checked against this one.
        check(SchemaChecker(), ladder(rungs))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/properties/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, {}]}}},
        {"$ref": "#/nowhere"},
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/$defs/0", "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(10_000)}},
        {"anyOf": [{"$ref": f"#/$defs/{n}"} for n in range(10_000)], "$defs": {str(n): {} for n in range(10_000)}},
    ],
    ids=["itself", "through itself", "in circles", "nowhere", "elsewhere", "a chain", "many"],
)
def test_other_references_are_left_to_be_compiled(schema: JsonObject) -> None:
    schemas = SchemaChecker()
    check(schemas, schema, use="response_format")
    assert schemas.uncompiled == [SchemaPlace(schema=schema, param="p", name="n", use="response_format")]


def test_counting_ways_takes_no_longer_than_the_schema_is_large() -> None:
    """Each of these refers to something around all others."""
    inner: JsonObject = {}
    for depth in range(200):
        pointer = "#" + "/items" * depth
        inner = {"items": inner, "anyOf": [{"$ref": pointer, "title": str(n)} for n in range(20)]}
    began = time.process_time()
    refusal(SchemaChecker(), inner, use="response_format")
    assert time.process_time() - began < 2


def test_a_simple_schema_is_compiled_at_once_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[JsonObject] = []
    monkeypatch.setattr(schema_budget, "schema_error", compiled.append)
    schema: JsonObject = {"type": "object", "properties": {"only here": {"type": "string"}}}
    for _ in range(2):
        schemas = SchemaChecker()
        check(schemas, schema)
        assert schemas.uncompiled == []
    assert compiled == [schema]


def test_a_broken_schema_is_refused_every_time() -> None:
    for _ in range(2):
        assert "is not valid" in refusal(SchemaChecker(), {"type": "nonsense"})


@pytest.mark.parametrize(
    ("schema", "size"),
    [
        ({}, 1),
        ({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}, 9),
        ({"items": {"anyOf": [{"type": "string"}, True]}, "additionalProperties": False}, 7),
        ({"const": {"$ref": "data"}}, 3),
        ({"properties": {"pattern": {}}}, 3),
        ({"$ref": "#"}, None),
        ({"properties": {"a": {"pattern": "a"}}}, None),
        ({"anyOf": [{"patternProperties": {}}]}, None),
        ({"uniqueItems": True}, None),
        ({"unevaluatedProperties": False}, None),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, 2),
        ({"$schema": "https://elsewhere.example/schema"}, None),
        ({"properties": []}, None),
        ({"anyOf": {}}, None),
        ({"items": [{}]}, None),
        ({"x-own": 1}, None),
        ({"enum": [0] * MAX_SIMPLE_VALUES}, None),
    ],
    ids=str,
)
def test_a_schema_is_simple_if_all_of_it_is(schema: JsonObject, size: int | None) -> None:
    assert simple_size(schema) == size


def test_a_deep_schema_is_not_simple() -> None:
    schema: JsonObject = {}
    for _ in range(40):
        schema = {"items": schema}
    assert simple_size(schema) is None
