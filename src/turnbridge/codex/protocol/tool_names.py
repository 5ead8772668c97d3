"""Names that Codex accepts for the client's tools and namespaces, and the way back."""

import re
from collections.abc import Iterable

from turnbridge.turn.items import NO_NAMESPACE
from turnbridge.turn.request import Tool, ToolKey, by_key

LONGEST_NAME = 128
LONGEST_NAMESPACE = 64
REFUSED_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")
# Reserved by Codex: it refuses the prefix and `mcp`, and a call of the others never reaches a client.
RESERVED_PREFIX = "mcp__"
RESERVED_NAMES = frozenset({"mcp", "exec_command", "shell_command"})
RESERVED_IN_NAMESPACES = frozenset({"mcp"})
# Refused by Codex: the provider's own tools are in these.
RESERVED_NAMESPACES = frozenset(
    {"api_tool", "browser", "computer", "container", "file_search", "functions", "image_gen", "mcp", "multi_tool_use"}
    | {"python", "python_user_visible", "submodel_delegator", "terminal", "tool_search", "web"}
)
RENAMED_PREFIX = "client_"


class Names:
    """Maps names of one kind to ones that Codex accepts, and back. Accepted names are not changed."""

    def __init__(self, names: Iterable[str], *, reserved: frozenset[str], longest: int = LONGEST_NAME) -> None:
        self._reserved = reserved
        self._longest = longest
        self._to_codex: dict[str, str] = {}
        self._to_client: dict[str, str] = {}
        numbers: dict[str, int] = {}
        # Accepted names come first, so that no renamed one takes their place.
        for name in sorted(names, key=lambda name: self._accepted(name) != name):
            accepted = taken = self._accepted(name)
            # Where many names become the same one, numbering continues.
            number = numbers.get(accepted, 2)
            while taken in self._to_client:
                suffix = f"_{number}"
                taken = accepted[: longest - len(suffix)] + suffix
                number += 1
            numbers[accepted] = number
            self._to_codex[name] = taken
            self._to_client[taken] = name

    def to_codex(self, name: str) -> str:
        """Return the model's name for one of the client's, declared in this turn or not."""
        return self._to_codex.get(name) or self._accepted(name)

    def to_client(self, name: str) -> str | None:
        """Return the client's own name of what is declared."""
        return self._to_client.get(name)

    def _accepted(self, name: str) -> str:
        """Return the name itself if Codex accepts it, or else one that is still recognisable."""
        allowed = REFUSED_CHARACTERS.sub("_", name[: self._longest])
        if allowed.startswith(RESERVED_PREFIX) or allowed in self._reserved:
            allowed = RENAMED_PREFIX + allowed
        return allowed[: self._longest]


class ToolNames(Names):
    """The names of a turn's functions; those without a namespace are its own."""

    def __init__(self, names: Iterable[str], *, reserved: frozenset[str] = RESERVED_NAMES) -> None:
        super().__init__(names, reserved=reserved)
        self._namespaces = Names((), reserved=RESERVED_NAMESPACES)
        self._members: dict[str, Names] = {}
        self._custom: frozenset[ToolKey] = frozenset()

    @classmethod
    def of(cls, tools: Iterable[Tool], *, reserved: frozenset[str] = RESERVED_NAMES) -> "ToolNames":
        """Return the names of these tools."""
        keys = by_key(tools)
        members: dict[str, list[str]] = {}
        for namespace, name in keys:
            if namespace is not None:
                members.setdefault(namespace, []).append(name)
        names = cls((name for namespace, name in keys if namespace is None), reserved=reserved)
        names._namespaces = Names(members, reserved=RESERVED_NAMESPACES, longest=LONGEST_NAMESPACE)
        names._members = {
            namespace: Names(inside, reserved=RESERVED_IN_NAMESPACES) for namespace, inside in members.items()
        }
        names._custom = frozenset(key for key, tool in keys.items() if tool.kind == "custom")
        return names

    def namespace_to_codex(self, namespace: str) -> str:
        """Return the model's name of a declared namespace."""
        return self._namespaces.to_codex(namespace)

    def call_to_codex(self, name: str, namespace: str | None) -> tuple[str, str | None]:
        """Return the model's names of a function and its namespace; one that is not declared is not renamed."""
        if namespace is None or namespace in NO_NAMESPACE:
            return self.to_codex(name), namespace
        if (members := self._members.get(namespace)) is None:
            return name, namespace
        return members.to_codex(name), self._namespaces.to_codex(namespace)

    def call_to_client(self, name: str, namespace: str | None) -> tuple[str, str | None] | None:
        """Return the client's own names of a declared function and its namespace."""
        if namespace is None or namespace in NO_NAMESPACE:
            known = self.to_client(name)
        elif (theirs := self._namespaces.to_client(namespace)) is None:
            return None
        else:
            known, namespace = self._members[theirs].to_client(name), theirs
        return None if known is None else (known, namespace)

    def is_custom(self, key: ToolKey) -> bool:
        """Tell whether a custom tool is declared."""
        return key in self._custom


NO_TOOLS = ToolNames(())
"""Of the many turns without tools; names are not changed once they are made."""
