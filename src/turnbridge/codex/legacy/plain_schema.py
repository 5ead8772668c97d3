"""A schema as one plain object: references followed, `allOf` joined, and one alternative of each union chosen.

It serves to describe a value, or to make one up. It is not the whole truth (`not` and `if` are left as they are), so a
value that is made from it must be checked against the schema itself.
"""

from typing import NamedTuple

from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import resolve_reference

# How many schemas may apply one inside the other to the same value: people write two or three.
MOST_STEPS = 30

UNIONS = ("anyOf", "oneOf")
RESOLVED = frozenset({"$ref", "allOf", *UNIONS, "$defs", "definitions"})
LOWER_BOUNDS = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
UPPER_BOUNDS = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
SCALARS = frozenset({"boolean", "integer", "number", "string"})


class PlainSchema(NamedTuple):
    """What a schema says of a value once a choice is made."""

    said: JsonObject
    choices: int
    """How many different choices there are."""


def plain_schema(schema: Json, root: JsonObject, *, choice: int = 0, simplest: bool = False) -> PlainSchema:
    """Return a schema without `$ref`, `allOf`, `anyOf` and `oneOf`.

    Alternatives are counted round and round, `null` last; with `simplest`, those without anything inside come first.
    """
    reader = _Reader(root, choice, simplest)
    said = reader.read(schema, MOST_STEPS)
    return PlainSchema(said, reader.choices)


def types_of(said: JsonObject) -> list[str]:
    """Return the types that a plain schema allows; nothing if it does not say."""
    listed = said.get("type")
    return [name for name in (listed if isinstance(listed, list) else [listed]) if isinstance(name, str)]


def required_names(said: JsonObject) -> dict[str, None]:
    """Return the members that a plain schema requires, in its order."""
    listed = said.get("required")
    return dict.fromkeys(name for name in (listed if isinstance(listed, list) else []) if isinstance(name, str))


class _Reader:
    def __init__(self, root: JsonObject, choice: int, simplest: bool) -> None:
        self._root = root
        self._choice = choice
        self._simplest = simplest
        self._followed: set[str] = set()
        self.choices = 1

    def read(self, schema: Json, steps: int) -> JsonObject:
        if not isinstance(schema, dict) or steps == 0:
            return {}
        said: JsonObject = {key: value for key, value in schema.items() if key not in RESOLVED}
        for member in [*self._referred(schema), *_listed(schema, "allOf"), *self._chosen(schema)]:
            said = _joined(said, self.read(member, steps - 1))
        return said

    def _referred(self, schema: JsonObject) -> list[Json]:
        reference = schema.get("$ref")
        # A second time it would say nothing more, and the schema may lead in circles.
        if not isinstance(reference, str) or reference in self._followed:
            return []
        self._followed.add(reference)
        return [resolve_reference(self._root, reference)]

    def _chosen(self, schema: JsonObject) -> list[Json]:
        chosen: list[Json] = []
        for keyword in UNIONS:
            branches = sorted(_listed(schema, keyword), key=self._rank)
            if branches:
                chosen.append(branches[self._choice % len(branches)])
                self.choices = max(self.choices, len(branches))
        return chosen

    def _rank(self, branch: Json) -> int:
        types = types_of(branch) if isinstance(branch, dict) else []
        if types == ["null"]:
            return 0 if self._simplest else 2
        return 0 if self._simplest and types and SCALARS.issuperset(types) else 1


def _listed(schema: JsonObject, keyword: str) -> list[Json]:
    listed = schema.get(keyword)
    return listed if isinstance(listed, list) else []


def _joined(first: JsonObject, second: JsonObject) -> JsonObject:
    """Return what both say; where only one can be told, it is the first."""
    joined = {**first, **{key: value for key, value in second.items() if key not in first}}
    return joined | {key: _both(key, first[key], second[key]) for key in first.keys() & second.keys()}


def _both(key: str, first: Json, second: Json) -> Json:
    if key == "type":
        return _common_types(types_of({key: first}), types_of({key: second}))
    if key == "properties" and isinstance(first, dict) and isinstance(second, dict):
        return _joined_properties(first, second)
    if key == "required":
        return [*(required_names({key: first}) | required_names({key: second}))]
    if key == "enum" and isinstance(first, list) and isinstance(second, list):
        return [value for value in first if value in second]
    if isinstance(first, int | float) and isinstance(second, int | float):
        if key in LOWER_BOUNDS:
            return max(first, second)
        if key in UPPER_BOUNDS:
            return min(first, second)
    if key in ("items", "additionalProperties"):
        return {"allOf": [first, second]} if first is not False and second is not False else False
    return first


def _joined_properties(first: JsonObject, second: JsonObject) -> JsonObject:
    both: JsonObject = {name: {"allOf": [first[name], second[name]]} for name in first if name in second}
    return {**first, **{name: schema for name, schema in second.items() if name not in first}} | both


def _common_types(first: list[str], second: list[str]) -> Json:
    common = [name for name in first if name in second or (name == "integer" and "number" in second)]
    if "integer" in second and "number" in first and "integer" not in common:
        common.append("integer")
    listed: list[Json] = [*common]
    return listed[0] if len(listed) == 1 else listed
