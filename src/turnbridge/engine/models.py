"""Resolves a client's model name to a model of Codex, an effort and a provider."""

import difflib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from turnbridge.engine.ports import Model, ModelOffer
from turnbridge.turn.errors import InvalidRequest, ModelNotFound

# OpenAI's models accept them, but Codex does not list them. OpenAI's agent SDK sends `none` by default.
UNLISTED_EFFORTS = ("none", "minimal")
# No model has a longer name, and the search for similar ones takes quadratic time.
LONGEST_SHOWN = 200
# Abbreviated efforts at the end of a model's name, as in `gpt-5.5-xh`.
EFFORT_SUFFIXES = {"l": "low", "m": "medium", "h": "high", "xh": "xhigh"}

AT = "@"
"""What stands between the name of a model and that of its provider."""

DEFAULT_MODEL = "codex-5"
"""The name of the default model, whichever that is."""

# Names that clients of the earlier proxy are configured with. None, or a model that Codex no longer offers, is the
# default model; the header `x-turnbridge-model` of the answer names it.
INHERITED_NAMES: Mapping[str, str | None] = {
    DEFAULT_MODEL: None,
    "codev-5": None,
    "codev-5.1": "gpt-5.1",
    "codev-5.2": "gpt-5.2",
    "gpt-5.2": "gpt-5.2",
    "gpt-5.2-codev": "gpt-5.2",
    "gpt-5.2-codex": "gpt-5.2",
}
INHERITED_LOCAL = "gpt-5.2-local"


class ModelChoice(NamedTuple):
    """What a client's model name resolves to; `effort` is set if the name implies one."""

    model: Model
    effort: str | None
    provider: str | None = None
    """The provider that the name names, if it is not the default one."""

    @property
    def name(self) -> str:
        """Return the model's own name, with its provider."""
        return self.model.id if self.provider is None else f"{self.model.id}{AT}{self.provider}"


class ModelCatalog:
    """The models of Codex, by their names and aliases."""

    def __init__(self, offer: ModelOffer, *, aliases: Mapping[str, str], allowed: frozenset[str] | None = None) -> None:
        """`allowed` has the names of the models that may be used, with their providers, if that is not all."""
        self._offer = offer
        self._models = offer.models
        self._allowed = allowed
        self._by_id = {model.id.lower(): model for model in offer.models}
        self._elsewhere = [ModelChoice(model, None, provider) for model, provider in offer.elsewhere]
        self._providers = {name.lower(): name for name in (offer.provider, *offer.other_providers)}
        self._aliases = {name.lower(): target for name, target in aliases.items()}
        self._configured = offer.default
        self._default = self._default_model()

    def limited(self, names: Sequence[str]) -> "ModelCatalog":
        """Return the catalogue of a client that may use no models but those that these names stand for."""
        choices = (self._choice(self._aliases.get(name.lower(), name).lower()) for name in names)
        allowed = frozenset(choice.name for choice in choices if choice is not None)
        return ModelCatalog(self._offer, aliases=self._aliases, allowed=allowed)

    def listed(self) -> list[Model]:
        """Return the visible models, and the default model even if it is hidden."""
        return [
            model for model in self._models if self._may_use(model.id) and (not model.hidden or model is self._default)
        ]

    def names(self) -> dict[str, ModelChoice]:
        """Return what the other listed names stand for: the default model, those of other providers, and aliases.

        Those that lead to no model of Codex's are left out.
        """
        named = {choice.name: choice.name for choice in self._elsewhere}
        targets = {DEFAULT_MODEL: DEFAULT_MODEL, **named, **dict(sorted(self._aliases.items()))}
        chosen = {name: self._choice(target.lower()) for name, target in targets.items()}
        return {name: choice for name, choice in chosen.items() if choice is not None and self._may_use(choice.name)}

    def resolve(self, name: str) -> ModelChoice:
        """Return the model and effort of a client's model name."""
        wanted = name.strip().lower()
        target = self._aliases.get(wanted)
        choice = self._choice(target.lower() if target is not None else wanted)
        if choice is None or not self._may_use(choice.name):
            raise ModelNotFound(self._advice(name, target), param="model")
        return choice

    def check_effort(self, model: Model, effort: str, *, param: str) -> None:
        """Raise if the model does not list an effort, and its provider does not accept it either."""
        if model.efforts and effort not in model.efforts and effort not in UNLISTED_EFFORTS:
            supported = ", ".join(f"'{known}'" for known in model.efforts)
            raise InvalidRequest(
                f"Unsupported value: '{effort}' is not supported with the '{model.id}' model. "
                f"Supported values are: {supported}.",
                code="unsupported_value",
                param=param,
            )

    def _choice(self, name: str) -> ModelChoice | None:
        """Return what a name stands for that may end in the name of a provider."""
        if (choice := self._known(name)) is not None:
            return choice
        stem, at, suffix = name.rpartition(AT)
        provider = self._providers.get(suffix) if at else None
        if provider is None:
            return None
        choice = self._known(stem)
        if choice is None:
            return next((each for each in self._elsewhere if each.name.lower() == name), None)
        return choice if provider == self._offer.provider else choice._replace(provider=provider)

    def _known(self, name: str) -> ModelChoice | None:
        if model := self._model(name):
            return ModelChoice(model, None)
        stem, _, suffix = name.rpartition("-")
        model = self._model(stem)
        effort = "low" if name == INHERITED_LOCAL else EFFORT_SUFFIXES.get(suffix, suffix)
        if model is None or (effort not in model.efforts and name != INHERITED_LOCAL):
            return None
        return ModelChoice(model, effort)

    def _model(self, name: str) -> Model | None:
        if name in INHERITED_NAMES and name not in self._by_id:
            return self._by_id.get(INHERITED_NAMES[name] or "") or self._default
        return self._by_id.get(name)

    def _default_model(self) -> Model | None:
        """Return the configured model, or nothing if Codex does not offer it; without one, Codex's default.

        A client that may not use it has the first model that it may use.
        """
        usable = [model for model in self._models if self._may_use(model.id)]
        if self._configured is not None:
            configured = self._by_id.get(self._configured.lower())
            if configured is None or self._may_use(configured.id):
                return configured
        return next((model for model in usable if model.is_default), usable[0] if usable else None)

    def _may_use(self, name: str) -> bool:
        return self._allowed is None or name in self._allowed

    def _advice(self, name: str, target: str | None) -> str:
        name = name[:LONGEST_SHOWN]
        known = list(dict.fromkeys([*(model.id for model in self.listed()), *self.names()]))
        if self._default is None and self._configured is not None and name.strip().lower() in INHERITED_NAMES:
            return (
                f"`{name}` stands for the default model. Codex's configuration names `{self._configured}`, which this "
                "Codex does not offer. To serve it all the same, set CODEX_MODEL to it."
            )
        wanted, at, provider = (target or name).rpartition(AT)
        if at and provider.lower() not in self._providers and self._choice(wanted.lower()) is not None:
            return (
                f"The model `{name}` names the provider `{provider}`, which the Codex configuration does not describe. "
                f"It has: {', '.join(self._providers.values())}."
            )
        near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
        stands_for = f" (an alias of '{target}')" if target is not None else ""
        offer = (
            f"Did you mean {' or '.join(f'`{m}`' for m in near)}?"
            if near
            else f"Available: {', '.join(known) or 'none'}."
        )
        return f"The model `{name}`{stands_for} does not exist or you do not have access to it. {offer}"
