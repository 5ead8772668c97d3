"""The demo model's answers conform to the schema that they are asked to keep to."""

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.scripted_model.replies import Json, JsonObject
from turnbridge.scripted_model.schema_sample import FORMATS, NoSample, sample

names = st.text("abc", min_size=1, max_size=3)
small = st.integers(-50, 50)


def merged(*strategies: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    return st.tuples(*strategies).map(lambda dicts: {name: value for each in dicts for name, value in each.items()})


def some(schema: dict[str, st.SearchStrategy[Json]]) -> st.SearchStrategy[JsonObject]:
    return st.fixed_dictionaries({}, optional=schema)


def kind(*types: str) -> st.SearchStrategy[JsonObject]:
    return st.sampled_from(types).map(lambda name: {"type": name})


lower = st.one_of(some({"minimum": small}), some({"exclusiveMinimum": small}))
upper = st.one_of(some({"maximum": small.map(lambda n: n + 120)}), some({"exclusiveMaximum": st.just(200)}))
scalars: st.SearchStrategy[JsonObject] = st.one_of(
    kind("boolean", "null", "string"),
    st.sampled_from(sorted(map(str, FORMATS))).map(lambda name: {"type": "string", "format": name}),
    merged(
        kind("string"),
        some({"minLength": st.integers(0, 20), "maxLength": st.integers(20, 30)}),
    ),
    merged(kind("integer", "number"), lower, upper, some({"multipleOf": st.integers(1, 9)})),
    merged(kind("number"), st.just({"exclusiveMinimum": 0, "exclusiveMaximum": 1})),
    st.lists(st.one_of(small, names, st.none()), min_size=1, unique=True).map(lambda values: {"enum": values}),
    names.map(lambda value: {"const": value}),
    st.just({"type": ["string", "null"]}),
    st.just({"$ref": "#/$defs/Tree"}),
)


def containers(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[JsonObject]:
    return st.one_of(
        st.dictionaries(names, inner, max_size=4).map(strict_object),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
        merged(
            inner.map(lambda items: {"type": "array", "items": items}),
            some({"minItems": st.integers(0, 3), "maxItems": st.integers(3, 5)}),
        ),
    )


def strict_object(properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TREE = strict_object(
    {
        "name": {"type": "string"},
        "left": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]},
        "others": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
    }
)


@given(st.recursive(scalars, containers, max_leaves=12))
def test_a_sample_conforms_to_its_schema(schema: JsonObject) -> None:
    whole: JsonObject = {**schema, "$defs": {"Tree": TREE}}
    jsonschema_rs.validate(whole, sample(whole), validate_formats=True)


def test_a_sample_is_readable() -> None:
    wanted = strict_object(
        {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 3},
            "when": {"type": "string", "format": "date"},
            "tree": {"$ref": "#/$defs/Tree"},
            "unknown": {},
        }
    )
    assert sample({**wanted, "$defs": {"Tree": TREE}}) == {
        "city": "demo city",
        "days": 3,
        "when": "2026-01-31",
        "tree": {"name": "demo name", "left": None, "others": []},
        "unknown": "demo unknown",
    }


def test_an_optional_property_without_an_end_is_left_out() -> None:
    assert sample({"type": "object", "properties": {"again": {"$ref": "#"}}}) == {"again": {}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "# has no end."),
        ({"$ref": "#/$defs/Missing"}, "#/$defs/Missing is not in the schema."),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#/nothing"}]}, "#/nothing is not in the schema."),
        (
            {"type": "integer", "minimum": 5, "maximum": 4},
            "No number was found for {'type': 'integer', 'minimum': 5, 'maximum': 4}.",
        ),
    ],
)
def test_a_schema_without_a_sample_is_refused_with_the_reason(schema: JsonObject, reason: str) -> None:
    with pytest.raises(NoSample) as caught:
        sample(schema)
    assert str(caught.value) == reason
