"""JSON and JSON Schemas as values: what Codex can read, references into a schema, and which schemas are simple.

To compile a simple schema takes time in proportion to its size. References can multiply work, patterns can backtrack,
and some keywords look at a value again and again: a schema with any of them is compiled and used in a helper process
that can be killed (docs/decisions/0017-work-with-a-deadline.md).
"""

import re
from urllib.parse import unquote

from turnbridge.turn.items import Json, JsonObject, layers

# Codex reads no JSON that is nested more than 128 levels deep, and the client's is not at the top of what it is sent.
MOST_LEVELS = 100
# Integers that Codex can read.
INTEGERS = range(-(2**63), 2**64)


def unreadable(value: Json) -> str | None:
    """Return why Codex cannot read a value, if so."""
    if levels(value) > MOST_LEVELS:
        return f"it is nested more than {MOST_LEVELS} levels deep, which Codex cannot read"
    if not has_readable_integers(value):
        return "it has an integer of more than 64 bits, which Codex cannot read"
    return None


def levels(value: Json) -> int:
    """Return how deep a value is nested; a value with nothing inside has one level."""
    return sum(1 for _ in layers(value))


def has_readable_integers(value: Json) -> bool:
    """Tell whether Codex can read every integer in a value."""
    return all(number in INTEGERS for layer in layers(value) for number in layer if isinstance(number, int))


def target(root: JsonObject, reference: str) -> Json:
    """Return what a reference into the schema itself points to; nothing for any other."""
    start, *steps = unquote(reference).split("/")
    found: Json = root if start == "#" else None
    for step in steps:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and re.fullmatch("[0-9]{1,6}", key) and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


# At most 3 µs each to compile: 6 ms.
MOST_SIMPLE_VALUES = 2000

# The library's own limit lies beyond 100, and what nests deeper than this is seldom written by people.
MOST_SIMPLE_LEVELS = 32

# What says something about one value, and has no schema inside.
_PLAIN = frozenset(
    {"type", "enum", "const", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly", "$comment"}
)
_NAMED = "properties"
_LISTED = ("anyOf", "oneOf", "allOf")
_SINGLE = ("items", "additionalProperties")
_DIALECT = "$schema"
# What generators of schemas write at the top.
_DIALECTS = (
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)
_KNOWN = _PLAIN | {_NAMED, _DIALECT, *_LISTED, *_SINGLE}


def simple_size(schema: Json) -> int | None:
    """Return how many JSON values a simple schema has; nothing if it is not simple."""
    values = 0
    for level, layer in enumerate(layers(schema)):
        values += len(layer)
        if values > MOST_SIMPLE_VALUES or level > MOST_SIMPLE_LEVELS:
            return None
    waiting: list[Json] = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, bool):
            continue
        if not isinstance(one, dict) or not _KNOWN.issuperset(one):
            return None
        inside = _inside(one)
        if inside is None:
            return None
        waiting += inside
    return values


def _inside(schema: JsonObject) -> list[Json] | None:
    """Return the schemas right inside of one; nothing if something else stands in the place of one."""
    inside: list[Json] = [schema[key] for key in _SINGLE if key in schema]
    named = schema.get(_NAMED, {})
    if not isinstance(named, dict) or schema.get(_DIALECT, _DIALECTS[0]) not in _DIALECTS:
        return None
    inside += named.values()
    for key in _LISTED:
        listed = schema.get(key, [])
        if not isinstance(listed, list):
            return None
        inside += listed
    return inside
