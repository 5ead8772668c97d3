"""Which model and effort a client's name stands for."""

import re

import pytest

from turnbridge.engine.models import ModelCatalog, ModelChoice
from turnbridge.engine.ports import Model, ModelOffer
from turnbridge.turn.errors import InvalidRequest, ModelNotFound


def model(name: str, *, efforts: tuple[str, ...] = ("low", "medium", "high"), hidden: bool = False) -> Model:
    return Model(
        id=name,
        display_name=name,
        description="",
        efforts=efforts,
        default_effort="medium",
        context_window=1000,
        max_context_window=1000,
        modalities=("text",),
        service_tiers=(),
        hidden=hidden,
        is_default=name == "gpt-5.5",
    )


MINI = model("gpt-5.5-mini")
BIG = model("gpt-5.5", efforts=("low", "medium", "high", "xhigh"))
OLD = model("gpt-5.2", hidden=True)
ALIASES = {"Fast": "gpt-5.5-mini-low", "gpt-4o": "GPT-5.5", "gone": "gpt-3"}
CATALOG = ModelCatalog(ModelOffer(models=(MINI, BIG, OLD), default=None), aliases=ALIASES)


@pytest.mark.promise("models.earlier-names")
@pytest.mark.parametrize(
    ("name", "expected", "effort"),
    [
        ("gpt-5.5", BIG, None),
        (" GPT-5.5 ", BIG, None),
        ("gpt-5.2", OLD, None),
        ("gpt-5.5-mini", MINI, None),
        ("gpt-5.5-l", BIG, "low"),
        ("gpt-5.5-m", BIG, "medium"),
        ("gpt-5.5-h", BIG, "high"),
        ("gpt-5.5-xh", BIG, "xhigh"),
        ("gpt-5.5-high", BIG, "high"),
        ("gpt-5.5-mini-HIGH", MINI, "high"),
        ("fast", MINI, "low"),
        ("FAST", MINI, "low"),
        ("gpt-4o", BIG, None),
        ("codex-5", BIG, None),
        ("codev-5", BIG, None),
        ("codex-5-xh", BIG, "xhigh"),
        ("codev-5.1", BIG, None),
        ("codev-5.2", OLD, None),
        ("codev-5.2-h", OLD, "high"),
        ("gpt-5.2-codev", OLD, None),
        ("gpt-5.2-codex-l", OLD, "low"),
        ("gpt-5.2-local", OLD, "low"),
    ],
)
def test_a_name_stands_for_a_model_and_perhaps_an_effort(name: str, expected: Model, effort: str | None) -> None:
    assert CATALOG.resolve(name) == ModelChoice(model=expected, effort=effort)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("gpt-5", "Did you mean `gpt-5.5` or `gpt-4o` or `gpt-5.5-mini`?"),
        ("gpt-5.5-mini-xh", "Did you mean `gpt-5.5-mini` or `gpt-5.5`?"),
        ("gpt-5.5-enormous", "Did you mean `gpt-5.5-mini` or `gpt-5.5`?"),
        ("fats", "Did you mean `fast`?"),
        ("", "Available: gpt-5.5-mini, gpt-5.5, codex-5, fast, gpt-4o."),
        ("whisper", "Available: gpt-5.5-mini, gpt-5.5, codex-5, fast, gpt-4o."),
    ],
)
def test_an_unknown_name_is_refused_with_near_matches(name: str, advice: str) -> None:
    expected = f"The model `{name}` does not exist or you do not have access to it. {advice}"
    with pytest.raises(ModelNotFound, match=f"^{re.escape(expected)}$") as refused:
        CATALOG.resolve(name)
    assert (refused.value.error_code, refused.value.param) == ("model_not_found", "model")


def test_of_a_long_name_only_the_beginning_is_told() -> None:
    with pytest.raises(ModelNotFound) as caught:
        CATALOG.resolve("m" * 10_000_000)
    assert len(caught.value.message) < 1000


def test_an_alias_of_nothing_names_what_it_stands_for() -> None:
    with pytest.raises(ModelNotFound, match=re.escape("The model `gone` (an alias of 'gpt-3') does not exist")):
        CATALOG.resolve("gone")


def test_an_alias_wins_over_a_model_of_the_same_name() -> None:
    catalog = ModelCatalog(ModelOffer(models=(BIG, MINI), default=None), aliases={"gpt-5.5": "gpt-5.5-mini"})
    assert catalog.resolve("gpt-5.5").model is MINI


@pytest.mark.promise("models.default")
@pytest.mark.parametrize(
    ("models", "default", "expected"),
    [
        ([MINI, BIG, OLD], None, BIG),
        ([MINI, BIG, OLD], "GPT-5.2", OLD),
        ([MINI, OLD], None, MINI),
    ],
)
def test_a_name_without_a_model_of_its_own_gets_the_default(
    models: list[Model], default: str | None, expected: Model
) -> None:
    assert (
        ModelCatalog(ModelOffer(models=tuple(models), default=default), aliases={}).resolve("codex-5").model is expected
    )


@pytest.mark.promise("models.default")
def test_a_default_model_that_codex_does_not_offer_is_not_replaced_by_another() -> None:
    catalog = ModelCatalog(ModelOffer(models=(MINI, BIG, OLD), default="gpt-3"), aliases={})
    with pytest.raises(ModelNotFound) as refused:
        catalog.resolve("codex-5")
    assert refused.value.message == (
        "`codex-5` stands for the default model. Codex's configuration names `gpt-3`, which this Codex does not offer. "
        "To serve it all the same, set CODEX_MODEL to it."
    )
    assert catalog.resolve("gpt-5.5").model is BIG
    assert catalog.listed() == [MINI, BIG]


@pytest.mark.parametrize(("default", "listed"), [(None, [MINI, BIG]), ("gpt-5.2", [MINI, BIG, OLD])])
def test_hidden_models_are_listed_only_as_the_default(default: str | None, listed: list[Model]) -> None:
    assert ModelCatalog(ModelOffer(models=(MINI, BIG, OLD), default=default), aliases={}).listed() == listed


def test_without_any_model_every_name_is_unknown() -> None:
    with pytest.raises(ModelNotFound):
        ModelCatalog(ModelOffer(models=(), default=None), aliases={}).resolve("codex-5")


@pytest.mark.promise("reasoning.effort.unknown")
def test_an_effort_that_nobody_knows_is_refused_with_those_the_model_has() -> None:
    CATALOG.check_effort(BIG, "xhigh", param="reasoning_effort")
    CATALOG.check_effort(BIG, "none", param="reasoning_effort")
    CATALOG.check_effort(model("silent", efforts=()), "anything", param="reasoning_effort")
    expected = (
        "Unsupported value: 'xhigh' is not supported with the 'gpt-5.5-mini' model. "
        "Supported values are: 'low', 'medium', 'high'."
    )
    with pytest.raises(InvalidRequest, match=re.escape(expected)) as refused:
        CATALOG.check_effort(MINI, "xhigh", param="reasoning_effort")
    assert (refused.value.error_code, refused.value.param) == ("unsupported_value", "reasoning_effort")


@pytest.mark.promise("models.list", "models.own-names")
def test_the_listed_names_are_the_default_and_the_aliases_that_lead_somewhere() -> None:
    assert CATALOG.names() == {
        "codex-5": ModelChoice(BIG, None),
        "fast": ModelChoice(MINI, "low"),
        "gpt-4o": ModelChoice(BIG, None),
    }
    own = ModelCatalog(ModelOffer(models=(MINI, BIG), default=None), aliases={"codex-5": "gpt-5.5-mini"})
    assert own.names() == {"codex-5": ModelChoice(MINI, None)}
    lost = ModelCatalog(ModelOffer(models=(MINI, BIG), default="gone"), aliases={})
    assert lost.names() == {}


def test_a_model_that_codex_offers_comes_before_an_earlier_name() -> None:
    offered = ModelCatalog(ModelOffer(models=(OLD, model("gpt-5.2-codex")), default=None), aliases={})
    assert offered.resolve("gpt-5.2-codex").model.id == "gpt-5.2-codex"
    assert CATALOG.resolve("gpt-5.2-codex").model is OLD


def test_a_client_that_may_use_some_models_only_has_no_others() -> None:
    limited = CATALOG.limited(["fast"])
    assert limited.resolve("gpt-5.5-mini-high").model is MINI
    with pytest.raises(ModelNotFound):
        limited.resolve("gpt-5.5")


def test_the_provider_that_is_asked_anyway_may_be_named() -> None:
    offer = ModelOffer(models=(BIG,), default=None, provider="openai", other_providers=("azure",))
    catalog = ModelCatalog(offer, aliases={})
    assert catalog.resolve("gpt-5.5@OpenAI") == ModelChoice(BIG, None)
    assert catalog.resolve("gpt-5.5@azure").provider == "azure"
