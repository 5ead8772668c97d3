"""Usage in the store, on both databases."""

import asyncio

import pytest

from turnbridge.store.sql_store import SqlStore
from turnbridge.turn.usage import DAY_S, HOUR_S, Counts, UsageKey, UsageQuery, UsageSum

pytestmark = pytest.mark.anyio

NAMES = {"a": "alice", "b": "bob"}
ONE = Counts(requests=1, input=10, cached=4, output=5, reasoning=2)
FAILED = Counts(requests=1, errors=1)


async def filled(store: SqlStore) -> None:
    await store.add_usage({UsageKey("a", 0, "m"): ONE, UsageKey("b", HOUR_S, "m"): ONE}, NAMES)
    await store.add_usage({UsageKey("a", 0, "m"): FAILED, UsageKey("a", DAY_S, "n"): ONE}, NAMES)


async def test_usage_is_added_up(store: SqlStore) -> None:
    await filled(store)

    everything = UsageQuery(start=0, end=2 * DAY_S, width=DAY_S)
    sums = await store.usage(everything)
    assert sums == [
        UsageSum(
            start=0,
            client=None,
            model=None,
            counts=Counts(requests=3, errors=1, input=20, cached=8, output=10, reasoning=4),
        ),
        UsageSum(start=DAY_S, client=None, model=None, counts=ONE),
    ]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (UsageQuery(start=0, end=2 * DAY_S, width=2 * DAY_S, by_client=True), [("alice", None, 3), ("bob", None, 1)]),
        (UsageQuery(start=0, end=2 * DAY_S, width=2 * DAY_S, by_model=True), [(None, "m", 3), (None, "n", 1)]),
        (UsageQuery(start=0, end=DAY_S, width=DAY_S, by_client=True, client="a"), [("alice", None, 2)]),
        (UsageQuery(start=0, end=DAY_S, width=DAY_S, client="a", names=("bob",)), []),
        (UsageQuery(start=0, end=2 * DAY_S, width=2 * DAY_S, by_client=True, models=("n", "'")), [("alice", None, 1)]),
        (UsageQuery(start=HOUR_S, end=2 * HOUR_S, width=HOUR_S), [(None, None, 1)]),
        (UsageQuery(start=0, end=0, width=HOUR_S), []),
    ],
)
async def test_usage_is_found_by_what_is_asked(
    store: SqlStore, asked: UsageQuery, found: list[tuple[str | None, str | None, int]]
) -> None:
    await filled(store)

    assert [(each.client, each.model, each.counts.requests) for each in await store.usage(asked)] == found


async def test_a_client_has_the_name_that_it_had_last(store: SqlStore) -> None:
    await store.add_usage({UsageKey("a", 0, "m"): ONE}, NAMES)
    await store.add_usage({UsageKey("a", 0, "m"): ONE}, {"a": "renamed"})

    (found,) = await store.usage(UsageQuery(start=0, end=HOUR_S, width=HOUR_S, by_client=True))
    assert (found.client, found.counts.requests) == ("renamed", 2)


async def test_tokens_are_summed_from_an_hour_on(store: SqlStore) -> None:
    await filled(store)

    assert await store.tokens_since(["a", "b", "c"], 0) == {"a": 30, "b": 15}
    assert await store.tokens_since(["a", "b"], DAY_S) == {"a": 15}


async def test_old_usage_is_removed(store: SqlStore) -> None:
    await filled(store)

    await store.prune_usage(DAY_S)

    assert [each.start for each in await store.usage(UsageQuery(start=0, end=2 * DAY_S, width=DAY_S))] == [DAY_S]


async def test_several_writers_at_once_lose_nothing(store: SqlStore) -> None:
    batch = {UsageKey(client, 0, model): ONE for client in "ab" for model in "xyz"}
    await asyncio.gather(*(store.add_usage(batch, NAMES) for _ in range(20)))

    (found,) = await store.usage(UsageQuery(start=0, end=HOUR_S, width=HOUR_S))
    assert found.counts.requests == 20 * len(batch)
