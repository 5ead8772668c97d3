"""A `TurnRequest` → the parameters of `thread/start` and `turn/start` in versions without injection (v2-early)."""

from collections.abc import Iterable, Sequence
from typing import assert_never

from turnbridge.codex.legacy.flat_history import NO_WORKSPACE, developer_instructions, flat_config
from turnbridge.codex.protocol.capabilities import Capabilities
from turnbridge.codex.protocol.encode import tool_output, turn_start_params
from turnbridge.codex.protocol.permissions import STRICT, HostRules
from turnbridge.codex.protocol.tools import ToolNames, dynamic_tools, with_whole_schema
from turnbridge.turn.errors import InternalFault
from turnbridge.turn.items import (
    FilePart,
    ImagePart,
    Json,
    JsonObject,
    Part,
    TextPart,
)
from turnbridge.turn.request import Tool, TurnRequest

# What the schema language of early versions has; they drop the rest, and make numbers of integers.
PLAIN_TYPES = ("string", "number", "boolean", "object", "array")
PLAIN_KEYWORDS = frozenset({"type", "description", "properties", "required", "additionalProperties", "items"})

# Fields of `turn/start` that came later.
LATER_FIELDS = ("serviceTier", "responsesapiClientMetadata")


def early_thread_params(
    request: TurnRequest,
    developer: Iterable[str],
    names: ToolNames,
    capabilities: Capabilities,
    *,
    logged_in: bool,
    rules: HostRules = STRICT,
) -> JsonObject:
    """Return a thread with the client's instructions and tools, and with as little of Codex's own as can be."""
    # With an environment, tools of Codex's own stay.
    notes = () if capabilities.environments else (NO_WORKSPACE,)
    params: JsonObject = {
        "model": request.spec.model,
        "baseInstructions": request.spec.instructions or "",
        "developerInstructions": developer_instructions((*notes, *developer)) or None,
        "approvalPolicy": rules.approval_policy,
        "sandbox": rules.sandbox,
        "experimentalRawEvents": True,
        "dynamicTools": early_tools(request.spec.tools, names, typed=capabilities.typed_tool_specs),
        "config": flat_config(request, logged_in=logged_in),
    }
    if capabilities.ephemeral:
        params["ephemeral"] = True
    if capabilities.environments:
        params["environments"] = []
    return params


def early_turn_params(
    thread_id: str, parts: Sequence[Part], request: TurnRequest, capabilities: Capabilities
) -> JsonObject:
    """Return a turn with this input."""
    params = turn_start_params(thread_id, request)
    params["input"] = [user_input(part) for part in parts]
    # Early versions ask for summaries by themselves.
    params["summary"] = request.spec.summary or "none"
    for field in LATER_FIELDS:
        if not capabilities.takes("turn/start", field):
            params.pop(field, None)
    return params


def user_input(part: Part) -> JsonObject:
    """Return a text or an image of a turn's input."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text, "text_elements": []}
        case ImagePart():
            return {"type": "image", "url": part.url}
        case FilePart():
            raise InternalFault("A file reached Codex without having been turned into text.")
        case _:
            assert_never(part)


def early_tools(tools: Sequence[Tool], names: ToolNames, *, typed: bool) -> list[Json]:
    """Return the declarations of the client's functions; what a schema loses on the way is told in the description."""
    declared = dynamic_tools(tools, names)
    if typed:
        return declared
    return [_early_tool(tool, spec) for tool, spec in zip(tools, declared, strict=True) if isinstance(spec, dict)]


def early_output(output: str | tuple[Part, ...], capabilities: Capabilities) -> JsonObject:
    """Return the answer to `item/tool/call`."""
    if capabilities.tool_reply == "contentItems":
        return tool_output(output)
    parts = (TextPart(text=output),) if isinstance(output, str) else output
    return {"output": "\n".join(part.text for part in parts if isinstance(part, TextPart)), "success": True}


def _early_tool(tool: Tool, spec: JsonObject) -> JsonObject:
    schema = spec["inputSchema"]
    return {
        "name": spec["name"],
        "description": spec["description"] if is_plain(tool.parameters) else with_whole_schema(tool),
        # Without a type, an early version would make a string of it.
        "inputSchema": {"type": "object", "properties": {}, **(schema if isinstance(schema, dict) else {})},
    }


def is_plain(schema: Json) -> bool:
    """Tell whether a schema survives early versions of Codex."""
    if not isinstance(schema, dict) or not schema.keys() <= PLAIN_KEYWORDS or schema.get("type") not in PLAIN_TYPES:
        return False
    properties = schema.get("properties", {})
    inner = [*properties.values()] if isinstance(properties, dict) else []
    inner += [schema[key] for key in ("items", "additionalProperties") if not isinstance(schema.get(key, True), bool)]
    return all(map(is_plain, inner))
