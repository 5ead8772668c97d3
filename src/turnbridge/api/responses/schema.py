"""The Responses request as clients send it, and the response object before any output.

The request has the parameters that are supported, refused or known to be ignored.
"""

from collections.abc import Container
from typing import assert_never

import msgspec

from turnbridge.api.shared.history import Content
from turnbridge.api.shared.mcp_tools import shown_server
from turnbridge.api.shared.parameters import FormatObject, Parameters
from turnbridge.api.shared.tool_choice import MCP
from turnbridge.engine.ports import Model
from turnbridge.turn import events as ev
from turnbridge.turn.items import Json, JsonObject
from turnbridge.turn.request import AnyJsonObject, JsonOfSchema, OutputFormat, PlainText, TurnRequest


class Reasoning(msgspec.Struct):
    """`reasoning`"""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class Text(msgspec.Struct):
    """`text`"""

    format: FormatObject | None = None
    verbosity: str | None = None


class ContextManagement(msgspec.Struct):
    """An entry of `context_management`."""

    type: str
    compact_threshold: int | None = None


class ConversationRef(msgspec.Struct):
    """`conversation`"""

    id: str


class ResponsesRequest(Parameters):
    """The body of `POST /v1/responses`."""

    input: str | list[JsonObject] | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationRef | None = None
    background: bool | None = None
    instructions: str | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    include: list[str] | None = None
    max_output_tokens: int | None = None
    truncation: str | None = None
    max_tool_calls: int | None = None
    stream_options: JsonObject | None = None
    prompt: JsonObject | None = None
    context_management: list[ContextManagement] | None = None

    @property
    def conversation_id(self) -> str | None:
        """Return the id of the conversation that the request belongs to."""
        given = self.conversation
        return (given.id if isinstance(given, ConversationRef) else given) or None


class MessageItem(msgspec.Struct):
    """A message; `type` may be missing."""

    role: str
    content: Content
    id: str | None = None
    phase: str | None = None


class ReasoningText(msgspec.Struct):
    """A part of a reasoning item."""

    text: str


class ReasoningItem(msgspec.Struct):
    """A reasoning item of an earlier answer."""

    id: str | None = None
    summary: list[ReasoningText] = []
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None


class FunctionCallItem(msgspec.Struct):
    """A call of a function."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    id: str | None = None


class FunctionCallOutputItem(msgspec.Struct):
    """The output of a client's function or custom tool."""

    call_id: str
    output: Content
    name: str | None = None
    namespace: str | None = None
    id: str | None = None


class CustomCallItem(msgspec.Struct):
    """A call of a custom tool."""

    call_id: str
    name: str
    input: str
    namespace: str | None = None
    id: str | None = None


class ToolSearchCallItem(msgspec.Struct):
    """A search for tools that the client ran."""

    call_id: str
    arguments: JsonObject


class ToolSearchOutputItem(msgspec.Struct):
    """The tools that a client found."""

    call_id: str
    tools: list[JsonObject]


class AdditionalToolsItem(msgspec.Struct):
    """Tools that a client declares in its input."""

    tools: list[JsonObject]


def usage_object(usage: ev.Usage) -> JsonObject:
    """Return the usage of a response."""
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def envelope(
    body: ResponsesRequest, turn: TurnRequest, model: Model, *, response_id: str, created_at: int
) -> JsonObject:
    """Return every field of the response object, with the values in force, not those that were asked for."""
    summary = None if turn.spec.summary == "none" else turn.spec.summary
    conversation, strict = body.conversation_id, _strict_functions(turn)
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "background": bool(body.background),
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": turn.spec.instructions,
        "max_output_tokens": turn.max_output_tokens,
        "max_tool_calls": turn.max_tool_calls,
        "model": turn.spec.model,
        "output": [],
        "parallel_tool_calls": turn.parallel_calls,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": turn.spec.effort or model.default_effort, "summary": summary},
        "safety_identifier": body.safety_identifier,
        "service_tier": turn.spec.service_tier or "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": shown_format(turn.spec.output), "verbosity": turn.spec.verbosity or "medium"},
        "tool_choice": body.tool_choice or "auto",
        "tools": [_declared(tool, strict) for tool in body.tools or []],
        "top_logprobs": 0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
        **({} if conversation is None else {"conversation": {"id": conversation}}),
    }


def _strict_functions(turn: TurnRequest) -> set[Json]:
    return {tool.name for tool in turn.spec.tools if tool.strict and tool.namespace is None}


def _declared(tool: JsonObject, strict: Container[Json]) -> JsonObject:
    """Return a tool as it was declared; a function always has `description` and `strict`, by the rule in force."""
    if tool.get("type") == MCP:
        return shown_server(tool)
    if tool.get("type") != "function":
        return tool
    given = tool.get("strict")
    return {"description": None, **tool, "strict": tool.get("name") in strict if given is None else given is True}


def shown_format(output: OutputFormat) -> JsonObject:
    """Return the format of the answer as the response shows it."""
    match output:
        case PlainText():
            return {"type": "text"}
        case AnyJsonObject():
            return {"type": "json_object"}
        case JsonOfSchema(name=name, description=about, schema=schema, strict=strict):
            return {"type": "json_schema", "name": name, "description": about, "schema": schema, "strict": strict}
        case _:
            assert_never(output)
