"""Histories and tools as text, for versions of Codex that cannot inject items or declare tools; and their recipe.

A history is one user input of text and images. A call or output is a pair of tags with JSON between them. `<` and `>`
are escaped inside the JSON, so that no name, argument or output can contain a tag.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

import jsonschema_rs

from turnbridge.codex.protocol.encode import NO_WINDOW, SWITCHED_OFF, image_of, thread_config
from turnbridge.codex.protocol.tool_names import RESERVED_NAMES, ToolNames
from turnbridge.scripted_model.schema_sample import NoSample, sample
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
    BETWEEN_MESSAGES,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Json,
    JsonObject,
    Message,
    Part,
    RawItem,
    Reasoning,
    TextPart,
)
from turnbridge.turn.json_schema import resolve_reference, simple_size
from turnbridge.turn.request import Tool, TurnRequest

OPEN_CALL = "<tool_call>"
CLOSE_CALL = "</tool_call>"


def example_call(name: str, arguments: Json) -> str:
    """Return a call as the model is asked to write it."""
    return f"{OPEN_CALL}{tagless_json({'name': name, 'arguments': compact_json(arguments)})}{CLOSE_CALL}"


def render_call(call_id: str, name: str, arguments: str, namespace: str | None = None) -> str:
    """Return an earlier call of the model; `arguments` is JSON text."""
    place: JsonObject = {} if namespace is None else {"namespace": namespace}
    call = tagless_json({"call_id": call_id, **place, "name": name, "arguments": arguments})
    return f"{OPEN_CALL}{call}{CLOSE_CALL}"


def render_output(call_id: str, name: str, output_text: str) -> str:
    """Return the output of an earlier call."""
    output = tagless_json({"call_id": call_id, "name": name, "output": output_text})
    return f"<tool_output>{output}</tool_output>"


def compact_json(value: Json) -> str:
    """Return JSON without spaces, in readable characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tagless_json(value: JsonObject) -> str:
    """Return JSON without `<` and `>`, which it has only inside strings."""
    return compact_json(value).replace("<", "\\u003c").replace(">", "\\u003e")


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
# Removed from the rules if the model may search.
FORBIDDEN_SEARCH = "web_search, "

REQUIRED = "Tool choice is required: you MUST emit at least one <tool_call>."
REQUIRED_OR_SEARCH = "Tool choice is required: you MUST emit at least one <tool_call> or search the web."
SEVERAL_CALLS = "To make several calls at once, emit a <tool_call> block of its own for each of them."
ONE_CALL = "Emit at most one <tool_call> block in an answer."


def tool_instructions(tools: Sequence[Tool], *, must_call: bool, parallel_calls: bool, web_search: bool = False) -> str:
    """Return the instructions for calling functions; with `web_search` the model also has the provider's own."""
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
    """Return the demand for a call; a single function is named."""
    if web_search:
        return REQUIRED_OR_SEARCH
    return REQUIRED if len(tools) > 1 else f"Tool choice is forced: you MUST call {compact_json(tools[0].name)}."


def _guidance(tool: Tool) -> Iterator[str]:
    yield f"Tool: {tool.name}"
    if tool.description.strip():
        yield f"Description: {tool.description}"
    yield "Parameters:"
    yield from summary_lines(tool.parameters)
    # Validating against any other schema may take for ever.
    arguments = example_arguments(tool.parameters) if simple_size(tool.parameters) is not None else None
    if arguments is not None:
        yield "Example tool_call:"
        yield example_call(tool.name, arguments)


# The references that are followed for one parameter: people write two or three.
MOST_REFERENCES = 30
RESOLVED = frozenset({"$ref", "allOf", "anyOf", "oneOf", "$defs", "definitions"})


def summary_lines(parameters: JsonObject) -> list[str]:
    """Return a line for each parameter: its name, whether it is required, its type and its description."""
    plain = _plain(parameters, parameters, set())
    properties = plain.get("properties")
    if plain.get("type") != "object" and not isinstance(properties, dict):
        return [f"- (schema) {compact_json(plain)}"]
    if not isinstance(properties, dict) or not properties:
        return ["- (no parameters)"]
    required = _list(plain.get("required"))
    return [_summary_line(name, schema, parameters, name in required) for name, schema in properties.items()]


def _summary_line(name: str, schema: Json, root: JsonObject, required: bool) -> str:
    plain = _plain(schema, root, set())
    implied = "object" if "properties" in plain else "array" if "items" in plain else "unknown"
    kinds = plain.get("type", implied)
    kind = "|".join(map(str, kinds)) if isinstance(kinds, list) else kinds
    line = f"- {name} ({'required' if required else 'optional'}, {kind})"
    description = plain.get("description")
    about = description.strip() if isinstance(description, str) else ""
    return f"{line}: {about}" if about else line


def _plain(schema: Json, root: JsonObject, followed: set[str]) -> JsonObject:
    """Return one flat schema: references followed, `allOf` merged, the first alternative chosen that is not null."""
    if not isinstance(schema, dict) or len(followed) > MOST_REFERENCES:
        return {}
    plain: JsonObject = {key: value for key, value in schema.items() if key not in RESOLVED}
    parts = _list(schema.get("allOf"))
    for union in (_list(schema.get("anyOf")), _list(schema.get("oneOf"))):
        parts = [*parts, *sorted(union, key=lambda branch: branch == {"type": "null"})[:1]]
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in followed:
        followed.add(reference)
        parts = [resolve_reference(root, reference), *parts]
    for part in parts:
        for key, value in _plain(part, root, followed).items():
            mine = plain.setdefault(key, value)
            if key == "properties" and isinstance(mine, dict) and isinstance(value, dict):
                plain[key] = {**mine, **value, **mine}
            elif key == "required":
                plain[key] = [*_list(mine), *_list(value)]
    return plain


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


# A larger example is no help.
MOST_EXAMPLE_VALUES = 300


def example_arguments(parameters: JsonObject) -> JsonObject | None:
    """Return arguments that conform to a simple schema; None if none are found.

    An example that breaks the schema teaches the model to break it, so it is validated.
    """
    schema: JsonObject = {**_plain(parameters, parameters, set()), "type": "object"}
    try:
        arguments = sample(schema, text="example", most=MOST_EXAMPLE_VALUES)
    except NoSample:
        return None
    validator = jsonschema_rs.validator_cls_for(parameters)(parameters, offline=True, validate_formats=True)
    return arguments if isinstance(arguments, dict) and validator.is_valid(arguments) else None


PREAMBLE = (
    "Below is a conversation, oldest first: each message is a <turn> with its role; calls of tools and their outputs "
    'stand between the turns. Where a message itself has such a tag, the tag has a backslash after its "<". '
    "Go on as the assistant: write only its next message, without a <turn> around it."
)

# What a model, which reads less exactly than a parser, could take for a tag.
TAG = re.compile(r"<(?=\\*\s*/?\s*(?:turn|raw_item|tool_call|tool_output)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatHistory:
    """A history as the developer's instructions and one user input."""

    developer: tuple[str, ...]
    """One text for each developer message."""
    parts: tuple[Part, ...]
    """The texts and images of the user input."""


def flat_history(items: Sequence[Item], names: ToolNames | None = None) -> FlatHistory:
    """Return a flattened history, under the names of functions that the model knows."""
    developer = tuple(_text(item) for item in items if _is_instruction(item))
    said = [item for item in items if not _is_instruction(item) and not isinstance(item, Reasoning)]
    match said:
        case []:
            # Codex does not call the model without a user input.
            return FlatHistory(developer=(), parts=_transcript(items, names))
        case [Message(role="user") as only] if not _text(only).startswith(PREAMBLE):
            return FlatHistory(developer=developer, parts=only.parts or (TextPart(text=""),))
        case _:
            return FlatHistory(developer=developer, parts=_transcript(said, names))


def flat_outputs(outputs: Sequence[FunctionCallOutput], functions: dict[str, str]) -> tuple[Part, ...]:
    """Return outputs for a conversation that holds their calls; `functions` has the function of each call."""
    return _joined([part for output in outputs for part in _output(output, functions)])


def _is_instruction(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "developer" and not any(map(_is_image, item.parts))


def _transcript(items: Sequence[Item], names: ToolNames | None) -> tuple[Part, ...]:
    return _joined([TextPart(text=PREAMBLE), *_blocks(items, names)])


def _blocks(items: Sequence[Item], names: ToolNames | None) -> Iterable[Part]:
    functions: dict[str, str] = {}
    for item in items:
        match item:
            case Message():
                yield from _turn(item)
            case FunctionCall():
                name = functions[item.call_id] = item.name if names is None else names.to_codex(item.name)
                yield TextPart(text=render_call(item.call_id, name, item.arguments, item.namespace))
            case FunctionCallOutput():
                yield from _output(item, functions)
            case RawItem():
                yield TextPart(text=f"<raw_item>{tagless_json(item.item)}</raw_item>")
            case Reasoning():
                pass
            case _:
                assert_never(item)


def _turn(message: Message) -> Iterable[Part]:
    yield TextPart(text=f'<turn role="{message.role}">')
    # Joined first: a tag may be split across two texts.
    for part in _joined(message.parts):
        yield TextPart(text=TAG.sub(r"<\\", part.text)) if isinstance(part, TextPart) else part
    yield TextPart(text="</turn>")


def _output(output: FunctionCallOutput, functions: dict[str, str]) -> Iterable[Part]:
    parts: tuple[Part, ...] = (TextPart(text=output.output),) if isinstance(output.output, str) else output.output
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    yield TextPart(text=render_output(output.call_id, functions.get(output.call_id, ""), text))
    yield from filter(_is_image, parts)


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join adjacent texts, each on its own lines."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            joined[-1] = TextPart(text=f"{last.text}\n{part.text}")
        else:
            joined.append(part if isinstance(part, TextPart) else image_of(part))
    return tuple(joined)


def _is_image(part: Part) -> bool:
    return isinstance(part, ImagePart)


def _text(message: Item) -> str:
    parts = message.parts if isinstance(message, Message) else ()
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


# The names of older switches, and features that later versions lack.
SWITCHED_OFF_EARLIER = (
    *("apply_patch_freeform", "child_agents_md", "collab", "collaboration_modes", "connectors", "shell_snapshot"),
    *("unified_exec",),
)

# Without a catalogue from the gateway, Codex's own sets the verbosity; this is the provider's default.
USUAL_VERBOSITY = "medium"

# Tools that cannot be disabled. The provider would see a client's function of the same name as a duplicate.
BUILT_IN = (
    *("apply_patch", "list_mcp_resource_templates", "list_mcp_resources", "read_mcp_resource", "request_user_input"),
    *("update_plan", "view_image"),
)

NO_WORKSPACE = (
    "You are used through an API, by a program on another machine. There is no project, file or shell here: never "
    f"call {', '.join(BUILT_IN[:-1])} or {BUILT_IN[-1]}, and pay no attention to notes about a sandbox, approvals "
    "or a working directory."
)


def check_tools(request: TurnRequest) -> None:
    """Refuse tools that older versions have no place for."""
    if grouped := [tool.namespace for tool in request.spec.tools if tool.namespace is not None]:
        problem = f"This version of Codex has no namespaces, and '{grouped[0].name}' is one."
        advice = "Declare its functions by themselves, or use the Codex that comes with Turnbridge."
        raise InvalidRequest(f"{problem} {advice}", code="unsupported_tool", param="tools")


def tool_names(request: TurnRequest) -> ToolNames:
    """Return names for the client's functions that differ from Codex's tools."""
    return ToolNames.of(request.spec.tools, reserved=RESERVED_NAMES | frozenset(BUILT_IN))


def flat_config(request: TurnRequest, *, logged_in: bool) -> JsonObject:
    """Return the settings of a thread, under the names of every version; each ignores those that it does not know."""
    features: JsonObject = dict.fromkeys((*SWITCHED_OFF, *SWITCHED_OFF_EARLIER), False)
    # Before each thread the oldest ask OpenAI for its models, for seconds; without a login that must fail.
    features["remote_models"] = logged_in
    return {
        "model_verbosity": USUAL_VERBOSITY,
        **thread_config(request),
        "features": features,
        "model_context_window": NO_WINDOW,
        "model_auto_compact_token_limit": NO_WINDOW,
    }


def developer_instructions(texts: Iterable[str]) -> str:
    """Return the developer's texts as one."""
    return BETWEEN_MESSAGES.join(filter(None, texts))
