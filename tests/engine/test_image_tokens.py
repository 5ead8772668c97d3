"""The tokens of images, by the rules and the examples that OpenAI publishes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.engine.image_tokens import image_tokens


@pytest.mark.parametrize(
    ("model", "size", "detail", "tokens"),
    [
        # OpenAI's own examples.
        ("gpt-5.4", (1024, 1024), "high", 1229),
        ("gpt-5.4", (2048, 2048), "high", 3000),
        # Its rules for other models and details.
        ("gpt-5.4", (2048, 2048), None, 3000),
        ("gpt-5.4-mini", (2048, 2048), "low", 3000),
        ("gpt-5.5", (2048, 2048), "low", 308),
        ("gpt-5.5", (2048, 2048), None, 3000),
        ("gpt-5.5", (8000, 8000), "original", 12_000),
        ("gpt-5.6-sol", (2048, 2048), "auto", 3000),
        ("gpt-5.6-sol", (8000, 8000), "original", 75_000),
        ("gpt-6.1-sol", (8000, 8000), "original", 75_000),
        ("gpt-5.2-codex", (2048, 2048), "high", 3000),
        ("gpt-5.1", (1024, 1024), "high", 70 + 4 * 140),
        ("gpt-5-codex", (1000, 2000), "auto", 70 + 6 * 140),
        ("gpt-5", (4096, 4096), "low", 70),
        # One patch, and an image that is none.
        ("gpt-6.1-sol", (1, 1), None, 2),
        ("gpt-6.1-sol", (0, 0), None, 2),
    ],
)
def test_an_image_takes_as_many_tokens_as_its_model_counts(
    model: str, size: tuple[int, int], detail: str | None, tokens: int
) -> None:
    assert image_tokens(model, *size, detail) == tokens


def test_codex_scales_what_is_not_original_before_the_provider_counts_it() -> None:
    assert image_tokens("gpt-6.1-sol", 8000, 8000, "auto") == image_tokens("gpt-6.1-sol", 1600, 1600, "auto") == 3000


@given(st.integers(1, 60_000), st.integers(1, 60_000), st.sampled_from(["high", "original", None]))
def test_the_budget_of_patches_is_kept_by_every_shape(width: int, height: int, detail: str | None) -> None:
    most = 3000 if detail == "high" else 12_000
    assert 2 <= image_tokens("gpt-5.5", width, height, detail) <= most
