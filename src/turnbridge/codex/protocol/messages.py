"""The app-server messages that the gateway reads; a test checks each against the pinned binary's own JSON schema."""

from typing import ClassVar, TypeAlias

import msgspec


class Wire(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a message, in Codex's camelCase; fields without a name here are skipped."""


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
    """The common fields of Codex's own items; messages have a `phase`."""

    type: str
    id: str = ""
    phase: str | None = None


class TurnRef(Wire, frozen=True):
    """A turn; `error` is set if it failed."""

    id: str
    status: str
    error: TurnError | None = None


class InTurn(Wire, frozen=True):
    """What every notification about a turn names."""

    thread_id: str
    turn_id: str


class ItemStarted(InTurn, frozen=True):
    """`item/started`"""

    item: ThreadItem


class AgentMessageDelta(InTurn, frozen=True):
    """`item/agentMessage/delta`"""

    item_id: str
    delta: str


class SummaryTextDelta(InTurn, frozen=True):
    """`item/reasoning/summaryTextDelta`"""

    item_id: str
    summary_index: int
    delta: str


class ReasoningTextDelta(InTurn, frozen=True):
    """`item/reasoning/textDelta`"""

    item_id: str
    content_index: int
    delta: str


class RawItemCompleted(InTurn, frozen=True):
    """`rawResponseItem/completed`: an item as the provider sent it, or as the gateway injected it."""

    item: msgspec.Raw


class RawResponseCompleted(InTurn, frozen=True):
    """`rawResponse/completed`: the end of one model call, with its exact usage."""

    usage: TokenUsage | None = None


class ErrorReported(InTurn, frozen=True):
    """`error`"""

    error: TurnError
    will_retry: bool


class TurnCompleted(Wire, frozen=True):
    """`turn/completed`"""

    thread_id: str
    turn: TurnRef


class ToolCallAsked(InTurn, frozen=True):
    """`item/tool/call`: Codex's request for the output of a client's function."""

    call_id: str
    tool: str
    arguments: msgspec.Raw
    namespace: str | None = None
    request_id: int | str = 0
    """The JSON-RPC id of the request; not part of the parameters."""


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


class CompletedItem(Wire, frozen=True):
    """The fields of a completed item that are read, whatever its type."""

    type: str
    id: str = ""
    text: str = ""
    summary: msgspec.Raw = msgspec.Raw(b"[]")
    content: msgspec.Raw = msgspec.Raw(b"[]")
    query: str | None = None


class ItemCompleted(InTurn, frozen=True):
    """`item/completed`"""

    item: CompletedItem


class ThreadUsage(Wire, frozen=True):
    """The tokens of a thread so far."""

    total: TokenUsage


class TokenUsageUpdated(InTurn, frozen=True):
    """`thread/tokenUsage/updated`: sent after each model call, and again whenever the plan's limits change."""

    token_usage: ThreadUsage


OlderNotification: TypeAlias = ItemCompleted | TokenUsageUpdated

# Read only where Codex does not report the end of a model call.
OLDER_NOTIFICATIONS: dict[str, type[OlderNotification]] = {
    "item/completed": ItemCompleted,
    "thread/tokenUsage/updated": TokenUsageUpdated,
}

Note: TypeAlias = Notification | OlderNotification | ToolCallAsked
"""Anything that Codex reports or asks about a thread."""

# The handshake opts out of these: Codex would send them, and nobody reads them.
UNWANTED_NOTIFICATIONS = (
    *("account/updated", "app/list/updated", "configWarning", "deprecationNotice"),
    *("item/completed", "item/reasoning/summaryPartAdded", "mcpServer/startupStatus/updated"),
    *("remoteControl/status/changed", "skills/changed", "thread/closed", "thread/name/updated"),
    *("thread/settings/updated", "thread/started", "thread/status/changed", "thread/tokenUsage/updated"),
    *("turn/diff/updated", "turn/plan/updated", "turn/started", "warning"),
)


class RawPart(msgspec.Struct, frozen=True):
    """A content part of a raw item."""

    type: str
    text: str = ""
    annotations: list[msgspec.Raw] | None = None
    image_url: str | None = None


class RawItem(msgspec.Struct, frozen=True):
    """The fields of a raw Responses item that are read, whatever its type."""

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
    id: str


class ThreadStartResult(Wire, frozen=True):
    """The answer to `thread/start`."""

    thread: ThreadRef


class TurnStartResult(Wire, frozen=True):
    """The answer to `turn/start`."""

    turn: TurnRef


class Account(Wire, frozen=True):
    type: str


class AccountReadResult(Wire, frozen=True):
    """The answer to `account/read`."""

    requires_openai_auth: bool
    account: Account | None = None


class RateLimitWindow(Wire, frozen=True):
    used_percent: int
    window_duration_mins: int | None = None
    resets_at: int | None = None


class RateLimits(Wire, frozen=True):
    limit_id: str | None = None
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None


class RateLimitsReadResult(Wire, frozen=True):
    """The answer to `account/rateLimits/read`."""

    rate_limits: RateLimits


class RateLimitsUpdated(RateLimitsReadResult, frozen=True):
    """The notification of a change, which belongs to no thread."""

    thread_id: ClassVar[str] = ""


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


class ConfiguredProvider(Wire, frozen=True):
    """A provider of the user's configuration."""

    supports_websockets: bool | None = msgspec.field(default=None, name="supports_websockets")
    requires_openai_auth: bool | None = msgspec.field(default=None, name="requires_openai_auth")


class ConfiguredProfile(Wire, frozen=True):
    """A profile of the user's configuration."""

    model: str | None = None
    model_provider: str | None = msgspec.field(default=None, name="model_provider")


BUILT_IN_PROVIDER = "openai"


class ConfiguredModel(Wire, frozen=True):
    """The part of `config/read` about the model and its provider."""

    model: str | None = None
    model_reasoning_effort: str | None = msgspec.field(default=None, name="model_reasoning_effort")
    model_provider: str | None = msgspec.field(default=None, name="model_provider")
    model_providers: dict[str, ConfiguredProvider] = msgspec.field(default_factory=dict, name="model_providers")
    profiles: dict[str, ConfiguredProfile] | None = None
    cli_auth_credentials_store: str | None = msgspec.field(default=None, name="cli_auth_credentials_store")

    @property
    def login_providers(self) -> frozenset[str]:
        """Return the described providers that use OpenAI's login."""
        return frozenset(name for name, provider in self.model_providers.items() if provider.requires_openai_auth)

    @property
    def over_websocket(self) -> bool:
        """Tell whether Codex reaches the provider over WebSocket: its built-in one, and those configured so."""
        provider = self.model_providers.get(self.model_provider or "")
        return (
            self.model_provider in (None, BUILT_IN_PROVIDER)
            if provider is None
            else provider.supports_websockets is True
        )

    @property
    def only_over_http(self) -> bool:
        """Tell whether Codex speaks HTTP, and only to providers that are described and have no login of OpenAI's."""
        described = self.model_providers.values()
        return self.model_provider in self.model_providers and not any(
            provider.supports_websockets or provider.requires_openai_auth for provider in described
        )


class ProcessDiagnostics(Wire, frozen=True):
    """The memory of an app-server."""

    resident_memory_bytes: int | None = None


class DiagnosticsResult(Wire, frozen=True):
    """The answer to `server/diagnostics`, or to another probe, which tells no memory."""

    process: ProcessDiagnostics = ProcessDiagnostics()


class ConfigReadResult(Wire, frozen=True):
    """The answer to `config/read`."""

    config: ConfiguredModel
