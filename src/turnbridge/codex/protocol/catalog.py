"""Codex's model catalogue: what each model must not bring along, and the models as the engine sees them.

A model that the configuration names and the catalogue lacks (of Ollama, Azure or OpenRouter, for example) gets an entry
too: without one, Codex runs it with an agent's defaults: a window at which it compacts, outputs that it cuts, tools of
its own.
"""

from collections.abc import Iterable, Sequence

import msgspec

from turnbridge.codex.protocol.encode import NO_LIMIT, NO_WINDOW
from turnbridge.codex.protocol.messages import BUILT_IN_PROVIDER, ConfiguredModel, ListedModel
from turnbridge.engine.ports import Model, ModelOffer
from turnbridge.turn.items import JsonObject
from turnbridge.turn.json_schema import as_list

# What each model of the catalogue must not bring along: tools of Codex's own, and its ways of shortening.
CATALOG_OVERRIDES: JsonObject = {
    "multi_agent_version": None,
    "experimental_supported_tools": [],
    "supports_search_tool": False,
    "apply_patch_tool_type": None,
    "default_verbosity": None,
    "truncation_policy": {"mode": "tokens", "limit": NO_LIMIT},
    "context_window": NO_WINDOW,
    "max_context_window": NO_WINDOW,
    # Every thread has `baseInstructions` instead. Each holds a copy of the catalogue, and these are most of it.
    "base_instructions": "",
    "model_messages": None,
}

# With these, the newest models call functions one by one like all others, and not from scripts of their own.
DIRECT_TOOLS: JsonObject = {"tool_mode": None, "use_responses_lite": False}

# It is unknown what the model can do. So Codex sends nothing that was not requested, and everything that was; the
# provider refuses what it does not support.
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
# Traits of the copied entry that do not apply to another model.
FOREIGN_TRAITS = frozenset(
    {"comp_hash", "default_service_tier", "model_specialty"}
    | {"multi_agent_reasoning_effort", "multi_agent_version", "tool_mode"}
)


class CatalogEntry(msgspec.Struct, frozen=True):
    """What a catalogue entry has that `model/list` lacks, and the bare catalogue hides."""

    slug: str
    tool_mode: str | None = None
    context_window: int | None = None
    max_context_window: int | None = None


class Catalog(msgspec.Struct, frozen=True):
    """The fields of a catalogue that are read."""

    models: list[CatalogEntry]


def bare_catalog(catalog: JsonObject, *, direct_tools: bool) -> JsonObject:
    """Return Codex's model catalogue without the extras that each model brings along."""
    overrides = {**CATALOG_OVERRIDES, **(DIRECT_TOOLS if direct_tools else {})}
    return {**catalog, "models": [{**entry, **overrides} for entry in _entries(catalog)]}


def with_models(catalog: JsonObject, names: Iterable[str]) -> JsonObject:
    """Return a catalogue that has models of these names: copies of another entry, with their traits unknown."""
    entries = _entries(catalog)
    known = {str(entry.get("slug")).lower() for entry in entries}
    missing: dict[str, str] = {}
    for name in names:
        if name.lower() not in known:
            missing.setdefault(name.lower(), name)
    # One that calls functions one by one, if there is one: it has the fewest peculiarities.
    template = next((entry for entry in entries if not entry.get("tool_mode")), entries[0] if entries else {})
    shared = {key: value for key, value in template.items() if key not in FOREIGN_TRAITS}
    added = ({**shared, **UNKNOWN_TRAITS, "slug": name, "display_name": name} for name in missing.values())
    return {**catalog, "models": [*entries, *added]}


def model_offer(
    models: Sequence[Model], config: ConfiguredModel, *, default: str | None, catalog: JsonObject | None
) -> ModelOffer:
    """Return the models of the default provider, and those that profiles name at another one.

    `catalog` has the models that any provider is taken to have; without one, Codex is too old to switch providers.
    """
    own = config.model_provider or BUILT_IN_PROVIDER
    if catalog is None:
        return ModelOffer(models=tuple(models), default=default, provider=own)
    at_own = {str(entry.get("slug")) for entry in _entries(catalog)} | {default or "", config.model or ""}
    elsewhere: list[tuple[Model, str]] = []
    by_id = {model.id: model for model in models}
    for profile in (config.profiles or {}).values():
        provider = profile.model_provider or own
        if profile.model in by_id and provider == own:
            at_own.add(profile.model)
        elif profile.model in by_id and provider in config.model_providers:
            elsewhere.append((by_id[profile.model], provider))
    return ModelOffer(
        models=tuple(model for model in models if model.id in at_own),
        default=default,
        provider=own,
        other_providers=tuple(name for name in config.model_providers if name != own),
        elsewhere=tuple(dict.fromkeys(elsewhere)),
    )


def listed_models(
    listed: Sequence[ListedModel], catalog: JsonObject | None, *, default: str | None, effort: str | None
) -> tuple[Model, ...]:
    """Return the models that Codex lists; the user's configured effort is the default of all of them.

    Older versions have no catalogue that the configured model could be added to, and run any model.
    """
    entries = {entry.slug: entry for entry in msgspec.convert(_entries(catalog or {}), list[CatalogEntry])}
    models = tuple(_model(model, entries.get(model.id, CatalogEntry(model.id)), effort) for model in listed)
    if catalog is None and default is not None and not any(model.id == default for model in models):
        unknown = ListedModel(
            default,
            display_name=default,
            description="",
            is_default=False,
            default_reasoning_effort="",
            supported_reasoning_efforts=[],
        )
        models += (_model(unknown, CatalogEntry(default), effort),)
    return models


def _model(model: ListedModel, entry: CatalogEntry, effort: str | None) -> Model:
    return Model(
        id=model.id,
        display_name=model.display_name,
        description=model.description,
        efforts=tuple(option.reasoning_effort for option in model.supported_reasoning_efforts),
        # Codex calls the default "none" where it is unknown.
        default_effort=effort or (model.default_reasoning_effort if model.supported_reasoning_efforts else None),
        context_window=entry.context_window,
        max_context_window=entry.max_context_window,
        modalities=model.input_modalities,
        service_tiers=tuple(tier.id for tier in model.service_tiers),
        hidden=model.hidden,
        is_default=model.is_default,
        scripts_tools=entry.tool_mode is not None,
    )


def _entries(catalog: JsonObject) -> list[JsonObject]:
    return [entry for entry in as_list(catalog.get("models")) if isinstance(entry, dict)]
