"""Which JSON Schemas are simple: to compile one takes time in proportion to its size, to use it in proportion to both.

References can multiply, patterns can backtrack, and some keywords look at a value again and again. A schema with any of
them is compiled and used where that can be ended (docs/decisions/0017-work-with-a-deadline.md).
"""

from turnbridge.turn.items import Json, JsonObject, layers

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
