"""The client's functions as Codex's dynamic tools: names that it takes, and schemas that survive it.

Codex reads a function's schema into a smaller language of its own, and drops or bends what that lacks: constraints,
defaults, a description without a type, definitions that nothing refers to. What would be lost is told to the model in
the description of the same place instead; a schema that Codex keeps whole is left as it is. A large schema is cut down
by Codex in any case: the model is then told all of it in the description of the function.
"""

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import (
    INTEGERS,
    MOST_LEVELS,
    has_readable_integers,
    levels,
)
from turnbridge.turn.request import Tool

LONGEST_NAME = 128
ALLOWED_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")
REFUSED_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")
# Codex keeps these for itself: it refuses the prefix and `mcp`, and a call to the others never reaches a client.
RESERVED_PREFIX = "mcp__"
RESERVED_NAMES = frozenset({"mcp", "exec_command", "shell_command"})
RENAMED_PREFIX = "client_"
# Codex takes a call with one of these for one without a namespace.
NO_NAMESPACE = (None, "", "functions")

# What Codex's own schema language has.
KEPT = frozenset(
    {"type", "description", "properties", "required", "additionalProperties", "items", "enum", "minItems"}
    | {"anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions"}
)
# Says nothing about the arguments.
UNSAID = frozenset({"$schema", "$id", "$comment"})
ANY_TYPE: list[Json] = ["string", "number", "boolean", "object", "array", "null"]
# Codex makes something of a schema that has one of these; without, it takes it for empty.
TELLING = frozenset({"type", "anyOf", "oneOf", "allOf", "$ref"})
# Which type these imply, to Codex as to people.
IMPLIED = {"object": ("properties", "required", "additionalProperties"), "array": ("items", "minItems")}
DEFINITIONS = ("$defs", "definitions")
SUBSCHEMAS = ("items", "additionalProperties", "anyOf", "oneOf", "allOf")

# Beyond this size Codex leaves out descriptions, then definitions, then whatever lies deep.
MOST_SCHEMA_BYTES = 5000


class ToolNames:
    """Maps the client's names to ones that Codex takes, and back. Names that Codex takes stay as they are."""

    def __init__(self, names: Iterable[str], *, reserved: frozenset[str] = RESERVED_NAMES) -> None:
        self._reserved = reserved
        self._to_codex: dict[str, str] = {}
        self._to_client: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        # Names that may stay are settled first, so that no renamed one takes their place.
        for name in sorted(names, key=lambda name: not self._is_free(name)):
            self._add(name)

    def to_codex(self, name: str) -> str:
        """Return the name under which the model knows a function, declared in this turn or not."""
        return self._to_codex.get(name) or (name if self._is_free(name) else self._tamed(name))

    def to_client(self, name: str) -> str | None:
        """Return the client's own name of a declared function."""
        return self._to_client.get(name)

    def _add(self, name: str) -> None:
        tamed = taken = name if self._is_free(name) else self._tamed(name)
        # Where many names become the same one, each goes on from the number of the one before.
        number = self._numbers.get(tamed, 2)
        while taken in self._to_client:
            suffix = f"_{number}"
            taken = tamed[: LONGEST_NAME - len(suffix)] + suffix
            number += 1
        self._numbers[tamed] = number
        self._to_codex[name] = taken
        self._to_client[taken] = name

    def _is_free(self, name: str) -> bool:
        return (
            bool(ALLOWED_NAME.fullmatch(name)) and not name.startswith(RESERVED_PREFIX) and name not in self._reserved
        )

    def _tamed(self, name: str) -> str:
        """Return a name that Codex takes, and that a person still recognises."""
        allowed = REFUSED_CHARACTERS.sub("_", name[:LONGEST_NAME])
        if allowed.startswith(RESERVED_PREFIX) or allowed in self._reserved:
            allowed = RENAMED_PREFIX + allowed
        return allowed[:LONGEST_NAME]


def dynamic_tools(tools: Iterable[Tool], names: ToolNames) -> list[Json]:
    """Return the declarations for `thread/start`."""
    return [_dynamic_tool(tool, names) for tool in tools]


def _dynamic_tool(tool: Tool, names: ToolNames) -> JsonObject:
    schema = surviving_root(tool.parameters)
    if levels(schema) > MOST_LEVELS:
        raise InvalidRequest(
            f"The parameters of '{tool.name}' are nested more than {MOST_LEVELS} levels deep. Use '$ref' and '$defs'.",
            code="invalid_function_parameters",
            param="tools",
        )
    description = tool.description
    if len(_written(schema, separators=(",", ":")).encode()) > MOST_SCHEMA_BYTES:
        description = with_whole_schema(tool)
    return {
        "type": "function",
        "name": names.to_codex(tool.name),
        "description": description,
        "inputSchema": schema,
    }


def with_whole_schema(tool: Tool) -> str:
    """Return a function's description that also tells its schema."""
    whole = f"The arguments conform to this JSON Schema: {_written(tool.parameters)}"
    return f"{tool.description}\n\n{whole}" if tool.description else whole


def surviving_root(schema: JsonObject) -> JsonObject:
    """Return a function's schema that says the same and that Codex passes on whole, if it is not too large."""
    kept = surviving(schema)
    reached = _reached_definitions(kept)
    lost: JsonObject = {}
    for table in DEFINITIONS:
        declared, surviving_ones = schema.get(table), kept.pop(table, None)
        if not isinstance(declared, dict) or not isinstance(surviving_ones, dict):
            continue
        # Also those that are only referred to by what stands in a description.
        unreached: JsonObject = {name: value for name, value in declared.items() if (table, name) not in reached}
        if unreached:
            lost[table] = unreached
        if left := {name: value for name, value in surviving_ones.items() if (table, name) in reached}:
            kept[table] = left
    return _noted(kept, lost)


def surviving(schema: Json) -> JsonObject:
    """Return a schema that says the same and that Codex passes on whole."""
    if not isinstance(schema, dict):
        return _noted({}, {"not": {}}) if schema is False else {}
    said = {key: value for key, value in schema.items() if key not in UNSAID}
    lost = {key: said.pop(key) for key in list(said) if key not in KEPT or not _is_readable(key, said[key])}
    if "const" in lost and "enum" not in said and _is_readable("enum", [lost["const"]]):
        said["enum"] = [lost.pop("const")]
    values = said.get("enum")
    if isinstance(values, list) and "type" not in said:
        said["type"] = _types_of(values)
    return _noted({key: _inner(key, value) for key, value in said.items()}, lost)


def _noted(kept: JsonObject, lost: JsonObject) -> JsonObject:
    """Return a schema with a note about what Codex would lose, and with all that Codex would otherwise add itself."""
    if lost:
        about = kept.get("description")
        note = f"JSON Schema: {_written(lost)}"
        kept["description"] = f"{about} ({note})" if about else note
    if kept and not kept.keys() & TELLING:
        implied: list[Json] = [name for name, signs in IMPLIED.items() if kept.keys() & set(signs)]
        kept["type"] = _one_or_list(implied or list(ANY_TYPE))
    types = kept.get("type")
    if types == "object" or (isinstance(types, list) and "object" in types):
        kept.setdefault("properties", {})
    if types == "array" or (isinstance(types, list) and "array" in types):
        kept.setdefault("items", {})
    return kept


def _inner(key: str, value: Json) -> Json:
    """Return the schemas inside a keyword."""
    if key in ("properties", *DEFINITIONS) and isinstance(value, dict):
        return {name: surviving(inner) for name, inner in value.items()}
    if key in ("anyOf", "oneOf", "allOf") and isinstance(value, list):
        return [surviving(inner) for inner in value]
    if key == "items" or (key == "additionalProperties" and not isinstance(value, bool)):
        return surviving(value)
    return value


def _reached_definitions(schema: JsonObject) -> set[tuple[str, str]]:
    """Return the definitions that Codex keeps: the schema refers to them, or another one does that it keeps."""
    reached: set[tuple[str, str]] = set()
    waiting = list(_references(schema, everywhere=False))
    while waiting:
        place = _definition(waiting.pop())
        if place is not None and place not in reached:
            reached.add(place)
            table = schema.get(place[0])
            waiting += _references(table.get(place[1]) if isinstance(table, dict) else None, everywhere=True)
    return reached


def _references(schema: Json, *, everywhere: bool) -> Iterator[str]:
    """Yield every reference that Codex sees in a schema; outside of definitions it looks into schemas only."""
    if isinstance(schema, list):
        inside: list[Json] = schema
    elif isinstance(schema, dict):
        reference, properties = schema.get("$ref"), schema.get("properties")
        if isinstance(reference, str):
            yield reference
        subschemas = [schema.get(key) for key in SUBSCHEMAS]
        listed = [*properties.values()] if isinstance(properties, dict) else []
        inside = list(schema.values()) if everywhere else subschemas + listed
    else:
        return
    for inner in inside:
        yield from _references(inner, everywhere=everywhere)


def _definition(reference: str) -> tuple[str, str] | None:
    """Return which definition at the top a reference leads to, or into."""
    if not reference.startswith("#/"):
        return None
    table, *rest = (
        word.replace("~1", "/").replace("~0", "~") for word in unquote(reference.removeprefix("#/")).split("/")
    )
    return (table, rest[0]) if table in DEFINITIONS and rest else None


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
