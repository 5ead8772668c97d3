"""Tools and the choice among them, in the words of both APIs: nested or flat, current or legacy."""

import json
from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from turnbridge.api.shared.schema_budget import Schemas
from turnbridge.api.shared.validation import check_length, missing
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.request import Tool, WebSearch

T = TypeVar("T")

# What a function without parameters takes.
NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}

# OpenAI takes 128. Clients with many MCP servers have some hundreds.
MOST_TOOLS = 1024

# A tuple: clients may send anything as a type, also what cannot be looked up in a set.
WEB_SEARCH_TYPES = ("web_search", "web_search_preview", "web_search_2025_08_26", "web_search_preview_2025_03_11")
CONTEXT_SIZES = ("low", "medium", "high")


class ToolUse(Struct, frozen=True, kw_only=True):
    """The tools that may be used in a turn, and whether one of them must be."""

    tools: tuple[Tool, ...] = ()
    web_search: WebSearch | None = None
    must_call: bool = False


def decode_tools(declared: Sequence[JsonObject], choice: str | JsonObject | None, schemas: Schemas) -> ToolUse:
    """Return what may be called, once the client's choice has been applied to what it declared."""
    check_length(declared, MOST_TOOLS, param="tools")
    tools: list[Tool] = []
    web_search: WebSearch | None = None
    for index, tool in enumerate(declared):
        param = f"tools[{index}]"
        kind = tool.get("type")
        if kind == "function":
            tools.append(_function(tool, param, schemas))
        elif kind in WEB_SEARCH_TYPES:
            web_search = decode_web_search(tool, param=param)
        else:
            raise InvalidRequest(
                f"Tools of type '{kind}' cannot be carried to Codex. Functions and 'web_search' can.",
                code="unsupported_tool",
                param=f"{param}.type",
            )
    _refuse_doubles(tools)
    return _apply(choice, tools, web_search)


def decode_functions(functions: Sequence[JsonObject], choice: str | JsonObject | None, schemas: Schemas) -> ToolUse:
    """Return the same for the legacy `functions` and `function_call`."""
    check_length(functions, MOST_TOOLS, param="functions")
    tools = [_function(function, f"functions[{index}]", schemas) for index, function in enumerate(functions)]
    _refuse_doubles(tools)
    named = choice.get("name") if isinstance(choice, dict) else None
    return _apply({"type": "function", "name": named} if named else choice, tools, None, param="function_call")


def decode_web_search(wanted: JsonObject, *, param: str) -> WebSearch:
    """Return how the web is to be searched."""
    location = wanted.get("user_location")
    approximate = location.get("approximate", location) if isinstance(location, dict) else {}
    places = approximate if isinstance(approximate, dict) else {}
    filters = wanted.get("filters")
    domains = filters.get("allowed_domains") if isinstance(filters, dict) else None
    size = wanted.get("search_context_size")
    if size is not None and size not in CONTEXT_SIZES:
        raise InvalidRequest(
            f"Invalid value: '{size}'. Supported values are: 'low', 'medium', and 'high'.",
            code="invalid_value",
            param=f"{param}.search_context_size",
        )
    return WebSearch(
        context_size=size if isinstance(size, str) else None,
        allowed_domains=tuple(str(domain) for domain in domains) if isinstance(domains, list) else (),
        location={key: value for key, value in places.items() if isinstance(value, str) and key != "type"},
        live=wanted.get("external_web_access") is not False,
    )


def _function(tool: JsonObject, param: str, schemas: Schemas) -> Tool:
    nested = tool.get("function")
    function, place = (nested, f"{param}.function") if isinstance(nested, dict) else (tool, param)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise missing(f"{place}.name")
    description = _optional(function, "description", str, "a string", place)
    strict = _optional(function, "strict", bool, "a boolean", place) is True
    parameters = function.get("parameters")
    schema = NO_PARAMETERS if parameters is None else parameters
    schemas.check(schema, strict=strict, param=f"{place}.parameters", name=name, use="function")
    if isinstance(schema, dict):
        _check_takes_objects(schema, name, f"{place}.parameters")
    return Tool(
        name=name,
        description=description or "",
        parameters=schema if isinstance(schema, dict) else NO_PARAMETERS,
        strict=strict,
    )


def _check_takes_objects(schema: JsonObject, name: str, param: str) -> None:
    """Refuse parameters that are no object by their own word; what is only implied, the provider judges."""
    kind, values = schema.get("type"), schema.get("enum", [schema["const"]] if "const" in schema else [{}])
    if kind is not None and "object" not in (kind if isinstance(kind, list) else [kind]):
        found = f"'type: {json.dumps(kind)}'"
    elif isinstance(values, list) and not any(isinstance(value, dict) for value in values):
        found = "values that are none"
    else:
        return
    raise InvalidRequest(
        f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got {found}.",
        code="invalid_function_parameters",
        param=param,
    )


def _optional(function: JsonObject, name: str, kind: type[T], wanted: str, place: str) -> T | None:
    """Return a field of a function that may be missing or null, and is of this type if it is not."""
    value = function.get(name)
    if value is not None and not isinstance(value, kind):
        where = f"{place}.{name}"
        raise InvalidRequest(f"Invalid type for '{where}': expected {wanted}.", code="invalid_type", param=where)
    return value


def _refuse_doubles(tools: Iterable[Tool]) -> None:
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise InvalidRequest(f"Two tools are named '{tool.name}'.", code="duplicate_tool_name", param="tools")
        seen.add(tool.name)


def _apply(
    choice: str | JsonObject | None,
    tools: list[Tool],
    web_search: WebSearch | None,
    *,
    param: str = "tool_choice",
) -> ToolUse:
    if choice is None or choice == "auto":
        return ToolUse(tools=tuple(tools), web_search=web_search)
    if choice == "none":
        return ToolUse()
    if not tools and web_search is None:
        raise InvalidRequest(f"'{param}' is only allowed when tools are specified.", code="invalid_value", param=param)
    if choice == "required":
        return ToolUse(tools=tuple(tools), web_search=web_search, must_call=True)
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return _allowed(choice, tools, web_search, param)
    if isinstance(choice, dict) and choice.get("type") == "function":
        return ToolUse(tools=(_named(tools, _name_in(choice), param),), must_call=True)
    raise InvalidRequest(
        f"Invalid '{param}'. Supported are 'none', 'auto', 'required', a function by its name, and 'allowed_tools'.",
        code="invalid_value",
        param=param,
    )


def _allowed(choice: JsonObject, tools: list[Tool], web_search: WebSearch | None, param: str) -> ToolUse:
    nested = choice.get("allowed_tools")
    allowed, place = (nested, f"{param}.allowed_tools") if isinstance(nested, dict) else (choice, param)
    mode, listed = allowed.get("mode"), allowed.get("tools")
    if mode not in ("auto", "required"):
        raise InvalidRequest(
            f"Invalid value: '{mode}'. Supported values are: 'auto' and 'required'.",
            code="invalid_value",
            param=f"{place}.mode",
        )
    if not isinstance(listed, list) or not listed:
        raise missing(f"{place}.tools")
    searches = [isinstance(tool, dict) and tool.get("type") in WEB_SEARCH_TYPES for tool in listed]
    functions = [tool for tool, is_search in zip(listed, searches, strict=True) if not is_search]
    if any(searches) and web_search is None:
        raise InvalidRequest(
            "Tool choice 'web_search' not found in 'tools' parameter.", code="invalid_value", param=param
        )
    return ToolUse(
        tools=tuple(_named(tools, name, param) for name in dict.fromkeys(map(_name_in, functions))),
        web_search=web_search if any(searches) else None,
        must_call=mode == "required",
    )


def _name_in(reference: Json) -> str | None:
    if not isinstance(reference, dict):
        return None
    nested = reference.get("function", reference)
    name = nested.get("name") if isinstance(nested, dict) else None
    return name if isinstance(name, str) else None


def _named(tools: list[Tool], name: str | None, param: str) -> Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    raise InvalidRequest(f"Tool choice '{name}' not found in 'tools' parameter.", code="invalid_value", param=param)
