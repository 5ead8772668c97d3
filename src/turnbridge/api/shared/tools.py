"""Tools and `tool_choice`, in the vocabularies of both APIs: nested or flat, current or legacy."""

import json
from collections.abc import Sequence

from msgspec import Struct

from turnbridge.api.shared.parameters import one_of, unknown_value
from turnbridge.api.shared.schema_budget import SchemaChecker
from turnbridge.api.shared.validation import check_length, convert, missing
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.request import Tool, WebSearch

# The parameters of a function that declares none.
NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}

# OpenAI accepts 128. Clients with many MCP servers have some hundreds.
MAX_TOOLS = 1024

# A tuple: a type may be any JSON, also what is not hashable.
WEB_SEARCH_TYPES = ("web_search", "web_search_preview", "web_search_2025_08_26", "web_search_preview_2025_03_11")
CONTEXT_SIZES = ("low", "medium", "high")
MODES = ("auto", "required")


class Function(Struct):
    """A function, flat or nested."""

    name: str | None = None
    description: str | None = None
    parameters: Json = None
    strict: bool | None = None


class ToolObject(Function):
    """A declared tool, or a choice among them: flat as in Responses, or nested as in Chat Completions."""

    type: Json = None
    function: Function | None = None
    mode: Json = None
    tools: list["ToolObject"] | None = None
    allowed_tools: "ToolObject | None" = None


class WebSearchFilters(Struct):
    """`filters` of a web search."""

    allowed_domains: list[str] | None = None


class WebSearchOptions(Struct):
    """A web search tool, or `web_search_options`."""

    search_context_size: Json = None
    user_location: JsonObject | None = None
    filters: WebSearchFilters | None = None
    external_web_access: bool | None = None


class ToolUse(Struct, frozen=True, kw_only=True):
    """The tools that may be used in a turn, and whether one of them must be."""

    tools: tuple[Tool, ...] = ()
    web_search: WebSearch | None = None
    must_call: bool = False


def decode_tools(
    declared: Sequence[JsonObject] | None,
    choice: str | JsonObject | None,
    schemas: SchemaChecker,
    *,
    legacy: bool = False,
) -> ToolUse:
    """Return the declared tools that the client's choice allows; `legacy` are `functions` and `function_call`."""
    place, choice_param = ("functions", "function_call") if legacy else ("tools", "tool_choice")
    check_length(declared or (), MAX_TOOLS, param=place)
    tools: dict[str, Tool] = {}
    web_search: WebSearch | None = None
    for index, given in enumerate(declared or ()):
        param = f"{place}[{index}]"
        tool = convert(given, ToolObject, param=param)
        if legacy or tool.type == "function":
            decoded = _function(tool, param, schemas)
            if decoded.name in tools:
                message = f"Two tools are named '{decoded.name}'."
                raise InvalidRequest(message, code="duplicate_tool_name", param="tools")
            tools[decoded.name] = decoded
        elif tool.type in WEB_SEARCH_TYPES:
            web_search = decode_web_search(convert(given, WebSearchOptions, param=param), param=param)
        else:
            message = f"Tools of type '{tool.type}' cannot be carried to Codex. Functions and 'web_search' can."
            raise InvalidRequest(message, code="unsupported_tool", param=f"{param}.type")
    if legacy and isinstance(choice, dict) and choice.get("name"):
        choice = {**choice, "type": "function"}
    return _apply(choice, tools, web_search, choice_param)


def decode_web_search(options: WebSearchOptions, *, param: str) -> WebSearch:
    """Return the options of a web search."""
    location = options.user_location or {}
    nested = location.get("approximate", location)
    places = nested if isinstance(nested, dict) else {}
    domains = options.filters.allowed_domains if options.filters is not None else None
    return WebSearch(
        context_size=one_of(options.search_context_size, CONTEXT_SIZES, param=f"{param}.search_context_size"),
        allowed_domains=tuple(domains or ()),
        location={key: value for key, value in places.items() if isinstance(value, str) and key != "type"},
        live=options.external_web_access is not False,
    )


def _function(tool: ToolObject, param: str, schemas: SchemaChecker) -> Tool:
    function, place = (tool, param) if tool.function is None else (tool.function, f"{param}.function")
    name, strict, param = function.name, function.strict is True, f"{place}.parameters"
    if not name:
        raise missing(f"{place}.name")
    given = NO_PARAMETERS if function.parameters is None else function.parameters
    schema = schemas.check(given, strict=strict, param=param, name=name, use="function")
    _check_allows_objects(schema, name, param)
    return Tool(name=name, description=function.description or "", parameters=schema, strict=strict)


def _check_allows_objects(schema: JsonObject, name: str, param: str) -> None:
    """Refuse parameters that explicitly exclude objects; the provider judges what is only implied."""
    kind, values = schema.get("type"), schema.get("enum", [schema["const"]] if "const" in schema else [{}])
    if kind is not None and "object" not in (kind if isinstance(kind, list) else [kind]):
        found = f"'type: {json.dumps(kind)}'"
    elif isinstance(values, list) and not any(isinstance(value, dict) for value in values):
        found = "values that are none"
    else:
        return
    message = f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got {found}."
    raise InvalidRequest(message, code="invalid_function_parameters", param=param)


def _apply(choice: str | JsonObject | None, tools: dict[str, Tool], search: WebSearch | None, param: str) -> ToolUse:
    every = ToolUse(tools=tuple(tools.values()), web_search=search, must_call=choice == "required")
    if choice is None or choice == "auto":
        return every
    if choice == "none":
        return ToolUse()
    if not tools and search is None:
        raise InvalidRequest(f"'{param}' is only allowed when tools are specified.", code="invalid_value", param=param)
    if choice == "required":
        return every
    chosen = convert(choice, ToolObject, param=param) if isinstance(choice, dict) else ToolObject()
    if chosen.type == "allowed_tools":
        return _allowed(chosen, tools, search, param)
    if chosen.type == "function":
        return ToolUse(tools=_named([chosen], tools, param), must_call=True)
    kinds = "'none', 'auto', 'required', a function by its name, and 'allowed_tools'"
    raise InvalidRequest(f"Invalid '{param}'. Supported are {kinds}.", code="invalid_value", param=param)


def _allowed(choice: ToolObject, tools: dict[str, Tool], search: WebSearch | None, param: str) -> ToolUse:
    nested = choice.allowed_tools
    allowed, place = (choice, param) if nested is None else (nested, f"{param}.allowed_tools")
    if allowed.mode not in MODES:
        raise unknown_value(allowed.mode, MODES, param=f"{place}.mode")
    if not allowed.tools:
        raise missing(f"{place}.tools")
    functions = [tool for tool in allowed.tools if tool.type not in WEB_SEARCH_TYPES]
    searches = len(functions) < len(allowed.tools)
    if searches and search is None:
        raise _not_found("web_search", param)
    must_call = allowed.mode == "required"
    return ToolUse(tools=_named(functions, tools, param), web_search=search if searches else None, must_call=must_call)


def _named(references: Sequence[ToolObject], tools: dict[str, Tool], param: str) -> tuple[Tool, ...]:
    names = dict.fromkeys((reference.function or reference).name for reference in references)
    if unknown := [name for name in names if name is None or name not in tools]:
        raise _not_found(unknown[0], param)
    return tuple(tools[name] for name in names if name is not None)


def _not_found(name: str | None, param: str) -> InvalidRequest:
    return InvalidRequest(f"Tool choice '{name}' not found in 'tools' parameter.", code="invalid_value", param=param)
