"""What a promise consists of, and where promises come from."""

from dataclasses import dataclass

CHAT = "OpenAI API reference: Chat Completions"
CHAT_STREAM = "OpenAI API reference: Chat Completions, streaming"
RESPONSES = "OpenAI API reference: Responses"
RESPONSES_STREAM = "OpenAI API reference: Responses, streaming events"
CONVERSATIONS = "OpenAI API reference: Conversations"
MODELS = "OpenAI API reference: Models"
USAGE_API = "OpenAI API reference: Usage"
DEBUGGING = "OpenAI API reference: Debugging requests"
ERRORS = "OpenAI guide: Error codes"
RATE_LIMITS = "OpenAI guide: Rate limits"
STRUCTURED = "OpenAI guide: Structured Outputs"
FUNCTIONS = "OpenAI guide: Function calling"
WEB_SEARCH = "OpenAI guide: Web search"
MCP_GUIDE = "OpenAI guide: MCP and connectors"
VISION = "OpenAI guide: Images and vision"
FILES = "OpenAI guide: File inputs"
REASONING = "OpenAI guide: Reasoning models"
STATE_GUIDE = "OpenAI guide: Conversation state"
BACKGROUND = "OpenAI guide: Background mode"
ANTHROPIC = "Anthropic API reference: Messages"
OLLAMA = "Ollama API reference"
WEBSOCKET_MODE = "OpenAI guide: WebSocket mode"
CLIENTS = "clients"
"""What real clients were seen to demand."""
OURS = "turnbridge"
"""A promise of our own."""

SOURCES = (
    *(
        CHAT,
        CHAT_STREAM,
        RESPONSES,
        RESPONSES_STREAM,
        CONVERSATIONS,
        MODELS,
        USAGE_API,
        DEBUGGING,
        ERRORS,
        RATE_LIMITS,
        STRUCTURED,
    ),
    *(FUNCTIONS, WEB_SEARCH, MCP_GUIDE, VISION, FILES, REASONING, STATE_GUIDE, BACKGROUND, WEBSOCKET_MODE),
    *(ANTHROPIC, OLLAMA, CLIENTS, OURS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promised behaviour."""

    id: str
    """Its area, then what it is about: `streaming.responses.one-terminal-event`."""
    sentence: str
    source: str
    divergence: str | None = None
    """How and why it differs from what OpenAI does."""
