"""Which model a name of Anthropic's stands for, and how models are listed for its clients."""

import anthropic.types as official
import msgspec
import pytest

from turnbridge.api.anthropic.models import codex_name, model_object, nearest_effort
from turnbridge.engine.models import ModelCatalog
from turnbridge.engine.ports import Model, ModelOffer


def model(name: str, *, efforts: tuple[str, ...] = ("low", "medium", "high", "xhigh")) -> Model:
    return Model(
        id=name,
        display_name=name.upper(),
        description="",
        efforts=efforts,
        default_effort="medium",
        context_window=272_000,
        max_context_window=400_000,
        modalities=("text",),
        service_tiers=(),
        hidden=False,
        is_default=name == "gpt-5.5",
    )


ALIASES = {"claude-sonnet-5": "gpt-5.4", "Opus": "gpt-5.4-mini"}
CATALOG = ModelCatalog(
    ModelOffer(models=(model("gpt-5.4"), model("gpt-5.5"), model("gpt-5.4-mini")), default=None), aliases=ALIASES
)
ALL_LARGE = ModelCatalog(ModelOffer(models=(model("gpt-5.4"), model("gpt-5.5")), default=None), aliases={})


@pytest.mark.promise("anthropic.models.names")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-5.4", "gpt-5.4"),
        ("GPT-5.4[1m]", "gpt-5.4"),
        ("claude-gpt-5.4", "gpt-5.4"),
        ("claude-gpt-5.4-high", "gpt-5.4"),
        ("claude-opus-5-20261001", "gpt-5.5"),
        ("claude-opus-5[1m]", "gpt-5.5"),
        ("claude-fable-5", "gpt-5.5"),
        ("claude-3-5-sonnet-latest", "gpt-5.5"),
        ("sonnet", "gpt-5.5"),
        ("haiku", "gpt-5.4-mini"),
        ("claude-haiku-4-5-20251001", "gpt-5.4-mini"),
        ("claude-sonnet-5", "gpt-5.4"),
        ("claude-sonnet-5[1m]", "gpt-5.4"),
        ("opus", "gpt-5.4-mini"),
    ],
)
def test_names_of_anthropics_stand_for_models_of_codex(name: str, expected: str) -> None:
    assert CATALOG.resolve(codex_name(name, CATALOG, ALIASES)).model.id == expected


@pytest.mark.promise("anthropic.models.names")
def test_a_name_may_end_in_an_effort() -> None:
    assert CATALOG.resolve(codex_name("claude-gpt-5.4-high", CATALOG, ALIASES)).effort == "high"


def test_without_a_small_model_the_default_stands_for_it() -> None:
    assert ALL_LARGE.resolve(codex_name("claude-haiku-4-5", ALL_LARGE, {})).model.id == "gpt-5.5"


@pytest.mark.parametrize("name", ["gemini-3", "my-claude", "", "gpt-4", f"claude-{'x' * 200}"])
def test_a_name_that_means_nothing_stays_as_it_is(name: str) -> None:
    assert codex_name(name, CATALOG, ALIASES) == name


@pytest.mark.promise("anthropic.effort")
@pytest.mark.parametrize(
    ("effort", "efforts", "expected"),
    [
        ("high", ("low", "medium", "high"), "high"),
        ("max", ("low", "medium", "high"), "high"),
        ("max", ("low", "max"), "max"),
        ("medium", ("low", "high"), "low"),
        ("low", ("none", "minimal"), "minimal"),
        ("xhigh", (), "high"),
        ("xhigh", ("ultra",), "xhigh"),
    ],
)
def test_an_effort_is_the_nearest_that_the_model_has(effort: str, efforts: tuple[str, ...], expected: str) -> None:
    assert nearest_effort(effort, model("m", efforts=efforts)) == expected


@pytest.mark.promise("anthropic.models.list")
def test_the_official_client_reads_a_model() -> None:
    shown = model_object(model("gpt-5.5"), "claude-gpt-5.5")
    assert shown == {
        "type": "model",
        "id": "claude-gpt-5.5",
        "display_name": "GPT-5.5",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 272_000,
        "max_tokens": 128_000,
    }
    read = official.ModelInfo.model_validate_json(msgspec.json.encode(shown), strict=True)
    assert (read.id, read.model_extra) == ("claude-gpt-5.5", {})
