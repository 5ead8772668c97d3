"""Edits of JSON settings files in place: comments, trailing commas, order and layout stay as they are."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnbridge.turn.items import Json, JsonObject

# Deeper files are no settings.
MOST_DEPTH = 64
WHITESPACE = " \t\r\n"
DEFAULT_INDENT = "  "


class NotEditable(ValueError):
    """The file is not JSON with comments, or has something else where an object is expected."""


@dataclass(slots=True, kw_only=True)
class _Node:
    """A value and where it stands; an object also has its members."""

    start: int
    end: int
    value: Json
    members: dict[str, "_Member"] | None = None


@dataclass(slots=True)
class _Member:
    start: int
    node: _Node
    comma: int | None = field(default=None)
    """Where the comma behind it stands."""


def parsed(text: str) -> JsonObject:
    """Return a settings file's value; an empty file is an empty object."""
    value = _root(text).value
    assert isinstance(value, dict)
    return value


def with_value(text: str, path: Sequence[str], value: Json) -> str:
    """Return the text with a value set at a path; objects on the way are created."""
    text = text if text.strip() else "{\n}\n"
    node, depth = _deepest(_root(text), path)
    if depth == len(path):
        return text if node.value == value else _replaced(text, node, value)
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    changed = _inserted(text, node, path[depth], value)
    parsed(changed)  # Raises if the edit went wrong, before anything is written.
    return changed


def without(text: str, path: Sequence[str], *, keep: int) -> str:
    """Return the text without the value at a path, and without the objects below depth `keep` that this empties."""
    for depth in range(len(path), keep, -1):
        parent, found = _deepest(_root(text), path[: depth - 1])
        members = parent.members
        if found != depth - 1 or members is None or path[depth - 1] not in members:
            return text
        if depth < len(path) and members[path[depth - 1]].node.value != {}:
            return text
        text = _removed(text, parent, path[depth - 1])
    return text


def _root(text: str) -> _Node:
    if not text.strip():
        return _Node(start=0, end=0, value={}, members={})
    root = _Parser(text).whole()
    if root.members is None:
        raise NotEditable("it does not hold an object")
    return root


def _deepest(node: _Node, path: Sequence[str]) -> tuple[_Node, int]:
    """Return the last node on a path that is there, and how many names lead to it."""
    for depth, name in enumerate(path):
        if node.members is None:
            raise NotEditable(f"`{'.'.join(path[:depth])}` is not an object")
        if name not in node.members:
            return node, depth
        node = node.members[name].node
    return node, len(path)


def _replaced(text: str, node: _Node, value: Json) -> str:
    return f"{text[: node.start]}{_dumped(value, _indent_of_line(text, node.start), _unit(text))}{text[node.end :]}"


def _inserted(text: str, node: _Node, name: str, value: Json) -> str:
    """Return the text with a member at the end of an object, behind its comments."""
    assert node.members is not None
    outer, unit = _indent_of_line(text, node.start), _unit(text)
    inner = outer + unit
    last = list(node.members.values())[-1] if node.members else None
    if last is not None and text[: last.start].rpartition("\n")[2].strip() == "":
        inner = _indent_of_line(text, last.start)
    close = node.end - 1
    end = len(text[:close].rstrip(WHITESPACE))
    tail = text[end:close] if "\n" in text[end:close] else f"\n{outer}"
    member = f"\n{inner}{json.dumps(name, ensure_ascii=False)}: {_dumped(value, inner, unit)}"
    if last is None:
        return f"{text[:end]}{member}{tail}{text[close:]}"
    if last.comma is not None:
        return f"{text[:end]}{member},{tail}{text[close:]}"
    return f"{text[: last.node.end]},{text[last.node.end : end]}{member}{tail}{text[close:]}"


def _removed(text: str, parent: _Node, name: str) -> str:
    assert parent.members is not None
    member = parent.members[name]
    names = list(parent.members)
    start, end = member.start, member.node.end
    if member.comma is not None:
        end = member.comma + 1
    if text[:start].rpartition("\n")[2].strip() == "" and text[end:].partition("\n")[0].strip() == "":
        start = text.rfind("\n", 0, start) if "\n" in text[:start] else start
        end += len(text[end:].partition("\n")[0])
    rest = text[:start] + text[end:]
    place = names.index(name)
    before = parent.members[names[place - 1]].comma if place else None
    if member.comma is None and before is not None:
        rest = rest[:before] + rest[before + 1 :]
    return rest


def _dumped(value: Json, indent: str, unit: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"\n{indent}")


def _indent_of_line(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """Return the indentation of the first indented line."""
    for line in text.splitlines():
        stripped = line.lstrip(" \t")
        if stripped and stripped != line:
            return line[: len(line) - len(stripped)]
    return DEFAULT_INDENT


class _Parser:
    """Reads JSON with comments and trailing commas, and notes where everything stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        self._decoder = json.JSONDecoder()

    def whole(self) -> _Node:
        node = self._value(0)
        self._skip()
        if self._at != len(self._text):
            raise self._wrong()
        return node

    def _value(self, depth: int) -> _Node:
        self._skip()
        if depth > MOST_DEPTH:
            raise NotEditable("it is nested too deeply")
        match self._text[self._at : self._at + 1]:
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case _:
                start = self._at
                return _Node(start=start, value=self._scalar(), end=self._at)

    def _scalar(self) -> Json:
        try:
            value, self._at = self._decoder.raw_decode(self._text, self._at)
        except ValueError as error:
            raise self._wrong() from error
        found: Json = value
        return found

    def _object(self, depth: int) -> _Node:
        start, members = self._at, dict[str, _Member]()
        self._at += 1
        last: _Member | None = None
        while not self._closes("}"):
            if last is not None and last.comma is None:
                raise self._wrong()
            begins = self._at
            name = self._scalar()
            self._skip()
            if not isinstance(name, str) or name in members or self._text[self._at : self._at + 1] != ":":
                raise self._wrong()
            self._at += 1
            last = members[name] = _Member(begins, self._value(depth + 1))
            last.comma = self._comma()
        value: JsonObject = {name: member.node.value for name, member in members.items()}
        return _Node(start=start, end=self._at, value=value, members=members)

    def _array(self, depth: int) -> _Node:
        start, values = self._at, list[Json]()
        self._at += 1
        comma: int | None = start
        while not self._closes("]"):
            if comma is None:
                raise self._wrong()
            values.append(self._value(depth + 1).value)
            comma = self._comma()
        return _Node(start=start, end=self._at, value=values)

    def _closes(self, bracket: str) -> bool:
        self._skip()
        if self._text[self._at : self._at + 1] != bracket:
            return False
        self._at += 1
        return True

    def _comma(self) -> int | None:
        self._skip()
        if self._text[self._at : self._at + 1] != ",":
            return None
        self._at += 1
        return self._at - 1

    def _skip(self) -> None:
        """Skip whitespace and comments."""
        text = self._text
        while self._at < len(text):
            if text[self._at] in WHITESPACE:
                self._at += 1
            elif text.startswith("//", self._at):
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif text.startswith("/*", self._at):
                end = text.find("*/", self._at + 2)
                if end < 0:
                    raise self._wrong()
                self._at = end + 2
            else:
                return

    def _wrong(self) -> NotEditable:
        line = self._text.count("\n", 0, self._at) + 1
        return NotEditable(f"line {line} is not valid JSON")
