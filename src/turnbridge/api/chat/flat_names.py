"""Functions in namespaces, which chat has no word for: a call names both, as `crm__find`, and is told apart again.

The model is given the namespace itself; only the client sees and sends the flat name.
"""

from collections.abc import Iterable, Mapping, Sequence

from turnbridge.api.shared.tools import NAMESPACE
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import NO_NAMESPACE, FunctionCall, Item, JsonObject, replace
from turnbridge.turn.request import ToolKey

BETWEEN = "__"


def flat(name: str, namespace: str | None) -> str:
    """Return the name by which a client of chat knows a function."""
    return name if namespace in NO_NAMESPACE else f"{namespace}{BETWEEN}{name}"


def flat_names(declared: Sequence[JsonObject] | None) -> dict[str, ToolKey]:
    """Return the functions in namespaces by their flat names; raises `InvalidRequest` if a name means two."""
    groups = [tool for tool in declared or () if tool.get("type") == NAMESPACE]
    if not groups:
        return {}
    found: dict[str, ToolKey] = {}
    for tool in groups:
        members, namespace = tool.get("tools"), tool.get("name")
        if not isinstance(members, list) or not isinstance(namespace, str) or namespace in NO_NAMESPACE:
            continue
        for name in _names([one for one in members if isinstance(one, dict)]):
            key = namespace, name
            if found.setdefault(flat(name, namespace), key) != key:
                raise _ambiguous(flat(name, namespace))
    for name in _names(declared or ()):
        if name in found:
            raise _ambiguous(name)
    return found


def in_namespaces(items: Iterable[Item], names: Mapping[str, ToolKey]) -> tuple[Item, ...]:
    """Return items with calls as the model made them."""
    return tuple(_told_apart(item, names) if isinstance(item, FunctionCall) else item for item in items)


def chosen(choice: str | JsonObject | None, names: Mapping[str, ToolKey]) -> str | JsonObject | None:
    """Return `tool_choice` with functions as they are declared."""
    if not isinstance(choice, dict):
        return choice
    for place in ("allowed_tools", "tools"):
        inner = choice.get(place)
        if isinstance(inner, dict):
            return {**choice, place: chosen(inner, names)}
        if isinstance(inner, list):
            return {**choice, place: [_reference(one, names) if isinstance(one, dict) else one for one in inner]}
    return _reference(choice, names)


def _reference(tool: JsonObject, names: Mapping[str, ToolKey]) -> JsonObject:
    key = next((names[name] for name in _names([tool]) if name in names), None)
    if key is None or tool.get("type") == NAMESPACE:
        return tool
    return {"type": tool.get("type"), "namespace": key[0], "name": key[1]}


def _told_apart(call: FunctionCall, names: Mapping[str, ToolKey]) -> FunctionCall:
    key = names.get(call.name)
    return call if key is None else replace(call, namespace=key[0], name=key[1])


def _names(tools: Iterable[JsonObject]) -> list[str]:
    """Return the names of functions and custom tools, nested or flat."""
    inner = (
        next((one[kind] for kind in ("function", "custom") if isinstance(one.get(kind), dict)), one) for one in tools
    )
    return [name for one in inner if isinstance(one, dict) and isinstance(name := one.get("name"), str)]


def _ambiguous(name: str) -> InvalidRequest:
    message = f"Two tools are named '{name}': here a function in a namespace has the namespace before its name."
    return InvalidRequest(message, code="duplicate_tool_name", param="tools")
