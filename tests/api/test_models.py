"""Codex's models as `/v1/models` shows them."""

from openai.types import Model as OfficialModel

from turnbridge.api.models import model_object
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


def test_a_model_shows_what_codex_knows_about_it() -> None:
    assert model_object(MODEL) == {
        "id": "gpt-5.5",
        "object": "model",
        "created": 0,
        "owned_by": "codex",
        "display_name": "GPT-5.5",
        "description": "For everything.",
        "context_window": 272_000,
        "max_context_window": 400_000,
        "reasoning_efforts": ["low", "high"],
        "default_reasoning_effort": "low",
        "input_modalities": ["text", "image"],
        "service_tiers": ["priority"],
    }


def test_a_model_bears_the_name_that_the_client_gave_it() -> None:
    assert model_object(MODEL, name="my-alias") == {**model_object(MODEL), "id": "my-alias"}


def test_the_official_client_reads_a_model() -> None:
    assert OfficialModel.model_validate(model_object(MODEL), strict=True).to_dict() == model_object(MODEL)
