"""What a turn reports while it runs: a closed union.

A stream of events begins with `TurnServed`, once for each time that the turn is tried, and ends in exactly one
`Terminal`. A message or thought that is still open then was cut off there: its text is the concatenation of its deltas.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import JsonObject
from turnbridge.turn.mcp import McpResult, McpTool


class Usage(Struct, frozen=True):
    """Tokens of one or several model calls."""

    input: int = 0
    cached: int = 0
    cache_written: int = 0
    output: int = 0
    reasoning: int = 0
    estimated: bool = False
    """True if the gateway cut the turn off and had to count itself."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            cache_written=self.cache_written + other.cache_written,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            estimated=self.estimated or other.estimated,
        )


ThreadUse: TypeAlias = Literal["parked", "warm", "replayed", "fresh"]


class TurnServed(Struct, frozen=True):
    """The turn has a thread: it resumes a parked turn, continues a warm thread, or has a fresh one."""

    thread: ThreadUse
    fidelity: str
    """How faithfully the model is shown the request: `exact`, or what is missing or added."""


class MessageStarted(Struct, frozen=True):
    """The model begins to say something; `phase` tells narration (`commentary`) from the answer."""

    item_id: str
    phase: str | None


class TextDelta(Struct, frozen=True):
    """The next piece of a message; never empty."""

    item_id: str
    text: str


class MessageDone(Struct, frozen=True):
    """The message is whole: `text` is the concatenation of its deltas."""

    item_id: str
    phase: str | None
    text: str
    annotations: tuple[JsonObject, ...] = ()


class ReasoningStarted(Struct, frozen=True):
    """The model begins to think."""

    item_id: str


class SummaryDelta(Struct, frozen=True):
    """The next piece of part `index` of the reasoning summary; never empty."""

    item_id: str
    index: int
    text: str


class ReasoningDelta(Struct, frozen=True):
    """The next piece of the reasoning's own text, which only open models show; never empty."""

    item_id: str
    index: int
    text: str


class ReasoningDone(Struct, frozen=True):
    """The thought is whole: summary and content are the concatenations of their deltas."""

    item_id: str
    summary: tuple[str, ...]
    content: tuple[str, ...]
    encrypted: str | None


class FunctionCallDone(Struct, frozen=True):
    """The model calls one of the client's functions; all calls of one model response come together."""

    item_id: str
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class WebSearchDone(Struct, frozen=True):
    """The provider has searched the web; `action` says what for."""

    item_id: str
    action: JsonObject


class ImageStarted(Struct, frozen=True):
    """The model has asked for an image, which takes a minute or two."""

    item_id: str


class ImageDone(Struct, frozen=True):
    """An image in base64, and the prompt that the model wrote for it; without an image, making it failed."""

    item_id: str
    prompt: str
    image: str | None


class HistoryCompacted(Struct, frozen=True):
    """The history was too long, so a summary stands for it from here on."""

    summary: str


class McpToolsListed(Struct, frozen=True):
    """An MCP server has listed its tools."""

    label: str
    tools: tuple[McpTool, ...]


class McpCallStarted(Struct, frozen=True):
    """A tool of an MCP server is called, at the same time as the one before it if it is `parallel`."""

    call_id: str
    label: str
    name: str
    arguments: str
    parallel: bool = False
    approved: bool = False
    """Whether the client has approved the call."""


class McpCallDone(Struct, frozen=True):
    """A call of an MCP server's tool has ended."""

    call_id: str
    result: McpResult


class McpApprovalAsked(Struct, frozen=True):
    """The model calls a tool of an MCP server, and the client has to approve that."""

    item_id: str
    call_id: str
    label: str
    name: str
    arguments: str


class TurnCompleted(Struct, frozen=True):
    """The model has said all it wanted, or the client's stop sequence ended it."""

    usage: Usage
    stop: str | None = None
    """The stop sequence that ended it."""


class CallsAwaited(Struct, frozen=True):
    """The model waits for the outputs of its calls: this answer is over, the turn is not."""

    usage: Usage
    order: tuple[str, ...] = ()
    """The ids of what the model said, in its own order: calls are told last, and may have been made before."""


IncompleteReason: TypeAlias = Literal["max_output_tokens", "content_filter", "steered"]


class TurnIncomplete(Struct, frozen=True):
    """The answer was cut off, as the client asked or by the provider."""

    reason: IncompleteReason
    usage: Usage


class TurnFailed(Struct, frozen=True):
    """The turn ended in an error; whatever was reported before stands."""

    error: GatewayError
    usage: Usage = Usage()


Terminal: TypeAlias = TurnCompleted | CallsAwaited | TurnIncomplete | TurnFailed
ItemEvent: TypeAlias = (
    MessageStarted
    | TextDelta
    | MessageDone
    | ReasoningStarted
    | SummaryDelta
    | ReasoningDelta
    | ReasoningDone
    | FunctionCallDone
    | WebSearchDone
    | ImageStarted
    | ImageDone
    | HistoryCompacted
    | McpToolsListed
    | McpCallStarted
    | McpCallDone
    | McpApprovalAsked
)
TurnEvent: TypeAlias = TurnServed | ItemEvent | Terminal
OnResponses: TypeAlias = (
    ImageStarted | ImageDone | HistoryCompacted | McpToolsListed | McpCallStarted | McpCallDone | McpApprovalAsked
)
"""What only Responses clients can ask for."""


def unexpected(event: OnResponses) -> AssertionError:
    """Return the error of an API that has no such events."""
    return AssertionError(f"Only Responses clients can ask for {type(event).__name__}.")


def has_open_item(said: Iterable[Iterable[TurnEvent]]) -> bool:
    """Tell whether batches end in the middle of a message or a thought, or in that of a server's call."""
    begun: set[str] = set()
    ended: set[str] = set()
    for event in (event for batch in said for event in batch):
        match event:
            case MessageStarted() | ReasoningStarted():
                begun.add(event.item_id)
            case McpCallStarted():
                begun.add(event.call_id)
            case MessageDone() | ReasoningDone():
                ended.add(event.item_id)
            case McpCallDone():
                ended.add(event.call_id)
            case _:
                pass
    return not begun <= ended
