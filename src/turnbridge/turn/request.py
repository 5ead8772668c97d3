"""What a client asks of one turn, in neither API's words."""

from dataclasses import dataclass, field
from typing import TypeAlias

from turnbridge.turn.items import Item, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainText:
    """The answer may be any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyJsonObject:
    """The answer must be a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOfSchema:
    """The answer must be JSON that conforms to a schema."""

    name: str
    schema: JsonObject
    description: str | None = None
    strict: bool
    """What the client asked for."""
    enforced: bool
    """Whether the schema keeps the strict subset, so that the provider itself can hold the model to it."""


OutputFormat: TypeAlias = PlainText | AnyJsonObject | JsonOfSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """One turn: the conversation so far, and every wish that Codex or the gateway can meet."""

    model: str
    items: tuple[Item, ...]
    instructions: str | None = None
    effort: str | None = None
    summary: str | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    output: OutputFormat = field(default_factory=PlainText)
    stop: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    allow_truncation: bool = False
    """Whether Codex may shorten the history on its own instead of failing."""
    metadata: dict[str, str] = field(default_factory=dict)
    streamed: bool = False
    """Whether the client reads the answer as it is produced, so that nothing of it can be taken back."""
    ignored: tuple[str, ...] = ()
    """The client's parameters that nobody can meet, in its own words."""
