"""The app-server messages that we read. A test holds each against the pinned binary's own JSON schema.

What Codex sends and we do not use is neither named nor decoded here.
"""

from typing import TypeAlias

import msgspec


class Wire(msgspec.Struct, frozen=True, rename="camel"):
    """A message part in Codex's camelCase; fields that we do not name are skipped."""


class TurnError(Wire, frozen=True):
    """Why a turn, or one attempt at it, failed."""

    message: str
    codex_error_info: msgspec.Raw = msgspec.Raw(b"null")
    additional_details: str | None = None


class TokenUsage(Wire, frozen=True):
    """Tokens of one model call."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class ThreadItem(Wire, frozen=True):
    """The head of an item of Codex's own kinds; messages carry `phase`."""

    type: str
    id: str = ""
    phase: str | None = None


class TurnRef(Wire, frozen=True):
    """A turn; `error` is set if it failed."""

    id: str
    status: str
    error: TurnError | None = None


class ItemStarted(Wire, frozen=True):
    """`item/started`"""

    thread_id: str
    turn_id: str
    item: ThreadItem


class AgentMessageDelta(Wire, frozen=True):
    """`item/agentMessage/delta`"""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class SummaryTextDelta(Wire, frozen=True):
    """`item/reasoning/summaryTextDelta`"""

    thread_id: str
    turn_id: str
    item_id: str
    summary_index: int
    delta: str


class ReasoningTextDelta(Wire, frozen=True):
    """`item/reasoning/textDelta`"""

    thread_id: str
    turn_id: str
    item_id: str
    content_index: int
    delta: str


class RawItemCompleted(Wire, frozen=True):
    """`rawResponseItem/completed`: an item as the provider sent it, or as we injected it."""

    thread_id: str
    turn_id: str
    item: msgspec.Raw


class RawResponseCompleted(Wire, frozen=True):
    """`rawResponse/completed`: one model call is over, with its exact usage."""

    thread_id: str
    turn_id: str
    usage: TokenUsage | None = None


class ErrorReported(Wire, frozen=True):
    """`error`"""

    thread_id: str
    turn_id: str
    error: TurnError
    will_retry: bool


class TurnCompleted(Wire, frozen=True):
    """`turn/completed`"""

    thread_id: str
    turn: TurnRef


class ToolCallAsked(Wire, frozen=True):
    """`item/tool/call`: a request of Codex's, to be answered with the output of a client's function."""

    thread_id: str
    turn_id: str
    call_id: str
    tool: str
    arguments: msgspec.Raw
    namespace: str | None = None
    request_id: int | str = 0
    """The JSON-RPC id to answer under; not part of the parameters."""


Notification: TypeAlias = (
    ItemStarted
    | AgentMessageDelta
    | SummaryTextDelta
    | ReasoningTextDelta
    | RawItemCompleted
    | RawResponseCompleted
    | ErrorReported
    | TurnCompleted
)

NOTIFICATIONS: dict[str, type[Notification]] = {
    "item/started": ItemStarted,
    "item/agentMessage/delta": AgentMessageDelta,
    "item/reasoning/summaryTextDelta": SummaryTextDelta,
    "item/reasoning/textDelta": ReasoningTextDelta,
    "rawResponseItem/completed": RawItemCompleted,
    "rawResponse/completed": RawResponseCompleted,
    "error": ErrorReported,
    "turn/completed": TurnCompleted,
}

# Notifications that Codex would send and that nobody here reads: it is told at the handshake to keep them.
UNWANTED_NOTIFICATIONS = (
    "account/rateLimits/updated",
    "account/updated",
    "app/list/updated",
    "configWarning",
    "deprecationNotice",
    "item/completed",
    "item/reasoning/summaryPartAdded",
    "mcpServer/startupStatus/updated",
    "remoteControl/status/changed",
    "skills/changed",
    "thread/closed",
    "thread/name/updated",
    "thread/settings/updated",
    "thread/started",
    "thread/status/changed",
    "thread/tokenUsage/updated",
    "turn/diff/updated",
    "turn/plan/updated",
    "turn/started",
    "warning",
)


class RawPart(msgspec.Struct, frozen=True):
    """A content part of a raw item."""

    type: str
    text: str = ""
    annotations: list[msgspec.Raw] | None = None


class RawItem(msgspec.Struct, frozen=True):
    """The fields of a raw Responses item that we read, whatever its type."""

    type: str
    id: str | None = None
    role: str | None = None
    phase: str | None = None
    content: list[RawPart] | None = None
    summary: list[RawPart] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b'""')
    """A string for a function call; other kinds of calls have other shapes."""
    action: dict[str, msgspec.Raw] | None = None
    output: str | list[RawPart] | None = None

    def parts(self) -> list[RawPart]:
        """Return the parts of a message, or of the output of a call."""
        return self.output if isinstance(self.output, list) else self.content or []


class ThreadRef(Wire, frozen=True):
    """A thread."""

    id: str


class ThreadStartResult(Wire, frozen=True):
    """The answer to `thread/start`."""

    thread: ThreadRef


class TurnStartResult(Wire, frozen=True):
    """The answer to `turn/start`."""

    turn: TurnRef


class Account(Wire, frozen=True):
    """Who is logged in."""

    type: str


class AccountReadResult(Wire, frozen=True):
    """The answer to `account/read`."""

    requires_openai_auth: bool
    account: Account | None = None


class RateLimitWindow(Wire, frozen=True):
    """One window of the plan's quota."""

    used_percent: int
    resets_at: int | None = None


class RateLimits(Wire, frozen=True):
    """The plan's quota windows."""

    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None


class RateLimitsReadResult(Wire, frozen=True):
    """The answer to `account/rateLimits/read`."""

    rate_limits: RateLimits


class EffortOption(Wire, frozen=True):
    """An effort that a model advertises."""

    reasoning_effort: str


class ServiceTier(Wire, frozen=True):
    """A speed that a model advertises."""

    id: str


class ListedModel(Wire, frozen=True):
    """A model in `model/list`."""

    id: str
    display_name: str
    description: str
    is_default: bool
    default_reasoning_effort: str
    supported_reasoning_efforts: list[EffortOption]
    hidden: bool = False
    input_modalities: tuple[str, ...] = ("text", "image")
    service_tiers: list[ServiceTier] = []


class ModelListResult(Wire, frozen=True):
    """The answer to `model/list`."""

    data: list[ListedModel]


class ConfiguredModel(Wire, frozen=True):
    """The part of `config/read` that names the model."""

    model: str | None = None
    model_reasoning_effort: str | None = msgspec.field(default=None, name="model_reasoning_effort")


class ConfigReadResult(Wire, frozen=True):
    """The answer to `config/read`."""

    config: ConfiguredModel
