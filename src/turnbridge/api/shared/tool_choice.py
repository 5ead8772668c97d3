"""`tool_choice`, and the shapes in which clients name tools."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from turnbridge.api.shared.validation import convert, missing, unknown_value
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject, replace
from turnbridge.turn.mcp import McpFilter, McpServer
from turnbridge.turn.request import Tool, ToolKey, WebSearch, tool_key

# A tuple: a type may be any JSON, also what is not hashable.
WEB_SEARCH_TYPES = ("web_search", "web_search_preview", "web_search_2025_08_26", "web_search_preview_2025_03_11")
MODES = ("auto", "required")
MCP = "mcp"
IMAGE_GENERATION = "image_generation"


class Function(Struct):
    """A function or a custom tool, flat or nested."""

    name: str | None = None
    description: str | None = None
    parameters: Json = None
    strict: bool | None = None
    format: Json = None


class ToolObject(Function):
    """A declared tool, or a choice among them: flat as in Responses, or nested as in Chat Completions."""

    type: Json = None
    namespace: str | None = None
    function: Function | None = None
    custom: Function | None = None
    server_label: str | None = None
    execution: Json = None
    defer_loading: bool | None = None
    mode: Json = None
    tools: list["ToolObject"] | None = None
    allowed_tools: "ToolObject | None" = None


class ToolUse(Struct, frozen=True, kw_only=True):
    """The tools that may be used in a turn, and whether one of them must be."""

    tools: tuple[Tool, ...] = ()
    web_search: WebSearch | None = None
    image_generation: bool = False
    servers: tuple[McpServer, ...] = ()
    must_call: bool = False
    ignored: tuple[str, ...] = ()
    """What was declared and has no effect."""


def chosen_tools(choice: str | JsonObject | None, declared: ToolUse, param: str) -> ToolUse:
    """Return what a choice allows of the declared tools; `param` is its place."""
    if choice is None or choice == "auto":
        return declared
    if choice == "none":
        return ToolUse()
    if not (declared.tools or declared.servers or declared.web_search is not None or declared.image_generation):
        raise InvalidRequest(f"'{param}' is only allowed when tools are specified.", code="invalid_value", param=param)
    if choice == "required":
        return replace(declared, must_call=True)
    chosen = convert(choice, ToolObject, param=param) if isinstance(choice, dict) else ToolObject()
    tools = {tool.key: tool for tool in declared.tools}
    if chosen.type == "allowed_tools":
        return _allowed(chosen, declared, tools, param)
    if chosen.type in ("function", "custom"):
        return ToolUse(tools=_named([chosen], tools, param), must_call=True)
    if chosen.type == IMAGE_GENERATION and declared.image_generation:
        return ToolUse(image_generation=True, must_call=True)
    if chosen.type == MCP:
        return ToolUse(servers=_servers([chosen], declared.servers, param), must_call=True)
    kinds = "'none', 'auto', 'required', a function, custom tool or MCP server by its name, and 'allowed_tools'"
    raise InvalidRequest(f"Invalid '{param}'. Supported are {kinds}.", code="invalid_value", param=param)


def _allowed(choice: ToolObject, declared: ToolUse, tools: Mapping[ToolKey, Tool], param: str) -> ToolUse:
    nested = choice.allowed_tools
    allowed, place = (choice, param) if nested is None else (nested, f"{param}.allowed_tools")
    if allowed.mode not in MODES:
        raise unknown_value(allowed.mode, MODES, param=f"{place}.mode")
    if not allowed.tools:
        raise missing(f"{place}.tools")
    servers = [tool for tool in allowed.tools if tool.type == MCP]
    functions = [tool for tool in allowed.tools if tool.type not in (MCP, IMAGE_GENERATION, *WEB_SEARCH_TYPES)]
    searches = any(tool.type in WEB_SEARCH_TYPES for tool in allowed.tools)
    images = any(tool.type == IMAGE_GENERATION for tool in allowed.tools)
    if searches and declared.web_search is None:
        raise _not_found("web_search", param)
    if images and not declared.image_generation:
        raise _not_found(IMAGE_GENERATION, param)
    return ToolUse(
        tools=_named(functions, tools, param),
        web_search=declared.web_search if searches else None,
        image_generation=images,
        servers=_servers(servers, declared.servers, param),
        must_call=allowed.mode == "required",
    )


def _servers(references: Sequence[ToolObject], declared: Sequence[McpServer], param: str) -> tuple[McpServer, ...]:
    """Return the servers that references name, each with the tools that may be called: all, or one by its name."""
    by_label = {server.label: server for server in declared}
    chosen: dict[str, McpServer] = {}
    for reference in references:
        server = by_label.get(reference.server_label or "")
        if server is None:
            raise _not_found(reference.server_label, param)
        if reference.name is not None and (names := server.allowed.names) is not None and reference.name not in names:
            raise _not_found(reference.name, param)
        if reference.name is not None:
            server = replace(server, allowed=McpFilter(names=(reference.name,), read_only=server.allowed.read_only))
        chosen[server.label] = server
    return tuple(chosen.values())


def _named(references: Sequence[ToolObject], tools: Mapping[ToolKey, Tool], param: str) -> tuple[Tool, ...]:
    keys = dict.fromkeys(key for reference in references for key in _keys(reference, tools, param))
    if unknown := [name for namespace, name in keys if (namespace, name) not in tools]:
        raise _not_found(unknown[0], param)
    return tuple(tools[key] for key in keys)


def _keys(reference: ToolObject, tools: Mapping[ToolKey, Tool], param: str) -> Iterator[ToolKey]:
    """Yield the tools that a reference names: one, or all of a namespace."""
    if reference.type == "namespace":
        members = [key for key in tools if key[0] is not None and key[0] == reference.name]
        if not members:
            raise _not_found(reference.name, param)
        yield from members
        return
    name = (reference.function or reference.custom or reference).name
    if name is None and reference.type == "tool_search":
        name = "tool_search"
    if name is None:
        raise _not_found(name, param)
    yield tool_key(name, reference.namespace)


def _not_found(name: str | None, param: str) -> InvalidRequest:
    return InvalidRequest(f"Tool choice '{name}' not found in 'tools' parameter.", code="invalid_value", param=param)
