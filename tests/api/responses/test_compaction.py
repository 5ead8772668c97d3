"""The seal of compacted histories, and what requests become of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.responses.compaction import INTRODUCTION, PREFIX, PROMPT, Seal, compaction_body, expanded
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import JsonObject

SEAL = Seal(lambda: b"secret")
OTHER = Seal(lambda: b"another secret")


def opened(content: str) -> str | None:
    """Return what is in an item, unless it is refused."""
    try:
        return SEAL.open(content, param="x")
    except InvalidRequest:
        return None


@given(st.text())
def test_a_summary_comes_out_as_it_went_in_and_cannot_be_read_meanwhile(summary: str) -> None:
    content = SEAL.close(summary)
    assert content.startswith(PREFIX)
    assert SEAL.open(content, param="x") == summary


@given(st.text(), st.integers(min_value=0), st.binary(min_size=1, max_size=1))
def test_what_was_changed_anywhere_is_refused(summary: str, place: int, byte: bytes) -> None:
    content = SEAL.close(summary)
    at = len(PREFIX) + place % (len(content) - len(PREFIX))
    changed = content[:at] + byte.decode("latin-1") + content[at + 1 :]
    # The last letter of base64 may have bits that count for nothing.
    assert opened(changed) in (None, summary)


def test_another_gateways_summary_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        OTHER.open(SEAL.close("Rome."), param="x")


def test_only_our_items_become_messages() -> None:
    ours: JsonObject = {"type": "compaction", "id": "cmp_1", "encrypted_content": SEAL.close("Rome.")}
    theirs: JsonObject = {"type": "compaction", "encrypted_content": "gAAAAAB"}
    said: JsonObject = {"role": "user", "content": "hi"}
    summary: JsonObject = {"type": "message", "role": "developer", "content": f"{INTRODUCTION}Rome."}
    assert expanded([theirs, ours, said], SEAL) == [theirs, summary, said]
    assert expanded([said], SEAL) == [said]


@pytest.mark.parametrize(
    ("given_input", "items"),
    [
        (None, []),
        ("hi", [{"type": "message", "role": "user", "content": "hi"}]),
        ([{"role": "user"}], [{"role": "user"}]),
    ],
)
def test_the_model_is_asked_for_a_summary_and_for_nothing_else(given_input: object, items: list[JsonObject]) -> None:
    body: JsonObject = {"model": "gpt-5.5", "input": given_input, "tools": [], "stream": True}  # type: ignore[dict-item]
    asked: JsonObject = {"type": "message", "role": "user", "content": PROMPT}
    assert compaction_body(body) == {"model": "gpt-5.5", "input": [*items, asked], "store": False}
