"""The Messages request as clients send it. Anthropic calls its fields an open list: others are ignored and named."""

from typing import TypeAlias

import msgspec

from turnbridge.turn.items import Json, JsonObject

Content: TypeAlias = str | list[JsonObject]


class InputMessage(msgspec.Struct):
    """A message of the history; `system` may come at any place."""

    role: str
    content: Content


class Thinking(msgspec.Struct):
    """`thinking`"""

    type: str
    budget_tokens: int | None = None
    display: str | None = None


class Format(msgspec.Struct):
    """`output_config.format`"""

    type: Json = None
    schema: Json = None


class OutputConfig(msgspec.Struct):
    """`output_config`"""

    effort: str | None = None
    format: Format | None = None


class ToolChoice(msgspec.Struct):
    """`tool_choice`"""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Metadata(msgspec.Struct):
    """`metadata`"""

    user_id: str | None = None


class MessagesRequest(msgspec.Struct):
    """The body of `POST /v1/messages`, and of `POST /v1/messages/count_tokens`."""

    model: str | None = None
    messages: list[InputMessage] | None = None
    max_tokens: int | None = None
    system: Content | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None
    """The earlier place of `output_config.format`."""
    tools: list[JsonObject] | None = None
    tool_choice: ToolChoice | None = None
    metadata: Metadata | None = None
    temperature: int | float | None = None
    top_p: int | float | None = None
    top_k: int | None = None
    service_tier: str | None = None
    speed: str | None = None
    cache_control: Json = None
    """Here and on blocks without effect: the provider caches the beginning of every conversation by itself."""
    container: Json = None
    mcp_servers: Json = None


class FunctionTool(msgspec.Struct):
    """A tool of the client."""

    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: Json = None
    strict: bool | None = None
    cache_control: Json = None


class WebSearchTool(msgspec.Struct):
    """`web_search_*`, which the provider runs."""

    type: str
    name: str = "web_search"
    allowed_domains: list[str] | None = None
    user_location: JsonObject | None = None
    cache_control: Json = None


class TextBlock(msgspec.Struct):
    """`text`"""

    text: str
    citations: list[JsonObject] | None = None


class Source(msgspec.Struct):
    """Where an image or a document is."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    content: Content | None = None


class ImageBlock(msgspec.Struct):
    """`image`"""

    source: Source


class DocumentBlock(msgspec.Struct):
    """`document`"""

    source: Source
    title: str | None = None
    context: str | None = None


class SearchResultBlock(msgspec.Struct):
    """`search_result`"""

    source: str
    title: str
    content: list[JsonObject]


class ToolReferenceBlock(msgspec.Struct):
    """`tool_reference`"""

    tool_name: str


class ThinkingBlock(msgspec.Struct):
    """`thinking` and `redacted_thinking`"""

    thinking: str = ""
    signature: str = ""
    data: str = ""


class ToolUseBlock(msgspec.Struct):
    """`tool_use`, and `server_tool_use` of a web search"""

    id: str
    name: str
    input: JsonObject


class ToolResultBlock(msgspec.Struct):
    """`tool_result`"""

    tool_use_id: str
    content: Content | None = None
    is_error: bool | None = None
