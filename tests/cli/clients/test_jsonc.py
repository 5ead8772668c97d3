"""Edits of JSON settings files in place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.cli.clients.jsonc import NotEditable, parsed, with_value, without

COMMENTED = """// My settings
{
  "theme": "One Dark", // dark
  /* models */
  "agent": {"model": "x"},
  "tabs": [1, 2,],
}
"""


def test_a_value_is_added_behind_everything_else() -> None:
    assert with_value(COMMENTED, ("a", "b"), {"c": 1}) == COMMENTED.replace(
        '  "tabs": [1, 2,],\n', '  "tabs": [1, 2,],\n  "a": {\n    "b": {\n      "c": 1\n    }\n  },\n'
    )


def test_a_value_is_added_to_an_object_that_is_there() -> None:
    changed = with_value(COMMENTED, ("agent", "effort"), "high")
    assert changed == COMMENTED.replace('{"model": "x"}', '{"model": "x",\n    "effort": "high"\n  }')


def test_a_value_is_replaced_in_its_place() -> None:
    assert with_value(COMMENTED, ("theme",), "Light") == COMMENTED.replace('"One Dark"', '"Light"')
    assert with_value(COMMENTED, ("theme",), "One Dark") == COMMENTED


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", '{\n  "a": 1\n}\n'),
        ("{}", '{\n  "a": 1\n}'),
        ('{"b": 2}', '{"b": 2,\n  "a": 1\n}'),
        ('{\n\t"b": 2 // two\n}\n', '{\n\t"b": 2, // two\n\t"a": 1\n}\n'),
        ("{\n  // nothing yet\n}\n", '{\n  // nothing yet\n  "a": 1\n}\n'),
        ('\ufeff{"b": 2}', '\ufeff{"b": 2,\n  "a": 1\n}'),
    ],
)
def test_every_layout_is_kept(text: str, changed: str) -> None:
    assert with_value(text, ("a",), 1) == changed
    assert parsed(changed)["a"] == 1


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"a" 1}', '{"a": 1 "b": 2}', "{'a': 1}", '{"a": 1, "a": 2}', "{} {}", "/* {}", '{"a": [1 2]}']
)
def test_something_else_is_not_edited(text: str) -> None:
    with pytest.raises(NotEditable):
        with_value(text, ("b",), 1)


def test_a_value_in_the_way_is_not_replaced_by_an_object() -> None:
    with pytest.raises(NotEditable, match="`env` is not an object"):
        with_value('{"env": "x"}', ("env", "NAME"), "1")


def test_nesting_is_bounded() -> None:
    with pytest.raises(NotEditable, match="deeply"):
        with_value('{"a": ' * 100_000, ("b",), 1)


@pytest.mark.parametrize("text", [COMMENTED, "{\n}\n", '{\n  "b": 2\n}\n', '{\n  "b": 2, // two\n}\n'])
def test_what_was_added_can_be_taken_away(text: str) -> None:
    changed = with_value(with_value(text, ("env", "A"), "1"), ("env", "B"), "2")
    assert without(without(changed, ("env", "A"), keep=0), ("env", "B"), keep=0) == text


def test_objects_that_are_used_otherwise_stay() -> None:
    text = '{"env": {"A": "1", "B": "2"}}'
    assert parsed(without(text, ("env", "A"), keep=0)) == {"env": {"B": "2"}}
    assert without(text, ("env", "C"), keep=0) == text


names = st.text(st.characters(codec="utf-8"), max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(names, values, max_size=4), names, values, st.sampled_from([None, 2, "\t"]))
def test_any_json_is_edited_as_python_would(whole: dict[str, object], name: str, value: object, indent: object) -> None:
    text = json.dumps(whole, indent=indent)  # type: ignore[arg-type]
    changed = with_value(text, (name,), value)  # type: ignore[arg-type]
    assert json.loads(changed) == parsed(changed) == {**whole, name: value}
    left = json.loads(without(changed, (name,), keep=0))
    assert left == {key: inner for key, inner in whole.items() if key != name}
