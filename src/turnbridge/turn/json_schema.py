"""JSON and JSON Schemas as values: what Codex can read, the schemas inside a schema, `$ref`, and simple schemas.

Compiling a simple schema takes time in proportion to its size. References can multiply work, patterns can backtrack,
and some keywords visit a value repeatedly: a schema with any of them is compiled and used in a helper process that can
be killed (docs/decisions/0017-work-with-a-deadline.md).
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from turnbridge.turn.items import Json, JsonObject

# Codex reads no JSON that is nested more than 128 levels deep, and the client's is not at the top of what it is sent.
MOST_LEVELS = 100
# Integers that Codex can read.
INTEGERS = range(-(2**63), 2**64)

# At most 3 µs each to compile: 6 ms.
MAX_SIMPLE_VALUES = 2000
# The library's own limit is above 100; people seldom write schemas deeper than this.
MAX_SIMPLE_LEVELS = 32

# The keywords that hold schemas: one, several by name, or several in a list.
HOLDERS: dict[str, type] = {
    **dict.fromkeys(("items", "additionalProperties"), object),
    **dict.fromkeys(("properties", "$defs", "definitions"), dict),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), list),
}
# The keywords of a simple schema: beside those that hold schemas, those that constrain one value or only describe it.
_KNOWN = frozenset(
    {"$schema", *(HOLDERS.keys() - {"$defs", "definitions"})}
    | {"type", "enum", "const", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly", "$comment"}
)
# The dialects that schema generators name at the top.
_DIALECTS = (
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)


def as_object(value: Json) -> JsonObject:
    """Return a value that should be an object; an empty one for any other."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return a value that should be a list; an empty one for any other."""
    return value if isinstance(value, list) else []


def layers(value: Json) -> Iterator[list[Json]]:
    """Yield the values of a JSON value by depth: itself, then its members, then theirs."""
    layer = [value]
    while layer:
        yield layer
        containers = [one for one in layer if isinstance(one, dict | list)]
        layer = [inner for one in containers for inner in (one.values() if isinstance(one, dict) else one)]


def levels(value: Json) -> int:
    """Return the depth of a value; a scalar or an empty container has one level."""
    return sum(1 for _ in layers(value))


def has_readable_integers(value: Json) -> bool:
    """Tell whether Codex can read every integer in a value."""
    return all(number in INTEGERS for layer in layers(value) for number in layer if isinstance(number, int))


def unreadable(value: Json) -> str | None:
    """Return why Codex cannot read a value, if so."""
    if levels(value) > MOST_LEVELS:
        return f"it is nested more than {MOST_LEVELS} levels deep, which Codex cannot read"
    if not has_readable_integers(value):
        return "it has an integer of more than 64 bits, which Codex cannot read"
    return None


def subschemas(schema: JsonObject, keywords: Iterable[str]) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Yield the schemas directly inside one, each with the steps that lead to it, in the order of `keywords`."""
    for keyword in keywords:
        held, holder = schema.get(keyword), HOLDERS[keyword]
        if holder is object and keyword in schema:
            yield (keyword,), held
        elif holder is dict and isinstance(held, dict):
            yield from (((keyword, name), inner) for name, inner in held.items())
        elif holder is list and isinstance(held, list):
            yield from (((keyword, str(index)), inner) for index, inner in enumerate(held))


def reference_steps(reference: Json) -> list[str] | None:
    """Return the keys and places that lead to what a `$ref` into the schema itself points to; None for any other."""
    start, *steps = unquote(reference).split("/") if isinstance(reference, str) else [""]
    return [step.replace("~1", "/").replace("~0", "~") for step in steps] if start == "#" else None


def resolve_reference(root: JsonObject, reference: str) -> Json:
    """Return what a `$ref` into the schema itself points to; None for any other."""
    steps = reference_steps(reference)
    found: Json = None if steps is None else root
    for key in steps or ():
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and re.fullmatch("[0-9]{1,6}", key) and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def simple_size(schema: Json) -> int | None:
    """Return the number of JSON values in a simple schema; None if it is not simple."""
    values = 0
    for level, layer in enumerate(layers(schema)):
        values += len(layer)
        if values > MAX_SIMPLE_VALUES or level > MAX_SIMPLE_LEVELS:
            return None
    waiting: list[Json] = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict) and _KNOWN.issuperset(one) and one.get("$schema", _DIALECTS[0]) in _DIALECTS:
            holders = [keyword for keyword in one if keyword in HOLDERS]
            if not all(isinstance(one[keyword], HOLDERS[keyword]) for keyword in holders):
                return None
            waiting += [inner for _, inner in subschemas(one, holders)]
        elif not isinstance(one, bool):
            return None
    return values
