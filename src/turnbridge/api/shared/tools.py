"""The tools that a client declares, in the vocabularies of both APIs: nested or flat, current or legacy.

Codex declares functions only. A custom (free-form) tool is declared as a function with one text, and so is the search
for tools that a client runs itself.
"""

import json
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from turnbridge.api.shared.mcp_tools import MAX_SERVERS, decode_server, ignored_fields
from turnbridge.api.shared.schema_budget import SchemaChecker, allows_strict
from turnbridge.api.shared.tool_choice import (
    IMAGE_GENERATION,
    MCP,
    WEB_SEARCH_TYPES,
    Function,
    ToolObject,
    ToolUse,
    chosen_tools,
)
from turnbridge.api.shared.validation import check_length, convert, missing, one_of, unknown_value
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import CUSTOM_ARGUMENT, NO_NAMESPACE, Json, JsonObject, canonical_json, replace
from turnbridge.turn.mcp import McpServer
from turnbridge.turn.request import Namespace, Tool, ToolKey, WebSearch

# The parameters of a function that declares none.
NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}
CUSTOM_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {CUSTOM_ARGUMENT: {"type": "string"}},
    "required": [CUSTOM_ARGUMENT],
    "additionalProperties": False,
}
SEARCH_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
}

# OpenAI accepts 128. Clients with many MCP servers have some hundreds.
MAX_TOOLS = 1024

CONTEXT_SIZES = ("low", "medium", "high")
FORMATS = ("text", "grammar")
GRAMMARS = {"lark": "Lark grammar", "regex": "regular expression"}

# Tuples: a type may be any JSON, also what is not hashable.
FUNCTIONS = ("function", "custom")
NAMESPACE = "namespace"
TOOL_SEARCH = "tool_search"
# What Responses has besides functions, custom tools and the web search.
OF_RESPONSES = (NAMESPACE, IMAGE_GENERATION, MCP, TOOL_SEARCH)

RUN_IT_YOURSELF = "Nothing is run on this server for a client: declare a function, and run what the model calls."
# Why tools of OpenAI's own are not carried, and what to do instead.
WHY = {
    IMAGE_GENERATION: "Images are made on /v1/responses and /v1/images/generations only.",
    "code_interpreter": RUN_IT_YOURSELF,
    "computer_use": RUN_IT_YOURSELF,
    "computer_use_preview": RUN_IT_YOURSELF,
    "computer": RUN_IT_YOURSELF,
    "shell": RUN_IT_YOURSELF,
    "local_shell": RUN_IT_YOURSELF,
    "apply_patch": "Declare it as a custom tool, and apply the patch that the model writes.",
    "file_search": "No files are searched here. Send the text, or declare a function that searches.",
    "mcp": "MCP servers are called on /v1/responses only.",
}


class WebSearchFilters(Struct):
    """`filters` of a web search."""

    allowed_domains: list[str] | None = None


class WebSearchOptions(Struct):
    """A web search tool, or `web_search_options`."""

    search_context_size: Json = None
    user_location: JsonObject | None = None
    filters: WebSearchFilters | None = None
    external_web_access: bool | None = None


class Grammar(Struct):
    """What the text of a custom tool must match."""

    syntax: Json = None
    definition: str | None = None


class CustomFormat(Grammar):
    """`format` of a custom tool: a grammar is flat in Responses, and nested in Chat Completions."""

    type: Json = None
    grammar: Grammar | None = None


NO_TOOLS = ToolUse()


def decode_tools(
    declared: Sequence[JsonObject] | None,
    choice: str | JsonObject | None,
    schemas: SchemaChecker,
    *,
    legacy: bool = False,
    also: Collection[str] = (),
    strict: bool = False,
    found: Mapping[str, Sequence[JsonObject]] | None = None,
) -> ToolUse:
    """Return the declared tools that the client's choice allows.

    `legacy` are `functions` and `function_call`; `also` are the types that the API has besides functions, custom tools
    and the web search; `strict` takes functions for strict ones if they do not say; `found` are the tools
    that items of the history bring, by their place.
    """
    if not declared and not found and choice is None:
        return NO_TOOLS
    place, choice_param = ("functions", "function_call") if legacy else ("tools", "tool_choice")
    if not legacy:
        _check_carried({place: declared or (), **(found or {})}, also)
    tools = _Tools(schemas, strict_by_default=strict)
    tools.add_all(declared or (), place, legacy=legacy)
    for where, later in (found or {}).items():
        tools.add_all(later, where, again=True)
    check_length(tuple(tools.by_key), MAX_TOOLS, param="tools")
    if legacy and isinstance(choice, dict) and choice.get("name"):
        choice = {**choice, "type": "function"}
    servers = tuple(tools.servers.values())
    every = ToolUse(
        tools=tuple(tools.by_key.values()),
        web_search=tools.web_search,
        image_generation=tools.image_generation,
        servers=servers,
    )
    use = every if choice is None else chosen_tools(choice, every, choice_param)
    return use if choice == "none" else replace(use, ignored=tuple(tools.ignored))


def _check_carried(lists: Mapping[str, Sequence[JsonObject]], also: Collection[str]) -> None:
    """Refuse all tools that Codex cannot carry at once, so that a client needs not find them one by one."""
    refused: dict[str, str] = {}
    top = (*FUNCTIONS, *WEB_SEARCH_TYPES, *also)
    for place, given in lists.items():
        for index, tool in enumerate(given):
            kind, members = tool.get("type"), tool.get("tools")
            if kind not in top:
                refused[f"{place}[{index}]"] = f"'{kind}'"
            elif kind == NAMESPACE and isinstance(members, list):
                inside = {number: one.get("type") for number, one in enumerate(members) if isinstance(one, dict)}
                others = {number: inner for number, inner in inside.items() if inner not in FUNCTIONS}
                refused |= {f"{place}[{index}].tools[{number}]": f"'{inner}'" for number, inner in others.items()}
    if refused:
        places, (*first, last) = [*refused], [*dict.fromkeys(refused.values())]
        kinds = f"{', '.join(first)} and {last}" if first else last
        where = f" ({', '.join(places)})" if len(places) > 1 else ""
        named = ["namespaces of these" if kind == NAMESPACE else f"'{kind}'" for kind in also]
        carried = ["Functions", "custom tools", *named]
        message = f"Tools of type {kinds} cannot be carried to Codex{where}. {', '.join(carried)} and 'web_search' can."
        reasons = dict.fromkeys(WHY[kind] for kind in (one.strip("'") for one in refused.values()) if kind in WHY)
        message = " ".join([message, *reasons])
        raise InvalidRequest(message, code="unsupported_tool", param=f"{places[0]}.type")


class _Tools:
    """The tools of one request, as far as they are read."""

    def __init__(self, schemas: SchemaChecker, *, strict_by_default: bool) -> None:
        self._schemas = schemas
        self._strict_by_default = strict_by_default
        self._found: set[bytes] = set()
        self.by_key: dict[ToolKey, Tool] = {}
        self.web_search: WebSearch | None = None
        self.image_generation = False
        self.servers: dict[str, McpServer] = {}
        self.ignored: list[str] = []

    def add_all(self, given: Sequence[JsonObject], place: str, *, legacy: bool = False, again: bool = False) -> None:
        """Read a list of tools; `again` tells whether it may repeat some."""
        check_length(given, MAX_TOOLS, param=place)
        for index, one in enumerate(given):
            param = f"{place}[{index}]"
            kind = "function" if legacy else one.get("type")
            if again and self._is_known(one):
                continue
            if kind in WEB_SEARCH_TYPES:
                self.web_search = decode_web_search(convert(one, WebSearchOptions, param=param), param=param)
            elif kind == IMAGE_GENERATION:
                self.image_generation = True
                # Codex chooses the size and the quality.
                self.ignored += [f"{param}.{name}" for name in one if name != "type"]
            elif kind == MCP:
                self._add_server(one, param, again=again)
            elif kind == NAMESPACE:
                self._add_group(convert(one, ToolObject, param=param), param, again=again)
            else:
                self._add(convert(one, ToolObject, param=param), param, again=again, legacy=legacy)

    def _is_known(self, given: JsonObject) -> bool:
        """Tell whether the very same was found before: a long history may have found it many times."""
        written = canonical_json(given)
        if written in self._found:
            return True
        self._found.add(written)
        return False

    def _add_server(self, given: JsonObject, param: str, *, again: bool) -> None:
        server = decode_server(given, param)
        if server.label in self.servers and not again:
            message = f"Two MCP servers are labelled '{server.label}'."
            raise InvalidRequest(message, code="duplicate_tool_name", param=f"{param}.server_label")
        self.servers[server.label] = server
        check_length(tuple(self.servers), MAX_SERVERS, param="tools")
        self.ignored += ignored_fields(given, param)

    def _add_group(self, group: ToolObject, param: str, *, again: bool) -> None:
        if not group.name:
            raise missing(f"{param}.name")
        if not group.tools:
            raise missing(f"{param}.tools")
        namespace = None
        if group.name not in NO_NAMESPACE:
            namespace = Namespace(name=group.name, description=group.description or "")
        elif group.description:
            # Its functions are those without a namespace.
            self.ignored.append(f"{param}.description")
        for index, tool in enumerate(group.tools):
            self._add(tool, f"{param}.tools[{index}]", again=again, namespace=namespace)

    def _add(
        self, tool: ToolObject, param: str, *, again: bool, legacy: bool = False, namespace: Namespace | None = None
    ) -> None:
        if tool.defer_loading and not again:
            self.ignored.append(f"{param}.defer_loading")
        if legacy or tool.type == "function":
            decoded = _function(tool, param, self._schemas, strict_by_default=self._strict_by_default)
        elif tool.type == "custom":
            decoded = self._custom(tool, param)
        elif tool.execution == "client":
            decoded = self._search(tool, param)
        else:
            # Every tool is declared from the beginning, so there is nothing to search for.
            self.ignored.append(param)
            return
        decoded = replace(decoded, namespace=namespace)
        if decoded.key in self.by_key and not again:
            message = f"Two tools are named '{decoded.name}'."
            raise InvalidRequest(message, code="duplicate_tool_name", param="tools")
        self.by_key[decoded.key] = decoded

    def _custom(self, tool: ToolObject, param: str) -> Tool:
        custom, place = (tool, param) if tool.custom is None else (tool.custom, f"{param}.custom")
        if not custom.name:
            raise missing(f"{place}.name")
        about = [custom.description] if custom.description else []
        about.append(f"Free-form tool: write its whole text, and nothing else, into the string `{CUSTOM_ARGUMENT}`.")
        if (grammar := _grammar(custom, f"{place}.format")) is not None:
            self.ignored.append(f"{place}.format")
            about.append(grammar)
        description = "\n\n".join(about)
        return Tool(name=custom.name, description=description, parameters=CUSTOM_PARAMETERS, strict=True, kind="custom")

    def _search(self, tool: ToolObject, param: str) -> Tool:
        given = SEARCH_PARAMETERS if tool.parameters is None else tool.parameters
        place = f"{param}.parameters"
        schema = self._schemas.check(given, strict=False, param=place, name=TOOL_SEARCH, use="function")
        _check_allows_objects(schema, TOOL_SEARCH, place)
        return Tool(
            name=TOOL_SEARCH, description=tool.description or "", parameters=schema, strict=True, kind="tool_search"
        )


def _grammar(custom: Function, param: str) -> str | None:
    """Return what the model is told of a custom tool's format, which nobody enforces."""
    if custom.format is None:
        return None
    given = convert(custom.format, CustomFormat, param=param)
    if given.type not in FORMATS:
        raise unknown_value(given.type, FORMATS, param=f"{param}.type")
    if given.type == "text":
        return None
    grammar, place = (given, param) if given.grammar is None else (given.grammar, f"{param}.grammar")
    if not isinstance(grammar.syntax, str) or grammar.syntax not in GRAMMARS:
        raise unknown_value(grammar.syntax, tuple(GRAMMARS), param=f"{place}.syntax")
    if grammar.definition is None:
        raise missing(f"{place}.definition")
    return f"The text must match this {GRAMMARS[grammar.syntax]}:\n{grammar.definition}"


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


def _function(tool: ToolObject, param: str, schemas: SchemaChecker, *, strict_by_default: bool) -> Tool:
    function, place = (tool, param) if tool.function is None else (tool.function, f"{param}.function")
    name, strict, param = function.name, function.strict is True, f"{place}.parameters"
    if not name:
        raise missing(f"{place}.name")
    given = NO_PARAMETERS if function.parameters is None else function.parameters
    schema = schemas.check(given, strict=strict, param=param, name=name, use="function")
    _check_allows_objects(schema, name, param)
    if function.strict is None and strict_by_default:
        strict = allows_strict(schema)
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
