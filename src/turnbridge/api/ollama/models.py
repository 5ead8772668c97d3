"""The models as Ollama describes them: what clients read of a model before they offer it."""

from collections.abc import Iterator
from hashlib import sha256

from turnbridge.api.ollama.decode import LEAST
from turnbridge.engine.models import ModelCatalog
from turnbridge.engine.ports import Model
from turnbridge.turn.items import Json, JsonObject

FAMILY = "codex"
# Codex does not tell when a model changed, how large it is, and of what kind its weights are. Clients parse the time,
# and take a size of 0 for a model that is not there.
UNKNOWN_TIME = "1970-01-01T00:00:00Z"
UNKNOWN_SIZE = 1
DETAILS: JsonObject = {
    "parent_model": "",
    "format": "",
    "family": FAMILY,
    "families": [FAMILY],
    "parameter_size": "",
    "quantization_level": "",
}

# From the least to the most.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def listed(catalog: ModelCatalog) -> Iterator[JsonObject]:
    """Yield the models as `/api/tags` has them, without tags; clients that need one add `:latest`."""
    names = catalog.names()
    # A model whose name the operator has given to another is not reached by it.
    own = ((model.id, model) for model in catalog.listed() if model.id.lower() not in names)
    for name, model in (*own, *((name, choice.model) for name, choice in names.items())):
        yield {
            "name": name,
            "model": name,
            "modified_at": UNKNOWN_TIME,
            "size": UNKNOWN_SIZE,
            "digest": sha256(name.encode()).hexdigest(),
            "details": DETAILS,
            "capabilities": _capabilities(model),
        }


def described(model: Model, name: str) -> JsonObject:
    """Return a model as `/api/show` has it: without `capabilities` VS Code does not offer it."""
    info: JsonObject = {"general.architecture": FAMILY, "general.basename": name}
    if model.context_window is not None:
        info[f"{FAMILY}.context_length"] = model.context_window
    return {
        "parameters": "",
        "template": "",
        "modified_at": UNKNOWN_TIME,
        "details": DETAILS,
        "model_info": info,
        "capabilities": _capabilities(model),
    }


def own_effort(wanted: str, model: Model) -> str | None:
    """Return the greatest effort of a model that is not above one of this API; else the least that it has."""
    known = sorted((each for each in model.efforts if each in EFFORTS), key=EFFORTS.index)
    if not known or wanted == LEAST:
        return known[0] if known else None
    return next((each for each in reversed(known) if EFFORTS.index(each) <= EFFORTS.index(wanted)), known[0])


def _capabilities(model: Model) -> list[Json]:
    sees, thinks = "image" in model.modalities, bool(model.efforts)
    return ["completion", "tools", *(["vision"] if sees else []), *(["thinking"] if thinks else [])]
