"""The client's tools as Codex's dynamic tools, with schemas that Codex keeps.

Codex converts a function's schema to a smaller language of its own, and drops or changes what that lacks: constraints,
defaults, a description without a type, definitions without a reference. What would be lost is added to the description
of the same place; a schema that Codex keeps whole is not changed. Codex cuts a large schema in any case: the whole of
it is then added to the description of the function.
"""

import json
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import (
    HOLDERS,
    INTEGERS,
    MOST_LEVELS,
    as_object,
    has_readable_integers,
    layers,
    levels,
    reference_steps,
    subschemas,
)
from turnbridge.turn.request import Tool

# Codex refuses a longer description of a namespace.
LONGEST_GROUP_DESCRIPTION = 1024

# The keywords of Codex's own schema language.
KEPT = frozenset(
    {"type", "description", "properties", "required", "additionalProperties", "items", "enum", "minItems"}
    | {"anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions"}
)
# Keywords that do not describe the arguments.
UNSAID = frozenset({"$schema", "$id", "$comment"})
ANY_TYPE: list[Json] = ["string", "number", "boolean", "object", "array", "null"]
# Codex reads a schema without any of these as empty.
TELLING = frozenset({"type", "anyOf", "oneOf", "allOf", "$ref"})
# The types that keywords imply, for Codex as well.
IMPLIED = {"object": ("properties", "required", "additionalProperties"), "array": ("items", "minItems")}
DEFINITIONS = ("$defs", "definitions")
SUBSCHEMAS = ("properties", "items", "additionalProperties", "anyOf", "oneOf", "allOf")

# Beyond this size Codex drops descriptions, then definitions, then deep levels.
MOST_SCHEMA_BYTES = 5000

# Clients send the same tools with every request, and an agent has some dozens: to convert twenty of them took 1 ms.
# Larger schemas are rare. Converted ones take up to ten times their bytes, so all of these at most 20 MB.
CACHED_SCHEMAS = 256
LARGEST_CACHED_BYTES = 8 * 1024


def dynamic_tools(tools: Iterable[Tool], names: ToolNames) -> list[Json]:
    """Return the declarations for `thread/start`; those of a namespace are together, where its first one is."""
    declared: list[Json] = []
    groups: dict[str, list[Json]] = {}
    for tool in tools:
        function = _dynamic_function(tool, names)
        if tool.namespace is None:
            declared.append(function)
        elif (members := groups.get(tool.namespace.name)) is not None:
            members.append(function)
        else:
            members = groups[tool.namespace.name] = [function]
            about = tool.namespace.description
            if len(about) > LONGEST_GROUP_DESCRIPTION:
                function["description"] = f"About all tools here: {about}\n\n{function['description']}"
                about = about[: LONGEST_GROUP_DESCRIPTION - 1] + "…"
            name = names.namespace_to_codex(tool.namespace.name)
            declared.append({"type": "namespace", "name": name, "description": about, "tools": members})
    return declared


def _dynamic_function(tool: Tool, names: ToolNames) -> JsonObject:
    written = msgspec.json.encode(tool.parameters)
    known = _converted_before(written) if len(written) <= LARGEST_CACHED_BYTES else _converted(tool.parameters)
    if known is None:
        deep = f"The parameters of '{tool.name}' are nested more than {MOST_LEVELS} levels deep."
        advice = "Use '$ref' and '$defs'."
        raise InvalidRequest(f"{deep} {advice}", code="invalid_function_parameters", param="tools")
    schema, is_cut = known
    description = with_whole_schema(tool) if is_cut else tool.description
    namespace, name = tool.key
    name, _ = names.call_to_codex(name, namespace)
    return {"type": "function", "name": name, "description": description, "inputSchema": schema}


@lru_cache(CACHED_SCHEMAS)
def _converted_before(written: bytes) -> tuple[JsonObject, bool] | None:
    return _converted(msgspec.json.decode(written))


def _converted(parameters: JsonObject) -> tuple[JsonObject, bool] | None:
    """Return a schema that Codex keeps whole, and whether Codex cuts it for its size; None if it is too deep."""
    schema = surviving_root(parameters)
    if levels(schema) > MOST_LEVELS:
        return None
    return schema, len(_written(schema, separators=(",", ":")).encode()) > MOST_SCHEMA_BYTES


def with_whole_schema(tool: Tool) -> str:
    """Return a function's description with its schema."""
    whole = f"The arguments conform to this JSON Schema: {_written(tool.parameters)}"
    return f"{tool.description}\n\n{whole}" if tool.description else whole


def surviving_root(schema: JsonObject) -> JsonObject:
    """Return an equivalent schema of a function that Codex keeps whole, if it is not too large."""
    kept = surviving(schema)
    reached = _reached_definitions(kept)
    lost: JsonObject = {}
    for table in DEFINITIONS:
        declared, surviving_ones = as_object(schema.get(table)), as_object(kept.pop(table, None))
        # Also those to which only a description refers.
        if unreached := {name: value for name, value in declared.items() if (table, name) not in reached}:
            lost[table] = unreached
        if left := {name: value for name, value in surviving_ones.items() if (table, name) in reached}:
            kept[table] = left
    return _noted(kept, lost)


def surviving(schema: Json) -> JsonObject:
    """Return an equivalent schema that Codex keeps whole."""
    if not isinstance(schema, dict):
        return _noted({}, {"not": {}}) if schema is False else {}
    said = {key: value for key, value in schema.items() if key not in UNSAID}
    lost = {key: said.pop(key) for key in list(said) if key not in KEPT or not _is_readable(key, said[key])}
    if "const" in lost and "enum" not in said and _is_readable("enum", [lost["const"]]):
        said["enum"] = [lost.pop("const")]
    values = said.get("enum")
    if isinstance(values, list) and "type" not in said:
        said["type"] = _types_of(values)
    for key, value in said.items():
        if isinstance(value, dict) and HOLDERS.get(key) is dict:
            said[key] = {name: surviving(inner) for name, inner in value.items()}
        elif isinstance(value, list) and HOLDERS.get(key) is list:
            said[key] = [surviving(inner) for inner in value]
        elif key == "items" or (key == "additionalProperties" and not isinstance(value, bool)):
            said[key] = surviving(value)
    return _noted(said, lost)


def _noted(kept: JsonObject, lost: JsonObject) -> JsonObject:
    """Add a note about what Codex would drop, and what Codex would otherwise add itself."""
    if lost:
        about = kept.get("description")
        note = f"JSON Schema: {_written(lost)}"
        kept["description"] = f"{about} ({note})" if about else note
    if kept and not kept.keys() & TELLING:
        implied: list[Json] = [name for name, signs in IMPLIED.items() if kept.keys() & set(signs)]
        kept["type"] = _one_or_list(implied or list(ANY_TYPE))
    types = kept.get("type")
    for name, members in (("object", "properties"), ("array", "items")):
        if types == name or (isinstance(types, list) and name in types):
            kept.setdefault(members, {})
    return kept


def _reached_definitions(schema: JsonObject) -> set[tuple[str, str]]:
    """Return the definitions that Codex keeps: those that the schema or a kept definition refers to."""
    reached: set[tuple[str, str]] = set()
    # Outside of definitions Codex looks for references in subschemas only, inside of them everywhere.
    read: list[Json] = []
    waiting: list[Json] = [schema]
    while waiting:
        read.append(one := waiting.pop())
        waiting += [inner for _, inner in subschemas(one, SUBSCHEMAS)] if isinstance(one, dict) else []
    while read:
        one = read.pop()
        match reference_steps(one.get("$ref")) if isinstance(one, dict) else None:
            case [table, name, *_] if table in DEFINITIONS and (table, name) not in reached:
                reached.add((table, name))
                read += [inner for layer in layers(as_object(schema.get(table)).get(name)) for inner in layer]
    return reached


def _is_readable(key: str, value: Json) -> bool:
    """Tell whether Codex can read the numbers of a keyword that it knows."""
    if key == "minItems":
        return isinstance(value, int) and value in INTEGERS
    return key != "enum" or has_readable_integers(value)


def _types_of(values: list[Json]) -> Json:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return _one_or_list(list(dict.fromkeys("null" if value is None else names[type(value)] for value in values)))


def _one_or_list(types: list[Json]) -> Json:
    return types[0] if len(types) == 1 else types


def _written(value: Json, *, separators: tuple[str, str] | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, separators=separators)
