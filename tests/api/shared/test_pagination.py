"""Lists as OpenAI pages them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.shared.told import Told, told
from turnbridge.api.shared.pagination import (
    MAX_LIMIT,
    page,
    page_of,
    page_query,
    query_number,
)
from turnbridge.engine.records import ItemQuery
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import JsonObject

NAMED: list[JsonObject] = [{"id": name} for name in "abcde"]


def names(listed: JsonObject) -> str:
    data = listed["data"]
    assert isinstance(data, list)
    return "".join(str(each["id"]) for each in data if isinstance(each, dict))


def test_without_a_wish_a_page_has_the_twenty_newest() -> None:
    assert page_query({}) == ItemQuery(limit=20, newest_first=True, after=None)
    assert page_query({"after": ""}, default_order="asc") == ItemQuery(limit=20, newest_first=False, after=None)


def test_every_wish_is_heard() -> None:
    asked = {"limit": "3", "order": "asc", "after": "b"}
    assert page_query(asked) == ItemQuery(limit=3, newest_first=False, after="b")


@pytest.mark.parametrize("limit", ["0", "101", "-1", "1.5", "many", "", "٣", "9" * 5000])
def test_a_limit_is_a_number_from_1_to_100(limit: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        page_query({"limit": limit})
    message = f"Invalid 'limit': expected a number from 1 to {MAX_LIMIT}, but got '{limit}'."
    assert told(caught.value) == Told(InvalidRequest, message, "invalid_value", "limit")


def test_an_order_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        page_query({"order": "random"})
    assert (caught.value.error_code, caught.value.param) == ("invalid_value", "order")


@pytest.mark.parametrize(("given", "number"), [("0", 0), ("12", 12), ("", None), ("-1", None), ("9" * 13, None)])
def test_a_number_of_a_query_is_one_that_could_be_meant(given: str, number: int | None) -> None:
    assert query_number(given) == number


@pytest.mark.parametrize(
    ("query", "shown", "more"),
    [
        (ItemQuery(limit=20, newest_first=True, after=None), "edcba", False),
        (ItemQuery(limit=2, newest_first=True, after=None), "ed", True),
        (ItemQuery(limit=2, newest_first=False, after="b"), "cd", True),
        (ItemQuery(limit=2, newest_first=False, after="c"), "de", False),
        (ItemQuery(limit=2, newest_first=True, after="a"), "", False),
    ],
    ids=str,
)
def test_a_page_has_what_comes_after_and_says_whether_there_is_more(query: ItemQuery, shown: str, more: bool) -> None:
    assert page_of(NAMED, query) == {
        "object": "list",
        "data": [{"id": name} for name in shown],
        "first_id": shown[0] if shown else None,
        "last_id": shown[-1] if shown else None,
        "has_more": more,
    }


def test_to_go_on_after_something_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        page_of(NAMED, ItemQuery(limit=2, newest_first=False, after="z"))
    assert told(caught.value) == Told(
        InvalidRequest, "Invalid 'after': there is no 'z' in this list.", "invalid_value", "after"
    )


def test_an_empty_page_has_no_first_and_no_last() -> None:
    empty: JsonObject = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    assert page([], has_more=False) == empty


@given(length=st.integers(0, 30), limit=st.integers(1, 7), newest_first=st.booleans())
def test_page_by_page_everything_is_seen_once_and_in_order(length: int, limit: int, newest_first: bool) -> None:
    everything: list[JsonObject] = [{"id": f"{number}."} for number in range(length)]
    seen, after, more = "", None, True
    while more:
        listed = page_of(everything, ItemQuery(limit=limit, newest_first=newest_first, after=after))
        seen += names(listed)
        more, after = listed["has_more"] is True, str(listed["last_id"])
    numbers = [str(each["id"]) for each in everything]
    assert seen == "".join(reversed(numbers) if newest_first else numbers)
