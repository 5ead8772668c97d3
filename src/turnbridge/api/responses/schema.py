"""The Responses request as clients send it: parameters that are supported, refused or known to be ignored."""

import msgspec

from turnbridge.api.shared.output_format import FormatObject
from turnbridge.api.shared.parts import Content
from turnbridge.turn.items import JsonObject


class Reasoning(msgspec.Struct):
    """`reasoning`"""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class Text(msgspec.Struct):
    """`text`"""

    format: FormatObject | None = None
    verbosity: str | None = None


class ConversationRef(msgspec.Struct):
    """`conversation`"""

    id: str


class ResponsesRequest(msgspec.Struct):
    """The body of `POST /v1/responses`."""

    input: str | list[JsonObject] | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationRef | None = None
    background: bool | None = None
    store: bool | None = None
    model: str | None = None
    instructions: str | None = None
    stream: bool | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    include: list[str] | None = None
    max_output_tokens: int | None = None
    stop: str | list[str] | None = None
    metadata: JsonObject | None = None
    user: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    truncation: str | None = None
    tool_choice: str | JsonObject | None = None
    tools: list[JsonObject] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    temperature: int | float | None = None
    top_p: int | float | None = None
    presence_penalty: int | float | None = None
    frequency_penalty: int | float | None = None
    top_logprobs: int | None = None
    stream_options: JsonObject | None = None
    prompt: JsonObject | None = None


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


class FunctionCallOutputItem(msgspec.Struct):
    """The output of a client's function or custom tool."""

    call_id: str
    output: Content
    name: str | None = None
    namespace: str | None = None
    id: str | None = None
