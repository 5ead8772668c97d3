"""Which histories are the same conversation, and which digests a request shares with the next one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.turn_requests import turn_request
from turnbridge.engine.history import History, entries
from turnbridge.turn.items import (
    NARRATION,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Message,
    RawItem,
    Reasoning,
    TextPart,
    replace,
)

USER = Message(role="user", parts=(TextPart(text="Hi."),))
ANSWER = Message(role="assistant", parts=(TextPart(text="Yes."),))
NARRATED = replace(ANSWER, phase=NARRATION)
BLANK = Message(role="assistant", parts=(TextPart(text=" \n"),))
IMAGE = ImagePart(url="data:image/png;base64,AA==", detail="low", param="input[0]")
PICTURE = Message(role="user", parts=(TextPart(text="Hi."), IMAGE))
SHOWN = Message(role="assistant", parts=(TextPart(text="Yes."), IMAGE))
REASONING = Reasoning(id="rs", summary=("Hm.",), content=None, encrypted="SECRET")
SEARCH = RawItem(item={"type": "web_search_call", "id": "ws", "action": {"type": "search"}})
OTHER = RawItem(item={"type": "custom_tool_call", "call_id": "x", "n": 1})
CALL = FunctionCall(call_id="a", name="f", arguments='{"n": 1, "m": [true]}')
OUTPUT = FunctionCallOutput(call_id="a", output="done")

ITEMS = st.sampled_from(
    [USER, ANSWER, NARRATED, BLANK, PICTURE, SHOWN, REASONING, SEARCH, OTHER, CALL, replace(CALL, call_id="b"), OUTPUT]
)
CONVERSATIONS = st.lists(ITEMS, max_size=8).map(tuple)
MODELS = st.lists(st.sampled_from([ANSWER, NARRATED, BLANK, REASONING, SEARCH, CALL]), max_size=4).map(tuple)


def history(*items: Item) -> History:
    return History(turn_request(items=items))


def digest(*items: Item) -> bytes:
    return history(*items).digest(len(items))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((USER, ANSWER, USER), (USER, REASONING, NARRATED, SEARCH, ANSWER, REASONING, USER)),
        ((USER, ANSWER, ANSWER), (USER, replace(ANSWER, parts=(TextPart(text="Yes.\n\nYes."),)))),
        ((USER, ANSWER, CALL, OUTPUT), (USER, CALL, ANSWER, OUTPUT)),
        ((USER, CALL, OUTPUT), (USER, BLANK, CALL, OUTPUT)),
        ((USER, CALL, OUTPUT), (USER, replace(CALL, arguments='{ "m":[true],"n" : 1 }'), OUTPUT)),
        ((USER, CALL, OUTPUT), (replace(USER, id="m"), replace(CALL, id="fc"), replace(OUTPUT, id="o"))),
        ((PICTURE,), (replace(PICTURE, parts=(PICTURE.parts[0], replace(IMAGE, param="input[9]"))),)),
        ((OTHER,), (RawItem(item=dict(reversed(OTHER.item.items()))),)),
    ],
    ids=["private", "joined", "call before text", "blank text", "spaces", "ids", "place of an image", "order of keys"],
)
def test_what_not_every_client_sends_back_does_not_count(one: tuple[Item, ...], other: tuple[Item, ...]) -> None:
    assert digest(*one) == digest(*other)


@pytest.mark.parametrize(
    "other",
    [
        (USER, ANSWER, CALL),
        (USER, ANSWER, OUTPUT, CALL),
        (replace(USER, role="developer"), ANSWER, CALL, OUTPUT),
        (PICTURE, ANSWER, CALL, OUTPUT),
        (USER, SHOWN, CALL, OUTPUT),
        (USER, replace(ANSWER, parts=(TextPart(text="No."),)), CALL, OUTPUT),
        (USER, ANSWER, replace(CALL, call_id="b"), OUTPUT),
        (USER, ANSWER, replace(CALL, name="g"), OUTPUT),
        (USER, ANSWER, replace(CALL, namespace="crm"), OUTPUT),
        (USER, ANSWER, replace(CALL, arguments='{"n": true, "m": [true]}'), OUTPUT),
        (USER, ANSWER, CALL, replace(OUTPUT, output="failed")),
        (USER, ANSWER, CALL, replace(OUTPUT, output=(TextPart(text="done"),))),
        (USER, ANSWER, CALL, replace(OUTPUT, custom=True)),
        (USER, ANSWER, CALL, replace(OUTPUT, name="f")),
        (USER, USER, ANSWER, CALL, OUTPUT),
        (USER, ANSWER, CALL, OUTPUT, OTHER),
    ],
    ids=[
        *("output missing", "order", "role", "image added", "image in an answer", "answer", "call id", "function"),
        *(
            "namespace",
            "1 is not true",
            "output",
            "output in parts",
            "custom",
            "named output",
            "repeated",
            "other item",
        ),
    ],
)
def test_everything_else_counts(other: tuple[Item, ...]) -> None:
    assert digest(*other) != digest(USER, ANSWER, CALL, OUTPUT)


def test_an_image_in_an_answer_is_compared() -> None:
    edited = replace(SHOWN, parts=(SHOWN.parts[0], replace(IMAGE, detail="high")))
    assert digest(USER, SHOWN, USER) != digest(USER, edited, USER)


@given(before=CONVERSATIONS, said=MODELS)
def test_the_digest_after_a_turn_is_found_in_the_history_that_continues_it(
    before: tuple[Item, ...], said: tuple[Item, ...]
) -> None:
    following = history(*before, *said, USER)
    answered = any(entries(said))
    assert (
        following.digests.get(len(before) + len(said)) == history(*before).digest(len(before), said)
    ) or not answered


@given(before=CONVERSATIONS, after=CONVERSATIONS)
def test_the_digest_of_the_first_items_does_not_depend_on_those_that_follow(
    before: tuple[Item, ...], after: tuple[Item, ...]
) -> None:
    assert history(*before, *after).digest(len(before)) == digest(*before)


@given(one=CONVERSATIONS, other=CONVERSATIONS)
def test_two_histories_have_the_same_digest_if_their_entries_are_the_same(
    one: tuple[Item, ...], other: tuple[Item, ...]
) -> None:
    same = [entry for _, entry in entries(one)] == [entry for _, entry in entries(other)]
    assert (digest(*one) == digest(*other)) is same
