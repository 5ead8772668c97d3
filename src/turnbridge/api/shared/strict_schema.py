"""What OpenAI refuses in a structured-output schema, found before anybody is asked.

The rules are those of OpenAI's guide "Structured model outputs" (Supported schemas) and, where it is silent,
those of the errors that its API is known to answer with; the wording is the API's. Where neither is sure the
schema passes: OpenAI judges it once more, and refusing what it takes would be the worse mistake.

Nothing here knows where the schema came from, and nothing is ever fetched.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias, assert_never

import jsonschema_rs

from turnbridge.api.shared.validation import missing
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import target

SchemaUse: TypeAlias = Literal["response_format", "function"]

CODES: dict[SchemaUse, str] = {
    "response_format": "invalid_json_schema",
    "function": "invalid_function_parameters",
}

# The guide names the first seven. The others stood in its first list of unsupported keywords and have not
# become "Supported properties" since; the API still answers `is not permitted` to them. (`minLength` and
# `maxLength` stood there too, but the API takes them.)
NOT_PERMITTED = frozenset(
    {"allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else"}
    | {"oneOf", "uniqueItems", "propertyNames", "contains", "minContains", "maxContains", "prefixItems"}
    | {"minProperties", "maxProperties", "patternProperties", "unevaluatedProperties", "unevaluatedItems"}
)

NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")
FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")

# The guide's limits for a whole schema.
MAX_PROPERTIES = 5000
MAX_LEVELS = 10
MAX_ENUM_VALUES = 1000
MAX_NAME_CHARS = 120_000

# The guide's limit for one enum: its strings are counted together only if there are many of them.
MANY_ENUM_VALUES = 250
MAX_CHARS_OF_MANY_ENUM_VALUES = 15_000

# A message may quote the schema, and a schema may be huge.
MAX_SHOWN_CHARS = 500

NAME_PATTERN = "^[a-zA-Z0-9_-]+$"
MAX_SCHEMA_NAME_CHARS = 64


class _Place(NamedTuple):
    """A schema inside the schema."""

    context: tuple[str, ...]
    schema: Json
    level: int
    """How many properties and items lead to it from the root, or from its definition."""


def check_schema_name(name: str | None, *, param: str) -> str:
    """Return the name if OpenAI takes it for a schema."""
    if name is None:
        raise missing(param)
    if not name:
        expected = "Expected a string with minimum length 1, but got an empty string instead."
        raise InvalidRequest(f"Invalid '{param}': empty string. {expected}", code="empty_string", param=param)
    if len(name) > MAX_SCHEMA_NAME_CHARS:
        expected = f"Expected a string with maximum length {MAX_SCHEMA_NAME_CHARS}"
        message = f"string too long. {expected}, but got a string with length {len(name)} instead."
        raise InvalidRequest(f"Invalid '{param}': {message}", code="string_above_max_length", param=param)
    if not re.fullmatch(NAME_PATTERN, name):
        expected = f"Expected a string that matches the pattern '{NAME_PATTERN}'."
        message = f"Invalid '{param}': string does not match pattern. {expected}"
        raise InvalidRequest(message, code="invalid_value", param=param)
    return name


def is_strict(schema: JsonObject) -> bool:
    """Tell whether OpenAI would take this schema with `strict: true`, if it is a schema at all."""
    return broken_strict_rule(schema) is None


def misconstruction(schema: JsonObject) -> str | None:
    """Return why this is not a JSON Schema that stands on its own."""
    try:
        # Not `jsonschema_rs.meta`: it fetches an unknown `$schema`, and only validators can be told not to.
        jsonschema_rs.validator_cls_for(schema)(schema, offline=True)
    except jsonschema_rs.ValidationError as error:
        return f"In context={tuple(map(str, error.instance_path))}, {error.message}."
    except ValueError as error:
        # Text that is not Unicode.
        return f"{error}."
    return None


def broken_strict_rule(root: JsonObject) -> str | None:
    """Return the first rule of strict schemas that this one breaks, in OpenAI's words."""
    if root.get("type") != "object":
        found = _shown(root.get("type"))
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{found}\"'."
    union = next((keyword for keyword in NOT_AT_THE_TOP if keyword in root), None)
    if union is not None:
        listed = "/".join(f"'{keyword}'" for keyword in NOT_AT_THE_TOP)
        return f"schema must have type 'object' and not have {listed} at the top level. Found '{union}'."
    schemas: list[JsonObject] = []
    levels = 0
    for place in _walk(root):
        broken = _broken_rule(place.schema, root)
        if broken is not None:
            return f"In context={place.context}, {broken}"
        if isinstance(place.schema, dict):
            schemas.append(place.schema)
        levels = max(levels, place.level)
    if levels > MAX_LEVELS:
        return f"{levels} levels of nesting exceeds limit of {MAX_LEVELS}."
    return _broken_limit(schemas)


def _walk(root: JsonObject) -> Iterator[_Place]:
    """Yield the root and all schemas below it in the order in which they are written."""
    todo = [_Place((), root, 0)]
    while todo:
        place = todo.pop()
        yield place
        todo.extend(reversed(list(_children(place))))


def _children(place: _Place) -> Iterator[_Place]:
    schema, context, level = place.schema, place.context, place.level
    if not isinstance(schema, dict):
        return
    for keyword, child_level in (("properties", level + 1), ("$defs", 0), ("definitions", 0)):
        named = schema.get(keyword)
        if isinstance(named, dict):
            for name, child in named.items():
                yield _Place((*context, keyword, name), child, child_level)
    if "items" in schema:
        yield _Place((*context, "items"), schema["items"], level + 1)
    alternatives = schema.get("anyOf")
    if isinstance(alternatives, list):
        for index, child in enumerate(alternatives):
            yield _Place((*context, "anyOf", str(index)), child, level)


def _broken_rule(schema: Json, root: JsonObject) -> str | None:
    """Return the rule that this one schema breaks, whatever is below it."""
    if not isinstance(schema, dict):
        return "schema must have a 'type' key."
    if "$ref" in schema:
        return _broken_reference(schema, root)
    for keyword in schema:
        if keyword in NOT_PERMITTED:
            return f"'{keyword}' is not permitted."
    if "type" not in schema:
        return None if "anyOf" in schema else "schema must have a 'type' key."
    types: list[Json] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "object" in types and (broken := _broken_object(schema)):
        return broken
    if "array" in types and "items" not in schema:
        return "array schema missing items."
    if "array" in types and not isinstance(schema["items"], dict):
        return "array schema items is not an object."
    if "string" in types and "format" in schema and schema["format"] not in FORMATS:
        return f"'{_shown(schema['format'])}' is not a valid format."
    return _broken_value(schema, types)


def _broken_object(schema: JsonObject) -> str | None:
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return "object schema missing properties."
    required = schema.get("required", [])
    rule = "'required' is required to be supplied and to be an array including every key in properties."
    if not isinstance(required, list):
        return rule
    listed = {name for name in required if isinstance(name, str)}
    for name in properties:
        if name not in listed:
            return f"{rule} Missing '{name}'."
    for extra in required:
        if not isinstance(extra, str) or extra not in properties:
            return f"{rule} Extra required key '{_shown(extra)}' supplied."
    return None


def _broken_reference(schema: JsonObject, root: JsonObject) -> str | None:
    beside = sorted(schema.keys() - {"$ref"})
    if beside:
        return f"$ref cannot have keywords {{{', '.join(map(repr, beside))}}}."
    reference = schema["$ref"]
    if not isinstance(reference, str) or not isinstance(target(root, reference), dict):
        return f"$ref '{_shown(reference)}' points to no schema in this one. Use '#' or '#/$defs/<name>'."
    return None


def _broken_value(schema: JsonObject, types: list[Json]) -> str | None:
    """Return the value of `enum` or `const` that the schema's own type rules out."""
    if not all(isinstance(name, str) for name in types):
        return None
    listed = schema.get("enum")
    values = [("enum", value) for value in listed] if isinstance(listed, list) else []
    if "const" in schema:
        values.append(("const", schema["const"]))
    for keyword, value in values:
        if not any(name in types for name in _type_names(value)):
            declared = {"type": schema["type"]}
            return f"{keyword} value {_shown(value)} does not validate against {declared}."
    return None


def _type_names(value: Json) -> tuple[str, ...]:
    match value:
        case None:
            return ("null",)
        case bool():
            return ("boolean",)
        case int():
            return ("integer", "number")
        case float():
            return ("number", "integer") if value.is_integer() else ("number",)
        case str():
            return ("string",)
        case list():
            return ("array",)
        case dict():
            return ("object",)
        case _:
            assert_never(value)


def _shown(value: Json) -> str:
    """Return a few words for a value of any size and shape."""
    if isinstance(value, list | dict):
        return f"an {_type_names(value)[0]}"
    return str(value)[:MAX_SHOWN_CHARS]


def _broken_limit(schemas: list[JsonObject]) -> str | None:
    """Return the limit that the schemas exceed together."""
    properties = _names(schemas, "properties")
    definitions = _names(schemas, "$defs") + _names(schemas, "definitions")
    enums = [value for schema in schemas if isinstance(value := schema.get("enum"), list)]
    values = [value for enum in enums for value in enum]
    constants = [schema["const"] for schema in schemas if "const" in schema]
    advice = "Consider reducing the number of enums, or use 'strict: false' to opt out of structured outputs."
    if len(properties) > MAX_PROPERTIES:
        return f"{len(properties)} parameters exceeds limit of {MAX_PROPERTIES}."
    if len(values) > MAX_ENUM_VALUES:
        where = "in total within a single schema when using structured outputs"
        return f"Expected at most {MAX_ENUM_VALUES} enum values {where}, but received {len(values)}. {advice}"
    for enum in enums:
        if len(enum) > MANY_ENUM_VALUES and (chars := _chars(enum)) > MAX_CHARS_OF_MANY_ENUM_VALUES:
            most = f"at most {MAX_CHARS_OF_MANY_ENUM_VALUES} total characters across enum values"
            when = f"when there are more than {MANY_ENUM_VALUES} enum values"
            return f"Expected {most} {when}, but received {chars}. {advice}"
    chars = _chars([*properties, *definitions, *values, *constants])
    if chars > MAX_NAME_CHARS:
        what = "characters in property names, definition names, enum values and const values"
        return f"{chars} {what} exceeds limit of {MAX_NAME_CHARS}."
    return None


def _names(schemas: list[JsonObject], keyword: str) -> list[Json]:
    return [name for schema in schemas if isinstance(named := schema.get(keyword), dict) for name in named]


def _chars(values: list[Json]) -> int:
    return sum(len(value) for value in values if isinstance(value, str))
