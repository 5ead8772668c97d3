"""A model as Codex describes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model of Codex's catalogue, with its true limits."""

    id: str
    display_name: str
    description: str
    efforts: tuple[str, ...]
    default_effort: str | None
    context_window: int | None
    max_context_window: int | None
    modalities: tuple[str, ...]
    service_tiers: tuple[str, ...]
    hidden: bool
    is_default: bool
    scripts_tools: bool = False
    """Whether Codex ships the model to call tools from scripts (code mode), instead of one by one."""
