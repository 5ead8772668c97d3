"""The Responses request as clients send it. Everything that Codex or the gateway can meet is named here."""

import msgspec

from turnbridge.turn.items import JsonObject


class Reasoning(msgspec.Struct):
    """`reasoning`"""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class Text(msgspec.Struct):
    """`text`"""

    format: JsonObject | None = None
    verbosity: str | None = None


class StateWishes(msgspec.Struct):
    """The part of the body that says what to continue and what to keep."""

    input: str | list[JsonObject] | None = None
    previous_response_id: str | None = None
    conversation: str | JsonObject | None = None
    background: bool | None = None
    store: bool | None = None


class ResponsesRequest(StateWishes):
    """The body of `POST /v1/responses`."""

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
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_logprobs: int | None = None
    stream_options: JsonObject | None = None
    prompt: JsonObject | None = None


class MessageItem(msgspec.Struct):
    """A message; `type` may be missing."""

    role: str
    content: str | list[JsonObject | str]
    id: str | None = None
    phase: str | None = None


class ReasoningText(msgspec.Struct):
    """A piece of a reasoning item."""

    text: str


class ReasoningItem(msgspec.Struct):
    """A reasoning item that the client gives back."""

    id: str | None = None
    summary: list[ReasoningText] = []
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None


class FunctionCallItem(msgspec.Struct):
    """A call that the model made."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    id: str | None = None


class FunctionCallOutputItem(msgspec.Struct):
    """What the client's function answered."""

    call_id: str
    output: str | list[JsonObject | str]
    name: str | None = None
    namespace: str | None = None
    id: str | None = None
