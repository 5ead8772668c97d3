"""References of a schema into itself."""

import pytest

from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import resolve_reference

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
