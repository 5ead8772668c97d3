"""Tools and `tool_choice` of a Messages request, put in the words of the shared decoder."""

from collections.abc import Sequence

from turnbridge.api.anthropic import schema
from turnbridge.api.shared.schema_budget import SchemaChecker
from turnbridge.api.shared.tool_choice import ToolUse
from turnbridge.api.shared.tools import MAX_TOOLS, decode_tools
from turnbridge.api.shared.validation import check_length, convert, missing, one_of, unknown_fields
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject, replace

CUSTOM = (None, "custom")
WEB_SEARCH = "web_search_"
CHOICES = ("auto", "any", "tool", "none")
SEARCH: JsonObject = {"type": "web_search"}


def decode_tool_use(
    declared: Sequence[JsonObject] | None, choice: schema.ToolChoice | None, schemas: SchemaChecker
) -> tuple[ToolUse, dict[str, None]]:
    """Return the tools that the client's choice allows, and the fields that have no effect."""
    check_length(declared or (), MAX_TOOLS, param="tools")
    tools: list[JsonObject] = []
    ignored: dict[str, None] = {}
    strict: set[str | None] = set()
    searches: list[str] = []
    for index, given in enumerate(declared or ()):
        param, kind = f"tools[{index}]", given.get("type")
        if kind in CUSTOM:
            function = convert(given, schema.FunctionTool, param=param)
            tools.append(_function(function))
            strict |= {function.name} if function.strict else set()
        elif isinstance(kind, str) and kind.startswith(WEB_SEARCH):
            search = convert(given, schema.WebSearchTool, param=param)
            tools.append(_web_search(search))
            searches.append(search.name)
        else:
            raise _unknown_tag(kind, param)
        shape = schema.FunctionTool if kind in CUSTOM else schema.WebSearchTool
        ignored |= dict.fromkeys(f"tools[].{name}" for name in unknown_fields(given, shape))
    use = decode_tools(tools, _choice(choice, searches), schemas)
    # Unlike OpenAI's, a strict tool of this API may have optional parameters: its calls are checked by its own schema.
    allowed = tuple(replace(tool, strict=True) if tool.name in strict else tool for tool in use.tools)
    return replace(use, tools=allowed), ignored


def _function(tool: schema.FunctionTool) -> JsonObject:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
    }


def _web_search(tool: schema.WebSearchTool) -> JsonObject:
    domains: list[Json] = [*(tool.allowed_domains or ())]
    return {**SEARCH, "filters": {"allowed_domains": domains}, "user_location": tool.user_location}


def _choice(choice: schema.ToolChoice | None, searches: Sequence[str]) -> str | JsonObject | None:
    if choice is None:
        return None
    match one_of(choice.type, CHOICES, param="tool_choice.type"):
        case "any":
            return "required"
        case "tool" if choice.name is None:
            raise missing("tool_choice.name")
        case "tool" if choice.name in searches:
            return {"type": "allowed_tools", "mode": "required", "tools": [SEARCH]}
        case "tool":
            return {"type": "function", "name": choice.name}
        case kind:
            return kind


def _unknown_tag(kind: Json, param: str) -> InvalidRequest:
    """Return the refusal of a tool in Anthropic's words: at `Input tag`, Claude Code asks again without the tool."""
    return InvalidRequest(
        f"{param}: Input tag '{kind}' found using 'type' does not match any of the expected tags: 'custom', "
        "'web_search_20250305', 'web_search_20260209'. Codex can run no other tool of Anthropic's.",
        code="unsupported_tool",
        param=f"{param}.type",
    )
