"""The client's functions as Codex's dynamic tools: names that it takes, and schemas that survive it.

Codex reads a function's schema into a smaller language of its own, and drops or bends what that lacks: constraints,
defaults, `const`, a description without a type. What would be lost is told to the model in the description of the same
place instead; a schema that Codex keeps whole is left as it is.
"""

import json
import re
from collections.abc import Iterable

from turnbridge.turn.items import Json
from turnbridge.turn.request import Tool

LONGEST_NAME = 128
ALLOWED_NAME = re.compile(rf"^[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}$")
REFUSED_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")
# Codex keeps these for itself: it refuses the prefix, and a call to the others never reaches a client.
RESERVED_PREFIX = "mcp__"
RESERVED_NAMES = frozenset({"exec_command", "shell_command"})
RENAMED_PREFIX = "client_"

# What Codex's own schema language has.
KEPT = frozenset(
    {"type", "description", "properties", "required", "additionalProperties", "items", "enum", "minItems"}
    | {"anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions"}
)
# Says nothing about the arguments.
UNSAID = frozenset({"$schema", "$id", "$comment"})
ANY_TYPE: list[Json] = ["string", "number", "boolean", "object", "array", "null"]


class ToolNames:
    """Maps the client's names to ones that Codex takes, and back. Names that Codex takes stay as they are."""

    def __init__(self, names: Iterable[str]) -> None:
        self._to_codex: dict[str, str] = {}
        self._to_client: dict[str, str] = {}
        # Names that may stay are settled first, so that no renamed one takes their place.
        for name in sorted(names, key=lambda name: not _is_free(name)):
            self._add(name)

    def to_codex(self, name: str) -> str:
        """Return the name under which the model knows a function, declared in this turn or not."""
        return self._to_codex.get(name) or (name if _is_free(name) else _tamed(name))

    def to_client(self, name: str) -> str | None:
        """Return the client's own name of a declared function."""
        return self._to_client.get(name)

    def _add(self, name: str) -> None:
        taken = name if _is_free(name) else _tamed(name)
        number = 2
        while taken in self._to_client:
            suffix = f"_{number}"
            taken = _tamed(name)[: LONGEST_NAME - len(suffix)] + suffix
            number += 1
        self._to_codex[name] = taken
        self._to_client[taken] = name


def dynamic_tools(tools: Iterable[Tool], names: ToolNames) -> list[Json]:
    """Return the declarations for `thread/start`."""
    return [
        {
            "type": "function",
            "name": names.to_codex(tool.name),
            "description": tool.description,
            "inputSchema": surviving(tool.parameters),
        }
        for tool in tools
    ]


def surviving(schema: Json) -> Json:
    """Return a schema that says the same and that Codex passes on whole."""
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        return {"description": "Never valid.", "type": list(ANY_TYPE)} if schema is False else schema
    said = {key: value for key, value in schema.items() if key not in UNSAID}
    if "const" in said:
        said["enum"] = [said.pop("const")]
    if isinstance(said.get("enum"), list) and "type" not in said:
        said["type"] = _types_of(said["enum"])
    if said.get("type") == "array":
        said.setdefault("items", {})
    lost = {key: said.pop(key) for key in list(said) if key not in KEPT}
    kept = {key: _inner(key, value) for key, value in said.items()}
    if lost:
        note = json.dumps(lost, ensure_ascii=False)
        about = kept.get("description")
        kept["description"] = f"{about} (JSON Schema: {note})" if about else f"JSON Schema: {note}"
    if "description" in kept and not kept.keys() & {"type", "anyOf", "oneOf", "allOf", "$ref", "enum"}:
        kept["type"] = list(ANY_TYPE)
        kept.setdefault("items", {})
    return kept


def _inner(key: str, value: Json) -> Json:
    """Return the schemas inside a keyword."""
    if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
        return {name: surviving(inner) for name, inner in value.items()}
    if key in ("anyOf", "oneOf", "allOf") and isinstance(value, list):
        return [surviving(inner) for inner in value]
    if key == "items":
        return surviving(value)
    if key == "additionalProperties" and not isinstance(value, bool):
        return surviving(value)
    return value


def _types_of(values: Json) -> Json:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    listed = values if isinstance(values, list) else []
    types = list(dict.fromkeys("null" if value is None else names[type(value)] for value in listed))
    return types[0] if len(types) == 1 else list(types)


def _is_free(name: str) -> bool:
    return bool(ALLOWED_NAME.match(name)) and not name.startswith(RESERVED_PREFIX) and name not in RESERVED_NAMES


def _tamed(name: str) -> str:
    """Return a name that Codex takes, and that a person still recognises."""
    allowed = REFUSED_CHARACTERS.sub("_", name)
    if allowed.startswith(RESERVED_PREFIX) or allowed in RESERVED_NAMES:
        allowed = RENAMED_PREFIX + allowed
    return allowed[:LONGEST_NAME]
