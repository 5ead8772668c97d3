"""Text that is slow to count: words without an end, and prompts as large as a body may be."""

import pytest

from tests.hostile.site import Site

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MILLION = 1_000_000


def chat(*said: str, **limits: object) -> dict[str, object]:
    return {"model": "gpt-5.5", "messages": [{"role": "user", "content": text} for text in said], **limits}


@pytest.fixture(scope="module", autouse=True)
async def vocabulary(site: Site) -> None:
    """Load the vocabulary, which holds everybody up for 0.15 s once in the life of a gateway."""
    answer = await site.hostile.post("/v1/chat/completions", json=chat("Count this.", max_tokens=1))
    assert answer.json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.promise("parameters.max-tokens.bounded")
@pytest.mark.parametrize("word", ["a", "漢", " ", "xq"], ids=["letters", "ideographs", "blanks", "pairs"])
async def test_a_word_without_an_end_disturbs_nobody(site: Site, word: str) -> None:
    async def ask() -> None:
        content = "x" + word * (2 * MILLION // len(word))
        for limit in (1_000, 300_000):
            answer = await site.hostile.post("/v1/chat/completions", json=chat(content, max_tokens=limit))
            assert answer.status_code == 200, answer.text

    await site.assert_undisturbed(ask)


@pytest.mark.promise("parameters.max-tokens.bounded")
async def test_a_huge_prompt_whose_answer_is_cut_disturbs_nobody(site: Site) -> None:
    async def ask() -> None:
        body = chat("漢" * (5 * MILLION), "Please stop here", stop=["stop"])
        answer = await site.hostile.post("/v1/chat/completions", json=body)
        assert answer.json()["choices"][0]["message"]["content"] == "Please "

    await site.assert_undisturbed(ask)
