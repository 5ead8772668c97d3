"""Which JSON Codex can read, told before Codex is asked."""

import pytest

from turnbridge.turn.items import Json
from turnbridge.turn.json_schema import INTEGERS, MOST_LEVELS, unreadable


def nested(levels: int, value: Json = None) -> Json:
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [nested(MOST_LEVELS), {"a": [True, 0.5, 1e300, None, "x"]}, [INTEGERS[0], INTEGERS[-1]]],
    ids=["deep", "every type", "large"],
)
def test_what_codex_can_read_passes(value: Json) -> None:
    assert unreadable(value) is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (nested(MOST_LEVELS + 1), "nested more than 100 levels deep"),
        (nested(5000), "nested more than 100 levels deep"),
        ({"a": [{"b": INTEGERS[-1] + 1}]}, "an integer of more than 64 bits"),
        (INTEGERS[0] - 1, "an integer of more than 64 bits"),
    ],
    ids=["deep", "very deep", "large", "small"],
)
def test_what_codex_cannot_read_is_told(value: Json, told: str) -> None:
    assert told in (unreadable(value) or "")
