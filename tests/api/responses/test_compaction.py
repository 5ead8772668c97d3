"""The seal of compacted histories, and what requests become of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.responses.compaction import (
    INTRODUCTION,
    PREFIX,
    PROMPT,
    WINDOW_PREFIX,
    Seal,
    compaction_body,
    expanded,
    planned,
    threshold_of,
)
from turnbridge.api.responses.decode import decode_items
from turnbridge.api.responses.schema import ContextManagement
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
    shown = [("history[0]", theirs), ("input[0]", summary), ("input[1]", said)]
    assert expanded([theirs], [ours, said], SEAL) == shown
    assert expanded([], [said], SEAL) is None


def user(text: str) -> JsonObject:
    return {"type": "message", "role": "user", "content": text}


SAID: JsonObject = {"type": "message", "role": "assistant", "content": "a"}
RULE: JsonObject = {"role": "system", "content": "Be kind."}
IMAGE: JsonObject = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
PICTURE: JsonObject = {"role": "user", "content": [{"type": "input_text", "text": "See."}, IMAGE]}
LISTED: JsonObject = {"type": "mcp_list_tools", "id": "m", "server_label": "x", "tools": []}


def told(summary: str) -> JsonObject:
    return {"type": "message", "role": "developer", "content": INTRODUCTION + summary}


def test_a_window_replaces_what_stands_before_it_and_keeps_what_the_client_wants_now() -> None:
    given: list[JsonObject] = [LISTED, RULE, told("old"), PICTURE, SAID, user("b"), SAID, PICTURE]
    plan, item_of = planned(given, 1000, SEAL, "cmp_1")
    item = item_of("new")
    kept = [RULE, user("See."), user("b")]
    assert (plan.threshold, plan.kept, plan.tail) == (1000, decode_items(kept), 1)
    window = [*kept, told("new"), PICTURE]
    places = [f"input[7].encrypted_content[{index}]" for index in range(len(window))]
    shown = expanded([LISTED, SAID], [*given[:-1], item, SAID], SEAL)
    # A list of tools is not asked for again; it is no part of what the model sees.
    lists = [("history[0]", LISTED), ("input[0]", LISTED)]
    assert shown == [*lists, *zip(places, window, strict=True), ("input[8]", SAID)]


def test_the_latest_messages_of_the_user_are_kept_while_there_is_room() -> None:
    plan, _ = planned([user("ü" * 300), user("b" * 300), user("c" * 200), SAID], 1000, SEAL, "cmp_1")
    assert plan.kept == decode_items([user("b" * 300), user("c" * 200)])
    assert planned([user("b" * 1001), SAID, user("c")], 1000, SEAL, "cmp_1")[0].kept == ()


def test_one_kind_of_item_cannot_be_passed_off_as_the_other() -> None:
    content = SEAL.close("[]").removeprefix(PREFIX)
    with pytest.raises(InvalidRequest):
        expanded([], [{"type": "compaction", "encrypted_content": WINDOW_PREFIX + content}], SEAL)


def entries(*thresholds: int | None) -> list[ContextManagement]:
    return [ContextManagement(type="compaction", compact_threshold=threshold) for threshold in thresholds]


def test_a_threshold_is_the_clients_or_follows_from_the_model() -> None:
    assert threshold_of(entries(), None) is None
    assert threshold_of(entries(5000, 3000), None) == 3000
    assert threshold_of(entries(None), 272_000) == 244_800


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        (entries(999), "context_management[0].compact_threshold"),
        (entries(1000, None), "context_management[1].compact_threshold"),
        ([ContextManagement(type="clear")], "context_management[0].type"),
    ],
)
def test_what_is_wrong_with_a_threshold_is_named(wrong: list[ContextManagement], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        threshold_of(wrong, None)
    assert refused.value.param == param


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
