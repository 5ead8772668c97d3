"""A client's mistakes are told as OpenAI tells them: what is wrong, and where."""

import msgspec
import pytest

from tests.api.shared.told import Told, told
from turnbridge.api.shared.validation import convert, parse_body, unknown_fields
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json, JsonObject


class Inner(msgspec.Struct):
    role: str
    size: int | None = None


class Outer(msgspec.Struct):
    items: list[Inner] = []
    stop: str | list[str] | None = None
    wide: float | None = None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": 1} trailing',
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"\xff\xfe{}",
        b"null",
        b"[]",
        b'"text"',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=range(14),
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_body(body)
    assert (caught.value.error_code, caught.value.param) == ("invalid_json", None)


def test_a_body_is_read_as_it_is() -> None:
    assert parse_body(b' {"a": [1, 2.5, true, null, "\\u00e9"], "b": {}} ') == {"a": [1, 2.5, True, None, "é"], "b": {}}


def test_a_mark_of_its_encoding_before_a_body_is_passed_over() -> None:
    assert parse_body('\ufeff{"a": 1}'.encode()) == {"a": 1}


def test_a_body_in_another_encoding_is_told_which_to_use() -> None:
    with pytest.raises(InvalidRequest, match=r"it is not UTF-8\. Send it in that encoding\."):
        parse_body('{"a": "ü"}'.encode("latin-1"))


@pytest.mark.promise("errors.malformed")
@pytest.mark.parametrize(
    ("value", "param", "message", "code", "place"),
    [
        (
            {"items": [{"role": "user"}, {"role": 7}]},
            "",
            "Invalid type for 'items[1].role': Expected `str`, got `int`.",
            "invalid_type",
            "items[1].role",
        ),
        (
            {"items": [{}]},
            "",
            "Missing required parameter: 'items[0].role'.",
            "missing_required_parameter",
            "items[0].role",
        ),
        (
            {"stop": 5},
            "",
            "Invalid type for 'stop': Expected `str | array | null`, got `int`.",
            "invalid_type",
            "stop",
        ),
        (
            {"items": [{"role": "user", "size": True}]},
            "input[3]",
            "Invalid type for 'input[3].items[0].size': Expected `int | null`, got `bool`.",
            "invalid_type",
            "input[3].items[0].size",
        ),
        (
            7,
            "input[3]",
            "Invalid type for 'input[3]': Expected `object`, got `int`.",
            "invalid_type",
            "input[3]",
        ),
        ({"wide": 10**400}, "", "Invalid value for 'wide': Number out of range.", "invalid_value", "wide"),
    ],
)
def test_a_wrong_value_is_named_by_its_place(value: Json, param: str, message: str, code: str, place: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        convert(value, Outer, param=param)
    assert told(caught.value) == Told(InvalidRequest, message, code, place)


def test_only_fields_that_nobody_knows_and_that_say_something_are_listed() -> None:
    body: JsonObject = {"stop": "x", "temprature": 0, "unset": None, "wide": None, "extra": False}
    assert unknown_fields(body, Outer) == ["temprature", "extra"]
