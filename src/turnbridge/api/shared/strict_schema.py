"""The rules of OpenAI's structured-output schemas, checked before Codex is asked.

The rules are those of OpenAI's guide "Structured model outputs" (Supported schemas) and, where it is silent, those of
the errors that its API is known to answer with; the wording is the API's. Where neither is sure the schema passes:
OpenAI checks it again, and rejecting what it accepts would be the worse mistake. Nothing is ever fetched.
"""

from types import NoneType
from typing import Literal, TypeAlias

import jsonschema_rs

from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import resolve_reference, subschemas

SchemaUse: TypeAlias = Literal["response_format", "function"]

CODES: dict[SchemaUse, str] = {"response_format": "invalid_json_schema", "function": "invalid_function_parameters"}

# The guide names the first seven. The others were in its first list of unsupported keywords and have not become
# "Supported properties" since; the API still answers `is not permitted` to them. (`minLength` and `maxLength` were in
# it too, but the API accepts them.)
NOT_PERMITTED = frozenset(
    {"allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else"}
    | {"oneOf", "uniqueItems", "propertyNames", "contains", "minContains", "maxContains", "prefixItems"}
    | {"minProperties", "maxProperties", "patternProperties", "unevaluatedProperties", "unevaluatedItems"}
)

NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")
FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
DEFINITIONS = ("$defs", "definitions")

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

TYPE_NAMES: dict[type, tuple[str, ...]] = {
    NoneType: ("null",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
}


def schema_error(schema: JsonObject) -> str | None:
    """Return why this is not a self-contained JSON Schema."""
    try:
        # Not `jsonschema_rs.meta`: it fetches an unknown `$schema`, and only validators can be told not to.
        jsonschema_rs.validator_cls_for(schema)(schema, offline=True)
    except jsonschema_rs.ValidationError as error:
        return f"In context={tuple(map(str, error.instance_path))}, {error.message}."
    except ValueError as error:
        # Text that is not Unicode.
        return f"{error}."
    return None


def strict_schema_error(root: JsonObject) -> str | None:
    """Return the first rule of strict schemas that this one breaks, in OpenAI's words."""
    if root.get("type") != "object":
        found = shown(root.get("type"))
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{found}\"'."
    union = next((keyword for keyword in NOT_AT_THE_TOP if keyword in root), None)
    if union is not None:
        listed = "/".join(f"'{keyword}'" for keyword in NOT_AT_THE_TOP)
        return f"schema must have type 'object' and not have {listed} at the top level. Found '{union}'."
    schemas: list[JsonObject] = []
    deepest = 0
    todo: list[tuple[tuple[str, ...], Json, int]] = [((), root, 0)]
    while todo:
        # The level is the number of properties and items that lead here from the root, or from the definition.
        context, schema, level = todo.pop()
        broken = _broken_rule(schema, root) if isinstance(schema, dict) else "schema must have a 'type' key."
        if broken is not None or not isinstance(schema, dict):
            return f"In context={context}, {broken}"
        schemas.append(schema)
        deepest = max(deepest, level)
        inside = list(subschemas(schema, ("properties", *DEFINITIONS, "items", "anyOf")))
        for steps, inner in reversed(inside):
            inner_level = 0 if steps[0] in DEFINITIONS else level + (steps[0] != "anyOf")
            todo.append(((*context, *steps), inner, inner_level))
    if deepest > MAX_LEVELS:
        return f"{deepest} levels of nesting exceeds limit of {MAX_LEVELS}."
    return _exceeded_limit(schemas)


def shown(value: Json) -> str:
    """Return a few words for a value of any size and shape."""
    return f"an {TYPE_NAMES[type(value)][0]}" if isinstance(value, list | dict) else str(value)[:MAX_SHOWN_CHARS]


def _broken_rule(schema: JsonObject, root: JsonObject) -> str | None:
    """Return the rule that this schema itself breaks, apart from the schemas inside it."""
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
        return f"'{shown(schema['format'])}' is not a valid format."
    return _broken_value(schema, types)


def _broken_object(schema: JsonObject) -> str | None:
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict):
        return "object schema missing properties."
    rule = "'required' is required to be supplied and to be an array including every key in properties."
    if not isinstance(required, list):
        return rule
    listed = {name for name in required if isinstance(name, str)}
    for name in properties:
        if name not in listed:
            return f"{rule} Missing '{name}'."
    for extra in required:
        if not isinstance(extra, str) or extra not in properties:
            return f"{rule} Extra required key '{shown(extra)}' supplied."
    return None


def _broken_reference(schema: JsonObject, root: JsonObject) -> str | None:
    if beside := sorted(schema.keys() - {"$ref"}):
        return f"$ref cannot have keywords {{{', '.join(map(repr, beside))}}}."
    reference = schema["$ref"]
    if not isinstance(reference, str) or not isinstance(resolve_reference(root, reference), dict):
        return f"$ref '{shown(reference)}' points to no schema in this one. Use '#' or '#/$defs/<name>'."
    return None


def _broken_value(schema: JsonObject, types: list[Json]) -> str | None:
    """Return the value of `enum` or `const` that the schema's own type excludes."""
    if not all(isinstance(name, str) for name in types):
        return None
    values = [("enum", value) for value in _list(schema, "enum")]
    if "const" in schema:
        values.append(("const", schema["const"]))
    for keyword, value in values:
        declared = {"type": schema["type"]}
        whole = isinstance(value, float) and value.is_integer()
        if not any(name in types for name in TYPE_NAMES[int if whole else type(value)]):
            return f"{keyword} value {shown(value)} does not validate against {declared}."
    return None


def _exceeded_limit(schemas: list[JsonObject]) -> str | None:
    """Return the limit that the schemas exceed together."""
    properties = _names(schemas, "properties")
    enums = [_list(schema, "enum") for schema in schemas]
    values = [value for enum in enums for value in enum]
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
    definitions = [name for keyword in DEFINITIONS for name in _names(schemas, keyword)]
    chars = _chars([*properties, *definitions, *values, *(schema.get("const") for schema in schemas)])
    if chars > MAX_NAME_CHARS:
        what = "characters in property names, definition names, enum values and const values"
        return f"{chars} {what} exceeds limit of {MAX_NAME_CHARS}."
    return None


def _list(schema: JsonObject, keyword: str) -> list[Json]:
    listed = schema.get(keyword)
    return listed if isinstance(listed, list) else []


def _names(schemas: list[JsonObject], keyword: str) -> list[Json]:
    return [name for schema in schemas if isinstance(named := schema.get(keyword), dict) for name in named]


def _chars(values: list[Json]) -> int:
    return sum(len(value) for value in values if isinstance(value, str))
