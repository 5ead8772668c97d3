"""Codex's models as `/v1/models` shows them."""

from dataclasses import replace

import pytest
from openai.types import Model as OfficialModel

from turnbridge.api.models import model_object
from turnbridge.engine.models import ModelChoice
from turnbridge.engine.ports import Model

MODEL = Model(
    id="gpt-5.5",
    display_name="GPT-5.5",
    description="For everything.",
    efforts=("low", "high"),
    default_effort="low",
    context_window=272_000,
    max_context_window=400_000,
    modalities=("text", "image"),
    service_tiers=("priority",),
    hidden=False,
    is_default=True,
)


PLAIN = ModelChoice(MODEL, None)


def test_a_model_shows_what_is_known_about_it() -> None:
    assert model_object(PLAIN) == {
        "id": "gpt-5.5",
        "object": "model",
        "created": 0,
        "owned_by": "codex",
        "name": "GPT-5.5",
        "display_name": "GPT-5.5",
        "description": "For everything.",
        "context_length": 272_000,
        "context_window": 272_000,
        "max_context_window": 400_000,
        "max_output_tokens": 128_000,
        "reasoning_efforts": ["low", "high"],
        "default_reasoning_effort": "low",
        "input_modalities": ["text", "image"],
        "output_modalities": ["text"],
        "service_tiers": ["priority"],
    }


def test_a_model_bears_the_name_that_the_client_gave_it() -> None:
    assert model_object(PLAIN, name="my-alias") == {**model_object(PLAIN), "id": "my-alias", "name": "my-alias"}


def test_a_name_with_an_effort_shows_that_one() -> None:
    assert model_object(ModelChoice(MODEL, "high"))["default_reasoning_effort"] == "high"


@pytest.mark.parametrize(
    ("model", "created", "most"),
    [
        ("gpt-5.6-terra", 1_783_555_200, 128_000),
        ("gpt-6-sol", 1_790_035_200, 128_000),
        ("gpt-6.1-sol", 0, 128_000),
        ("llama4:latest", 0, None),
    ],
)
def test_what_openai_published_is_told_of_its_own_models_only(model: str, created: int, most: int | None) -> None:
    shown = model_object(ModelChoice(replace(MODEL, id=model), None))
    assert (shown["created"], shown["max_output_tokens"]) == (created, most)


def test_the_official_client_reads_a_model() -> None:
    assert OfficialModel.model_validate(model_object(PLAIN), strict=True).to_dict() == model_object(PLAIN)
