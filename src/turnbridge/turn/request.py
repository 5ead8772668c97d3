"""The request for one turn, independent of the API that it came through."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct, field

from turnbridge.turn.items import NO_NAMESPACE, Item, JsonObject, Message
from turnbridge.turn.mcp import ApprovedCall, McpServer, McpTool

# Formats are tagged, so that their JSON differs, too.


class PlainText(Struct, frozen=True, kw_only=True, tag=True):
    """The answer may be any text."""


class AnyJsonObject(Struct, frozen=True, kw_only=True, tag=True):
    """The answer must be a JSON object."""


class JsonOfSchema(Struct, frozen=True, kw_only=True, tag=True):
    """The answer must be JSON that conforms to a schema."""

    name: str
    schema: JsonObject
    description: str | None = None
    strict: bool
    """Whether the client asked for the strict subset."""
    enforced: bool
    """Whether the schema is in the strict subset, so that the provider enforces it."""


OutputFormat: TypeAlias = PlainText | AnyJsonObject | JsonOfSchema


ToolKind: TypeAlias = Literal["function", "custom", "tool_search", "mcp"]
"""What a tool is to its client; to the model all of them are functions. The gateway calls those of MCP servers."""

# A namespace, if it is one, and the name of a function in it.
ToolKey: TypeAlias = tuple[str | None, str]


class Namespace(Struct, frozen=True, kw_only=True):
    """A group of tools; two groups may have functions of the same name."""

    name: str
    description: str


class Tool(Struct, frozen=True, kw_only=True):
    """A client function that the model may call."""

    name: str
    description: str
    parameters: JsonObject
    strict: bool = False
    """Whether the client relies on arguments that conform to `parameters`."""
    namespace: Namespace | None = None
    kind: ToolKind = "function"

    @property
    def key(self) -> ToolKey:
        """Return what calls of it have in common."""
        return tool_key(self.name, self.namespace.name if self.namespace is not None else None)


def tool_key(name: str, namespace: str | None) -> ToolKey:
    """Return the key of a tool that is called by this name, in this namespace."""
    return None if namespace in NO_NAMESPACE else namespace, name


def by_key(tools: Iterable[Tool]) -> dict[ToolKey, Tool]:
    """Return tools by their key."""
    return {tool.key: tool for tool in tools}


class WebSearch(Struct, frozen=True, kw_only=True):
    """The options of the provider's web search."""

    context_size: str | None = None
    allowed_domains: tuple[str, ...] = ()
    location: dict[str, str] = field(default_factory=dict)
    live: bool = True
    """Whether pages may be fetched; otherwise only the provider's index is read."""


class ThreadSpec(Struct, frozen=True, kw_only=True):
    """What a Codex thread is made of: a thread that is kept serves only requests with the same spec."""

    client: str = ""
    """The id of the client; threads are never shared between clients."""
    account: str | None = None
    """The Codex account that it is run on, if it is not the default one."""
    model: str
    provider: str | None = None
    """The provider of the Codex configuration that is asked, if it is not the default one."""
    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    """The functions that may be called: without those that `tool_choice` excludes."""
    servers: tuple[McpServer, ...] = ()
    """The MCP servers whose tools may be called; these are among `tools` once they are listed."""
    web_search: WebSearch | None = None
    image_generation: bool = False
    """Whether the model may have Codex make images."""
    effort: str | None = None
    summary: str | None = None
    summary_needed: bool = True
    """Whether the client asked for the summary; otherwise a turn whose summary is refused is retried without it."""
    verbosity: str | None = None
    service_tier: str | None = None
    output: OutputFormat = field(default_factory=PlainText)
    allow_truncation: bool = False
    """Whether Codex may shorten the history instead of failing."""

    @property
    def served_model(self) -> tuple[str | None, str | None, str]:
        """Return the model as a provider of one account has it: another may serve it otherwise."""
        return self.account, self.provider, self.model


class Compaction(Struct, frozen=True, kw_only=True):
    """A history that is replaced by a summary before its turn, if it has more tokens than `threshold`."""

    threshold: int
    prompt: Message
    """What asks the model for the summary, after everything that is replaced."""
    kept: tuple[Item, ...]
    """What comes before the summary then."""
    introduction: str
    """The words before the summary, in its message."""
    tail: int
    """How many of the last items are not replaced: the client's new messages."""


class TurnRequest(Struct, frozen=True, kw_only=True):
    """One turn: the thread that it needs, the history, the rules for the answer, and the options of this turn."""

    spec: ThreadSpec
    items: tuple[Item, ...]

    must_call: bool = False
    """Whether an answer without a call is rejected."""
    parallel_calls: bool = True
    stop: tuple[str, ...] = ()
    max_output_tokens: int | None = None

    streamed: bool = False
    """Whether the client reads the answer while it is produced, so that no part of it can be revoked."""
    awaits_outputs: bool = True
    """Whether the client will send the outputs of its calls, so that the turn is parked for them."""
    metadata: dict[str, str] = field(default_factory=dict)
    large: bool = False
    """Whether work that reads the whole request belongs into a thread."""
    ignored: tuple[str, ...] = ()
    """The names of the client's parameters that have no effect."""
    listed: dict[str, tuple[McpTool, ...]] = field(default_factory=dict)
    """The tools of MCP servers that the history has a list of, by the label of the server."""
    approved: tuple[ApprovedCall, ...] = ()
    """The calls that the client approves with this request; their outputs among `items` are still empty."""
    max_tool_calls: int | None = None
    """How many calls of MCP servers there may be."""
    compaction: Compaction | None = None
