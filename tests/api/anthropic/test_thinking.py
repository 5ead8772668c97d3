"""Reasoning items go out in signatures, and come back as they were."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.anthropic.thinking import VERSION, Kind, opened, sealed
from turnbridge.turn.items import BETWEEN_MESSAGES, Reasoning

PIECES: st.SearchStrategy[list[tuple[Kind, str]]] = st.lists(st.tuples(st.sampled_from(["s", "c"]), st.text()))


def item(pieces: list[tuple[Kind, str]], encrypted: str | None) -> Reasoning:
    content = tuple(text for kind, text in pieces if kind == "c")
    summary = tuple(text for kind, text in pieces if kind == "s")
    return Reasoning(id="rs_1", summary=summary, content=content or None, encrypted=encrypted)


def shown(pieces: list[tuple[Kind, str]]) -> str:
    return BETWEEN_MESSAGES.join(text for _, text in pieces)


@pytest.mark.promise("anthropic.thinking")
@given(PIECES, st.none() | st.text())
def test_an_item_comes_back_as_it_was(pieces: list[tuple[Kind, str]], encrypted: str | None) -> None:
    sent = item(pieces, encrypted)
    returned = opened(sealed(sent, pieces), shown(pieces))
    assert repr(returned) == repr(sent)


@pytest.mark.promise("anthropic.thinking")
def test_a_signature_of_200_kb_comes_back() -> None:
    sent = item([("s", "Hm.")], "x" * 200_000)
    assert opened(sealed(sent, [("s", "Hm.")]), "Hm.") == sent


def test_without_its_text_an_item_comes_back_without_its_summary() -> None:
    sent = item([("s", "Hm.")], "secret")
    assert opened(sealed(sent, [("s", "Hm.")]), "") == item([], "secret")


def test_parts_that_came_in_another_order_are_left_out() -> None:
    sent = item([("s", "a"), ("s", "b")], "secret")
    assert opened(sealed(sent, [("s", "b"), ("s", "a")]), "b\n\na") == item([], "secret")


def envelope(value: object) -> str:
    return VERSION + base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


WHOLE = sealed(item([("s", "Hm.")], "secret"), [("s", "Hm.")])


@pytest.mark.promise("anthropic.thinking")
@pytest.mark.parametrize(
    "signature",
    [
        "",
        "EqQBCgIYAhIM1gbcDa9GJwZA2b3h",
        "not base64 at all: äöü",
        WHOLE[:-5],
        WHOLE[: len(VERSION)],
        f"{WHOLE}!",
        f"{VERSION}ä",
        WHOLE.replace(VERSION, "tb2."),
        envelope([]),
        envelope({"encrypted": "a"}),
        envelope({"id": 1}),
        envelope({"id": "rs_1", "segments": [["x", 1]]}),
        VERSION + base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    ],
)
def test_a_signature_that_is_not_ours_is_none(signature: str) -> None:
    assert opened(signature, "Hm.") is None


@given(st.text(), st.text())
def test_no_signature_is_too_odd(signature: str, text: str) -> None:
    assert opened(VERSION + signature, text) is None or signature
    assert opened(signature, text) is None or signature.startswith(VERSION)


def test_lengths_that_do_not_fit_are_not_believed() -> None:
    for segments in ([["s", -1], ["s", 2]], [["s", 2**70]], [["s", 1], ["s", 1]]):
        assert opened(envelope({"id": "rs_1", "segments": segments}), "Hm.") in (None, item([], None))
