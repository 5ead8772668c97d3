"""Values in writing, and how much there is in them."""

import operator
from collections.abc import Iterator

import pytest

from turnbridge.turn.items import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Json,
    Message,
    RawItem,
    TextPart,
    canonical_json,
    media_parts,
    normalized_json,
    replace,
    size,
    visible,
)

DEEP = "[" * 100_000 + "]" * 100_000
MANY = f"[{'0, ' * 20_000}0]"
LONG = '" ' + "x" * 2**20 + '"'


def nested(depth: int) -> Json:
    value: Json = "abc"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{ "b" : 1, "a": [true, 1.0] }', '{"a":[true,1.0],"b":1}'),
        ('"R\\u00f6m"', '"Röm"'),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("not JSON", "not JSON"),
        ('"\ud800"', '"\ud800"'),
        (DEEP, DEEP),
        (MANY, MANY),
        (LONG, LONG),
    ],
    ids=[
        "spaces and order",
        "escapes",
        "a long number",
        "not JSON",
        "half a surrogate pair",
        "too deep to be read",
        "many values",
        "long",
    ],
)
def test_json_is_rewritten_in_one_way_and_any_other_text_is_left_as_it_is(text: str, expected: str) -> None:
    assert normalized_json(text) == expected


def test_values_that_the_model_cannot_tell_apart_are_seen_alike() -> None:
    image = ImagePart(url="u", param="input[0]")
    message = Message(role="user", parts=(TextPart(text="a"), image), id="msg_1")
    again = Message(role="user", parts=(TextPart(text="a"), replace(image, param="input[9]")), id="msg_2")
    assert canonical_json(visible((message,))) == canonical_json(visible((again,)))


def test_values_that_the_model_can_tell_apart_are_not_seen_alike() -> None:
    text, image = TextPart(text="u"), ImagePart(url="u", param="")
    values = (
        *(1, True, 1.0, "1", None, (), ("1",)),
        *(text, image, replace(image, detail="low")),
        *(Message(role=role, parts=(text,)) for role in ("user", "developer")),
        Message(role="user", parts=(text, text)),
        FunctionCallOutput(call_id="u", output="u"),
        FunctionCallOutput(call_id="u", output=(text,)),
        RawItem(item={"u": 1}),
        RawItem(item={"u": True}),
    )
    assert len({canonical_json(visible(value)) for value in values}) == len(values)


def test_what_python_takes_for_equal_differs_in_writing() -> None:
    assert len({canonical_json({"const": value}) for value in (1, True, 1.0)}) == 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, 0),
        ("abc", 3),
        (["abc", ("d", 5, True)], 4),
        (Message(role="user", parts=(TextPart(text="abc"), ImagePart(url="defg", param=""))), 4 + 3 + 4),
        (FilePart(filename="a", mime_type=None, data=b"bcd", param="e"), 5),
        (FunctionCall(call_id="c", name="f", arguments="{}"), 4),
        (RawItem(item={"type": "x", "y": {"z": ["abc"]}}), 5 + 1 + 1 + 3),
        (nested(100_000), 3),
    ],
    ids=["nothing", "text", "list", "message", "file", "call", "other item", "deeply nested"],
)
def test_the_size_of_a_value_is_that_of_all_that_is_in_it(value: object, expected: int) -> None:
    assert size(value) == expected


def test_two_items_are_equal_or_unequal_by_what_the_model_sees_and_never_both() -> None:
    item = FunctionCall(call_id="c", name="f", arguments="{}", id="fc_1")
    renamed = FunctionCall(call_id="c", name="f", arguments="{}", id="fc_2")
    other = FunctionCall(call_id="c", name="g", arguments="{}", id="fc_1")
    assert (operator.eq(item, renamed), operator.ne(item, renamed)) == (True, False)
    assert (operator.eq(item, other), operator.ne(item, other)) == (False, True)


class Unread(str):
    """A text that nobody may read character by character."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("A long output would keep the event loop busy.")


def test_media_are_looked_for_in_parts_and_not_in_texts() -> None:
    image = ImagePart(url="data:image/png;base64,AA==", detail=None, param="input")
    items = (
        FunctionCallOutput(call_id="c", output=Unread("long")),
        FunctionCallOutput(call_id="d", output=(TextPart(text="a"), image)),
        Message(role="user", parts=(image, TextPart(text="b"))),
    )
    assert list(media_parts(items)) == [image, image]
