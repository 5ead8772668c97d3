"""The Chat Completions request as clients send it: parameters that are supported, refused or known to be ignored."""

import msgspec

from turnbridge.api.shared.history import Content
from turnbridge.api.shared.parameters import FormatObject, Parameters
from turnbridge.api.shared.tools import WebSearchOptions
from turnbridge.turn.items import JsonObject


class FunctionRef(msgspec.Struct):
    """The function of a call."""

    name: str
    arguments: str


class CustomRef(msgspec.Struct):
    """The custom tool of a call."""

    name: str
    input: str


class ToolCall(msgspec.Struct):
    """A call that the model made."""

    id: str
    function: FunctionRef | None = None
    custom: CustomRef | None = None
    type: str = "function"


class ChatMessage(msgspec.Struct):
    """A message of any role."""

    role: str
    content: Content | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: FunctionRef | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Reasoning(msgspec.Struct):
    """`reasoning`, which some clients send here as they do to Responses."""

    effort: str | None = None
    summary: str | None = None


class StreamOptions(msgspec.Struct):
    """`stream_options`"""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(Parameters):
    """The body of `POST /v1/chat/completions`."""

    messages: list[ChatMessage] | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    response_format: FormatObject | None = None
    reasoning_effort: str | None = None
    reasoning: Reasoning | None = None
    verbosity: str | None = None
    functions: list[JsonObject] | None = None
    function_call: str | JsonObject | None = None
    modalities: list[str] | None = None
    audio: JsonObject | None = None
    prediction: JsonObject | None = None
    web_search_options: WebSearchOptions | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    seed: int | None = None
