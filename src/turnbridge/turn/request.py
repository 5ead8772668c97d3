"""What a client asks of one turn, in neither API's words."""

from typing import TypeAlias

from msgspec import Struct, field

from turnbridge.turn.items import Item, JsonObject
from turnbridge.turn.values import replace, written

# Formats are tagged, so that they differ in writing, too.


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
    """What the client asked for."""
    enforced: bool
    """Whether the schema keeps the strict subset, so that the provider itself can hold the model to it."""


OutputFormat: TypeAlias = PlainText | AnyJsonObject | JsonOfSchema


class Tool(Struct, frozen=True, kw_only=True):
    """A function of the client's that the model may call."""

    name: str
    description: str
    parameters: JsonObject
    strict: bool = False
    """Whether the client relies on arguments that conform to `parameters`."""


class WebSearch(Struct, frozen=True, kw_only=True):
    """The provider's own web search, as the client wants it."""

    context_size: str | None = None
    allowed_domains: tuple[str, ...] = ()
    location: dict[str, str] = field(default_factory=dict)
    live: bool = True
    """Whether pages may be fetched, or only the provider's index be read."""


class TurnRequest(Struct, frozen=True, kw_only=True):
    """One turn: the conversation so far, and every wish that Codex or the gateway can meet."""

    model: str
    items: tuple[Item, ...]
    client: str = ""
    """Whom the turn is for; what is kept of it is nobody else's."""
    instructions: str | None = None
    effort: str | None = None
    summary: str | None = None
    summary_needed: bool = True
    """Whether the client itself asked for the summary: else the turn is run without it where it is refused."""
    verbosity: str | None = None
    service_tier: str | None = None
    output: OutputFormat = field(default_factory=PlainText)
    tools: tuple[Tool, ...] = ()
    """The functions that may be called in this turn: what the client's choice forbids is not among them."""
    must_call: bool = False
    """Whether the turn must not end without a call."""
    parallel_calls: bool = True
    awaits_outputs: bool = True
    """Whether the client will send the outputs of its calls, so that the turn is worth keeping open for them."""
    web_search: WebSearch | None = None
    stop: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    allow_truncation: bool = False
    """Whether Codex may shorten the history on its own instead of failing."""
    metadata: dict[str, str] = field(default_factory=dict)
    large: bool = False
    """Whether the request is so large that what goes through all of it belongs into a thread."""
    streamed: bool = False
    """Whether the client reads the answer as it is produced, so that nothing of it can be taken back."""
    ignored: tuple[str, ...] = ()
    """The client's parameters that nobody can meet, in its own words."""

    def lasting(self) -> str:
        """Return what a thread keeps from one request to the next: all but what is seen to in each of them anew.

        It is for comparison, and in writing: two schemas may differ only in what Python takes for equal.
        """
        kept = replace(
            self,
            items=(),
            must_call=False,
            parallel_calls=True,
            awaits_outputs=True,
            stop=(),
            max_output_tokens=None,
            metadata={},
            large=False,
            streamed=False,
            ignored=(),
        )
        return written(kept)
