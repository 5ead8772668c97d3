"""The tokenizer of OpenAI's current models."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnbridge.tokens import OpenAITokenizer

TOKENIZER = OpenAITokenizer()
texts = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("hello", 1),
        ("hello world", 2),
        ("Grüß Gott", 4),
        ("def f(x):\n    return x\n", 8),
        ("<|endoftext|>", 7),
    ],
)
def test_text_is_counted_as_the_model_counts_it(text: str, count: int) -> None:
    assert TOKENIZER.count(text) == count


@settings(deadline=None)  # The vocabulary is loaded at the first use.
@given(texts, st.integers(0, 12))
def test_a_cut_is_a_prefix_within_its_limit(text: str, limit: int) -> None:
    kept = TOKENIZER.cut(text, limit)
    assert text.startswith(kept)
    assert TOKENIZER.count(kept) <= limit
    assert kept == text or TOKENIZER.count(text) > limit


@pytest.mark.parametrize("text", ["👩‍👩‍👧", "漢字", "e\u0301", "\ufffd\ufffd"])
def test_a_cut_never_splits_a_character(text: str) -> None:
    prefixes = {text[:size] for size in range(len(text) + 1)}
    assert {TOKENIZER.cut(text, limit) for limit in range(TOKENIZER.count(text) + 1)} <= prefixes


def test_the_vocabulary_is_loaded_only_when_it_is_needed() -> None:
    code = "import turnbridge.bootstrap, turnbridge.tokens as t; print(t._encoding.cache_info().currsize)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"
