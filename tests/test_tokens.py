"""The tokenizer of OpenAI's current models."""

import asyncio
import importlib
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnbridge import tokens
from turnbridge.tokens import (
    CHUNK_CHARACTERS,
    EXACT_CHARACTERS,
    SHA256,
    WORDS,
    OpenAITokenizer,
)

TOKENIZER = OpenAITokenizer()
texts = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.promise("parameters.max-tokens.counted")
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


def whole(text: str) -> int:
    """Count a text in one piece, as tiktoken does."""
    return len(tokens._encoding().encode_ordinary(text))


words = st.sampled_from(
    ["don't ", "I'LL", "  ", "\n", "\r\n\n", "é", "漢字、", "한국어", "👩‍👩‍👧", "1234567", "_x", "--", "e\u0301", "अ "]
)


@settings(deadline=None)
@given(st.lists(words | texts, max_size=30).map("".join), st.lists(words | texts, max_size=30).map("".join))
@example("the end", " of a word")
@example("it", "'s")
@example("e", "\u0301")
@example("blanks  ", "  and more")
def test_what_is_settled_has_the_same_tokens_whatever_follows(text: str, more: str) -> None:
    end = TOKENIZER.settled(text)
    assert whole(text + more) == whole(text[:end]) + whole(text[end:] + more)


@settings(deadline=None, max_examples=30)
@given(st.lists(words | texts, min_size=1, max_size=30).map("".join))
def test_a_long_text_is_counted_as_tiktoken_counts_it_in_one_piece(text: str) -> None:
    long = (text + "The end, then. ") * (4 * CHUNK_CHARACTERS // (len(text) + 15))
    assert TOKENIZER.count(long) == whole(long)


@pytest.mark.parametrize("word", ["a", " ", "\n", "!", "A", "1", "漢", "😀", "\u0301", "\ud800", "Aa1 -"])
def test_a_word_of_a_million_characters_is_estimated(word: str) -> None:
    text = word * (1_000_000 // len(word))
    part = text[:EXACT_CHARACTERS]
    rate = TOKENIZER.count(part) / len(part)
    assert TOKENIZER.count(text) == pytest.approx(rate * len(text), rel=0.02)
    assert len(TOKENIZER.cut(text, int(rate * 500_000))) == pytest.approx(500_000, rel=0.02)


@pytest.mark.parametrize("size", [CHUNK_CHARACTERS + 1, EXACT_CHARACTERS])
def test_dividing_a_long_word_adds_less_than_a_token_for_each_part(size: int) -> None:
    text = "abcdefgh" * (size // 8)
    assert whole(text) <= TOKENIZER.count(text) <= whole(text) + size // CHUNK_CHARACTERS + 1


def test_an_estimate_sees_all_of_a_mixed_text() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 5_000 + "漢字和假名" * 30_000
    assert TOKENIZER.count(text) == pytest.approx(len(tokens._encoding().encode_ordinary(text)), rel=0.1)


def test_the_vocabulary_and_the_pattern_are_those_of_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    def remember(_url: str, *, expected_hash: str) -> dict[bytes, int]:
        assert expected_hash == SHA256
        return {b"x": 0}

    published = importlib.import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(published, "load_tiktoken_bpe", remember)
    assert published.o200k_base()["pat_str"] == WORDS


def test_a_vocabulary_that_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "SHA256", "0" * 64)
    with pytest.raises(RuntimeError, match="is not the vocabulary that OpenAI publishes"):
        tokens._load.__wrapped__()


@pytest.mark.anyio
async def test_a_turn_that_is_cancelled_leaves_the_loading_to_others() -> None:
    tokenizer = OpenAITokenizer()
    first = asyncio.ensure_future(tokenizer.ready())
    await asyncio.sleep(0)
    first.cancel()
    await tokenizer.ready()
    assert first.cancelled()
    assert tokenizer.count("hello world") == 2


def test_the_vocabulary_is_loaded_only_when_it_is_needed() -> None:
    code = "import turnbridge.bootstrap, turnbridge.tokens as t; print(t._load.cache_info().currsize)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"


def test_nothing_is_downloaded_or_kept_twice() -> None:
    code = (
        "import sys, turnbridge.tokens as t; e = t._encoding(); print(len(e._mergeable_ranks),"
        " [name for name in ('requests', 'urllib3', 'regex') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "0 []\n"
