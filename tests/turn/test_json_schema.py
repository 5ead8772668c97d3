"""References of a schema into itself, and the schemas inside it."""

import pytest

from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import resolve_reference, subschemas

ROOT: JsonObject = {"$defs": {"a/b": {"type": "string"}, "~": 1}, "anyOf": [{"type": "null"}, True]}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b", {"type": "string"}),
        ("#/%24defs/~0", 1),
        ("#/anyOf/0", {"type": "null"}),
        ("#/anyOf/2", None),
        ("#/anyOf/-1", None),
        ("#/anyOf/1/x", None),
        ("#/nowhere", None),
        ("#/nowhere/x", None),
        ("", None),
        ("other.json#/$defs", None),
    ],
)
def test_a_reference_leads_to_its_place_or_nowhere(reference: str, found: Json) -> None:
    assert resolve_reference(ROOT, reference) == found


def test_the_schemas_inside_one_come_with_their_place_in_the_order_of_the_keywords() -> None:
    schema: JsonObject = {
        "$defs": {"d": {}},
        "anyOf": [True, {"type": "null"}],
        "items": {"type": "string"},
        "properties": {"a": {"type": "number"}},
    }
    assert list(subschemas(schema, ("properties", "items", "anyOf", "oneOf"))) == [
        (("properties", "a"), {"type": "number"}),
        (("items",), {"type": "string"}),
        (("anyOf", "0"), True),
        (("anyOf", "1"), {"type": "null"}),
    ]


def test_what_is_not_of_the_form_of_its_keyword_holds_no_schemas() -> None:
    assert list(subschemas({"properties": [{}], "anyOf": {"a": {}}}, ("properties", "anyOf"))) == []
