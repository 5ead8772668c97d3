"""The requests of Ollama's API as clients send them: parameters that are supported, refused or known to be ignored."""

from typing import TypeAlias

import msgspec

from turnbridge.turn.items import Json, JsonObject

Think: TypeAlias = bool | str
"""Whether the model thinks aloud, or how much."""


class CalledFunction(msgspec.Struct):
    """The function of a call; `arguments` is an object, and a string of JSON is forgiven."""

    name: str
    arguments: JsonObject | str | None = None


class ToolCall(msgspec.Struct):
    """A call that the model made; most clients drop its id."""

    function: CalledFunction
    id: str | None = None


class ChatMessage(msgspec.Struct):
    """A message of any role. `thinking` is not read: the model's reasoning is kept with its thread."""

    role: str
    content: str | None = None
    images: list[str] | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class Options(msgspec.Struct):
    """Of `options`, what can be met; all others are named as ignored."""

    num_predict: int | None = None
    stop: str | list[str] | None = None


class Parameters(msgspec.Struct):
    """What `/api/chat` and `/api/generate` have in common."""

    model: str | None = None
    stream: bool | None = None
    format: str | JsonObject | None = None
    think: Think | None = None
    options: Options | None = None
    num_predict: int | None = None
    """Open WebUI may put it here."""
    keep_alive: int | float | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    truncate: bool | None = None
    shift: bool | None = None


class ChatRequest(Parameters):
    """The body of `POST /api/chat`."""

    messages: list[ChatMessage] | None = None
    tools: list[JsonObject] | None = None


class GenerateRequest(Parameters):
    """The body of `POST /api/generate`."""

    prompt: str | None = None
    system: str | None = None
    images: list[str] | None = None
    suffix: str | None = None
    raw: bool | None = None
    template: str | None = None
    context: list[Json] | None = None


class NamedModel(msgspec.Struct):
    """The body of `POST /api/show` and `/api/pull`; older clients send `name`."""

    model: str | None = None
    name: str | None = None
    stream: bool | None = None
