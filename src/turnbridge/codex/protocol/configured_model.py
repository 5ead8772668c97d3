"""A model that the user configured and Codex's catalogue lacks: a custom provider's, as of Ollama, Azure or OpenRouter.

Codex would run it with an agent's defaults: a window at which it compacts, outputs that it cuts, tools of its own. So
it gets an entry in the catalogue like all others.
"""

from turnbridge.turn.items import Json, JsonObject

# Nobody knows what the model can do. So Codex sends nothing that was not asked for, and passes on all that was; the
# provider refuses what it does not take.
UNKNOWN_TRAITS: JsonObject = {
    "description": "Named by the configuration; Codex's catalogue does not describe it.",
    "context_window": None,
    "max_context_window": None,
    "default_reasoning_level": None,
    "supported_reasoning_levels": [],
    "default_reasoning_summary": "none",
    "support_verbosity": True,
    "input_modalities": ["text", "image"],
    "service_tiers": [],
    "additional_speed_tiers": [],
    "visibility": "list",
    "supported_in_api": True,
    "base_instructions": "",
    "model_messages": None,
    "availability_nux": None,
    "upgrade": None,
    "use_responses_lite": False,
}
# What another model was made for says nothing about this one.
FOREIGN_TRAITS = frozenset(
    {
        "comp_hash",
        "default_service_tier",
        "model_specialty",
        "multi_agent_reasoning_effort",
        "multi_agent_version",
        "tool_mode",
    }
)


def with_model(catalog: JsonObject, name: str | None) -> JsonObject:
    """Return a catalogue that has a model of this name: a copy of another entry, with its traits unknown."""
    models = catalog.get("models")
    if name is None or not isinstance(models, list) or any(_slug(model).lower() == name.lower() for model in models):
        return catalog
    entries = [model for model in models if isinstance(model, dict)]
    # One that calls functions one by one, if there is one: it has the fewest peculiarities.
    template = next((entry for entry in entries if not entry.get("tool_mode")), entries[0] if entries else {})
    shared = {key: value for key, value in template.items() if key not in FOREIGN_TRAITS}
    return {**catalog, "models": [*models, {**shared, **UNKNOWN_TRAITS, "slug": name, "display_name": name}]}


def _slug(model: Json) -> str:
    return str(model.get("slug")) if isinstance(model, dict) else ""
