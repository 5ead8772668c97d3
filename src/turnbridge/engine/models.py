"""How a client's name for a model becomes one of Codex's models and an effort."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnbridge.engine.ports import Model
from turnbridge.turn.errors import InvalidRequest, ModelNotFound

# OpenAI's models take them, but Codex does not offer them to people. OpenAI's own agent SDK asks for `none` unasked.
UNLISTED_EFFORTS = ("none", "minimal")
# No model has a longer name, and to look for similar ones takes time by its square.
LONGEST_SHOWN = 200
# Short forms of efforts that people append to a model's name, as in `gpt-5.5-xh`.
EFFORT_SUFFIXES = {"l": "low", "m": "medium", "h": "high", "xh": "xhigh"}

# Names that users of the earlier proxy have in their clients. None, or a model that Codex no longer offers,
# stands for the default model: the answer's `x-turnbridge-model` header says which one served it.
INHERITED_NAMES: Mapping[str, str | None] = {
    "codex-5": None,
    "codev-5": None,
    "codev-5.1": "gpt-5.1",
    "codev-5.2": "gpt-5.2",
    "gpt-5.2": "gpt-5.2",
    "gpt-5.2-codev": "gpt-5.2",
    "gpt-5.2-codex": "gpt-5.2",
}
INHERITED_LOCAL = "gpt-5.2-local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """What a client's model name stands for; `effort` is set if the name implies one."""

    model: Model
    effort: str | None


class ModelCatalog:
    """The models that can be asked for, by their own names and by every alias."""

    def __init__(self, models: Sequence[Model], *, default: str | None, aliases: Mapping[str, str]) -> None:
        self._models = tuple(models)
        self._by_id = {model.id.lower(): model for model in models}
        self._aliases = {name.lower(): target for name, target in aliases.items()}
        self._configured = default
        self._default = self._default_model()

    def listed(self) -> list[Model]:
        """Return the models to advertise: the visible ones, and the default even if hidden."""
        return [model for model in self._models if not model.hidden or model is self._default]

    def aliases(self) -> dict[str, Model]:
        """Return the user's own names that stand for a model; one whose model Codex does not offer is left out."""
        chosen = {name: self._known(target.lower()) for name, target in sorted(self._aliases.items())}
        return {name: choice.model for name, choice in chosen.items() if choice is not None}

    def resolve(self, name: str) -> ModelChoice:
        """Return the model and effort that a client's name stands for."""
        wanted = name.strip().lower()
        target = self._aliases.get(wanted)
        choice = self._known(target.lower() if target is not None else wanted)
        if choice is None:
            raise ModelNotFound(self._advice(name, target), param="model")
        return choice

    def check_effort(self, model: Model, effort: str, *, param: str) -> None:
        """Refuse an effort that the model does not advertise, unless its provider may well take it."""
        if model.efforts and effort not in model.efforts and effort not in UNLISTED_EFFORTS:
            supported = ", ".join(f"'{known}'" for known in model.efforts)
            raise InvalidRequest(
                f"Unsupported value: '{effort}' is not supported with the '{model.id}' model. "
                f"Supported values are: {supported}.",
                code="unsupported_value",
                param=param,
            )

    def _known(self, name: str) -> ModelChoice | None:
        if model := self._by_id.get(name):
            return ModelChoice(model=model, effort=None)
        if name == INHERITED_LOCAL and (model := self._inherited("gpt-5.2")):
            return ModelChoice(model=model, effort="low")
        if model := self._inherited(name):
            return ModelChoice(model=model, effort=None)
        stem, _, suffix = name.rpartition("-")
        base = self._by_id.get(stem) or self._inherited(stem)
        effort = EFFORT_SUFFIXES.get(suffix, suffix)
        if base is not None and effort in base.efforts:
            return ModelChoice(model=base, effort=effort)
        return None

    def _default_model(self) -> Model | None:
        """Return the configured model; none, rather than another one, if Codex does not offer it."""
        if self._configured is not None:
            return self._by_id.get(self._configured.lower())
        return next((model for model in self._models if model.is_default), self._models[0] if self._models else None)

    def _inherited(self, name: str) -> Model | None:
        if name not in INHERITED_NAMES:
            return None
        return self._by_id.get(INHERITED_NAMES[name] or "") or self._default

    def _advice(self, name: str, target: str | None) -> str:
        name = name[:LONGEST_SHOWN]
        known = [*(model.id for model in self.listed()), *self.aliases()]
        if self._default is None and self._configured is not None and name.strip().lower() in INHERITED_NAMES:
            return (
                f"`{name}` stands for the default model. Codex's configuration names `{self._configured}`, which this "
                "Codex does not offer. To serve it all the same, set CODEX_MODEL to it."
            )
        near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
        stands_for = f" (an alias of '{target}')" if target is not None else ""
        offer = f"Did you mean {' or '.join(f'`{m}`' for m in near)}?" if near else f"Available: {', '.join(known)}."
        return f"The model `{name}`{stands_for} does not exist or you do not have access to it. {offer}"
