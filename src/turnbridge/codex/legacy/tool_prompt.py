"""Functions described to the model in text, for versions of Codex without declared tools."""

from collections.abc import Iterator, Sequence

from turnbridge.codex.legacy.plain_schema import plain_schema, required_names, types_of
from turnbridge.codex.legacy.schema_example import example_arguments
from turnbridge.codex.legacy.tool_blocks import compact_json, example_call
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.json_schema import simple_size
from turnbridge.turn.request import Tool

RULES = r"""Tool calling instructions:
Only emit tool calls using <tool_call>...</tool_call>.
Format: <tool_call>{"name":"TOOL_NAME","arguments":"{...}"}</tool_call>
Inside <tool_call>...</tool_call>, output ONLY a JSON object with keys "name" and "arguments".
Always emit <tool_call> blocks exactly as shown; the client executes them.
Do NOT call internal tools directly (shell, apply_patch, web_search, view_image); only emit <tool_call>.
Read-only sandbox or approval restrictions do NOT prevent emitting <tool_call> output.
Use EXACT parameter names from the schema; do NOT invent or rename keys.
Do not add any extra characters before or after the JSON (no trailing ">", no code fences).
Use exactly one opening <tool_call> and one closing </tool_call> tag.
Output must be valid JSON. Do not add extra braces or trailing characters.
Do NOT wrap the JSON object in an array (no leading "[" or trailing "]").
Bad: <tool_call>[{"name":"tool","arguments":"{...}"}]</tool_call>
Never repeat the closing tag.
Example (exact): <tool_call>{"name":"webSearch","arguments":"{\"query\":\"example\",\"chatHistory\":[]}"}</tool_call>
The "arguments" field must be a JSON string.
If a tool has no parameters, use arguments "{}".
If no tool is needed, respond with plain text."""
# Taken out of the rules if the model may search.
FORBIDDEN_SEARCH = "web_search, "

REQUIRED = "Tool choice is required: you MUST emit at least one <tool_call>."
REQUIRED_OR_SEARCH = "Tool choice is required: you MUST emit at least one <tool_call> or search the web."
SEVERAL_CALLS = "To make several calls at once, emit a <tool_call> block of its own for each of them."
ONE_CALL = "Emit at most one <tool_call> block in an answer."


def tool_instructions(tools: Sequence[Tool], *, must_call: bool, parallel_calls: bool, web_search: bool = False) -> str:
    """Return what the model is told about its functions; nothing if it has none.

    With `web_search` it may use the provider's own search besides.
    """
    if not tools:
        return ""
    lines = [RULES.replace(FORBIDDEN_SEARCH, "") if web_search else RULES]
    if must_call:
        lines.append(_choice_line(tools, web_search=web_search))
    lines.append(SEVERAL_CALLS if parallel_calls else ONE_CALL)
    if strict := [tool.name for tool in tools if tool.strict]:
        lines.append(f"Strict tools: {', '.join(strict)}. Arguments MUST conform exactly to schema.")
    lines.append("Available tools (schema):")
    lines += [f"- {tool.name}: {compact_json(tool.parameters)}" for tool in tools]
    lines.append("Per-tool guidance and examples (schema-conformant):")
    for tool in tools:
        lines += _guidance(tool)
    return "\n".join(lines)


def _choice_line(tools: Sequence[Tool], *, web_search: bool) -> str:
    """Return the demand for a call; where only one function can be meant, it is called by its name."""
    if web_search:
        return REQUIRED_OR_SEARCH
    return REQUIRED if len(tools) > 1 else f"Tool choice is forced: you MUST call {compact_json(tools[0].name)}."


def _guidance(tool: Tool) -> Iterator[str]:
    yield f"Tool: {tool.name}"
    if tool.description.strip():
        yield f"Description: {tool.description}"
    yield "Parameters:"
    yield from summary_lines(tool.parameters)
    # For any other schema, an example may take for ever to be found.
    arguments = example_arguments(tool.parameters) if simple_size(tool.parameters) is not None else None
    if arguments is not None:
        yield "Example tool_call:"
        yield example_call(tool.name, arguments)


NO_PARAMETERS = "- (no parameters)"


def summary_lines(parameters: JsonObject) -> list[str]:
    """Return a line for each parameter: its name, whether it is required, its type and what it is for."""
    said = plain_schema(parameters, parameters).said
    properties = said.get("properties")
    if said.get("type") != "object" and not isinstance(properties, dict):
        return [f"- (schema) {compact_json(said)}"]
    if not isinstance(properties, dict) or not properties:
        return [NO_PARAMETERS]
    required = required_names(said)
    return [_line(name, schema, parameters, required=name in required) for name, schema in properties.items()]


def _line(name: str, schema: Json, root: JsonObject, *, required: bool) -> str:
    said = plain_schema(schema, root).said
    line = f"- {name} ({'required' if required else 'optional'}, {_type_name(said)})"
    description = said.get("description")
    about = description.strip() if isinstance(description, str) else ""
    return f"{line}: {about}" if about else line


def _type_name(said: JsonObject) -> str:
    if types := types_of(said):
        return "|".join(types)
    if "properties" in said:
        return "object"
    return "array" if "items" in said else "unknown"
