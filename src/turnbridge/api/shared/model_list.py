"""Codex's models → the objects of `/v1/models`."""

from collections.abc import Sequence

from turnbridge.engine.ports import Model
from turnbridge.turn.items import Json, JsonObject

OWNER = "codex"
# Codex does not tell when a model was made, and the field must be a number.
UNKNOWN_TIME = 0


def model_object(model: Model, *, name: str | None = None) -> JsonObject:
    """Return a model, under the client's name for it, with what Codex knows beyond OpenAI's own fields."""
    efforts: list[Json] = list(model.efforts)
    return {
        "id": name or model.id,
        "object": "model",
        "created": UNKNOWN_TIME,
        "owned_by": OWNER,
        "display_name": model.display_name,
        "description": model.description,
        "context_window": model.context_window,
        "max_context_window": model.max_context_window,
        "reasoning_efforts": efforts,
        "default_reasoning_effort": model.default_effort,
        "input_modalities": list(model.modalities),
        "service_tiers": list(model.service_tiers),
    }


def model_list(models: Sequence[JsonObject]) -> JsonObject:
    """Return the list object."""
    return {"object": "list", "data": list(models)}
