"""A body with more values than anybody sends is refused before any of them is made."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.shared import body_budget
from turnbridge.api.shared.body_budget import MAX_STRUCTURE_BYTES, MAX_VALUES, check_body, is_within_budget
from turnbridge.turn.errors import InvalidRequest

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(alphabet='a"\\,[{}]: \n'),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(alphabet='k"\\,[', max_size=3), inner, max_size=5)
    ),
    max_leaves=20,
)


def containers_and_separators(value: object) -> int:
    """Return how many `,`, `[` and `{` a value has outside of strings."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return max(len(value), 1) + sum(map(containers_and_separators, inside))
    return 0


@given(ANYTHING, st.sampled_from([None, 2]), st.integers(2, 40))
def test_values_are_counted_whatever_the_strings_hold(value: object, indent: int | None, piece: int) -> None:
    body = json.dumps(value, indent=indent).encode()
    count = containers_and_separators(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_budget, "PIECE_BYTES", piece)
        patch.setattr(body_budget, "MAX_VALUES", count + body.count(b'"'))
        check_body(body)
        if count:
            patch.setattr(body_budget, "MAX_VALUES", count - 1)
            with pytest.raises(InvalidRequest):
                check_body(body)


@pytest.mark.promise("limits.body")
@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"0," * MAX_VALUES + b"0]}",
        b'{"a":[' + b"[]," * MAX_VALUES + b"0]}",
        b'{"a":[' + b'"",' * MAX_VALUES + b"0]}",
        b"{" + b'"a":1,' * MAX_VALUES + b'"a":1}',
        b'{"a":' + b"[" * MAX_VALUES + b"[",
        b'{"a":' + b"9" * MAX_STRUCTURE_BYTES + b"}",
    ],
    ids=["numbers", "arrays", "strings", "members", "depth", "digits"],
)
def test_what_nobody_sends_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_body(body)
    assert caught.value.error_code == "too_many_values"


def test_a_long_text_may_hold_anything() -> None:
    check_body(json.dumps({"text": '\\",[{' * 1_000_000}).encode())
    check_body(b'{"a":1' + b" " * 4_000_000 + b"}")


def test_whether_a_body_is_within_the_budget_can_be_asked() -> None:
    assert is_within_budget(b"[" + b"[]," * 100 + b"0]")
    assert not is_within_budget(b"[" + b"[]," * MAX_VALUES + b"0]")
