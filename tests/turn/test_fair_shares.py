"""Whose entry goes when there are too many, or too much of them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.turn.fair_shares import FairShares


def gone(entries: list[tuple[str, int]], *, most: int = 100, most_bytes: int | None = None) -> list[str]:
    """Return what goes while these entries come, each of a client and a size: `a0` is the first of client `a`."""
    shares: FairShares[str] = FairShares(most=most, most_bytes=most_bytes)
    counts: Counter[str] = Counter()
    went = []
    for client, size in entries:
        shares.add(client, f"{client}{counts[client]}", size)
        counts[client] += 1
        while (excess := shares.excess()) is not None:
            shares.remove(excess)
            went.append(excess)
    return went


@pytest.mark.parametrize(
    ("entries", "went"),
    [
        ([("a", 0)] * 5, ["a0", "a1"]),
        ([("b", 0), *[("a", 0)] * 4], ["a0", "a1"]),
        ([*[("a", 0)] * 3, ("b", 0)], ["a0"]),
        ([("a", 0), ("b", 0), ("c", 0), ("b", 0)], ["b0"]),
    ],
    ids=["alone", "whoever comes often", "whoever had all", "whoever comes again"],
)
def test_the_client_with_most_entries_loses_its_oldest(entries: list[tuple[str, int]], went: list[str]) -> None:
    assert gone(entries, most=3) == went


@pytest.mark.parametrize(
    ("entries", "went"),
    [
        ([("a", 4), ("a", 4), ("a", 4)], ["a0"]),
        ([("b", 1), ("b", 1), ("b", 1), ("a", 5), ("a", 5)], ["a0"]),
        ([("b", 1), ("a", 11)], ["a0"]),
        ([("a", 6), ("b", 6)], ["a0"]),
    ],
    ids=["alone", "large ones against many", "too large for itself", "alike: the older"],
)
def test_the_client_with_the_largest_entries_loses_its_oldest(entries: list[tuple[str, int]], went: list[str]) -> None:
    assert gone(entries, most_bytes=10) == went


def test_an_entry_that_is_counted_again_is_the_newest_and_counts_once() -> None:
    shares: FairShares[str] = FairShares(most=2, most_bytes=10)
    for key, size in (("x", 8), ("y", 1), ("x", 2), ("z", 1)):
        shares.add("a", key, size)
    assert (len(shares), shares.held("a"), list(shares.entries("a"))) == (3, 3, ["y", "x", "z"])
    assert shares.excess() == "y"


@given(
    entries=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=60),
    most=st.integers(1, 8),
    most_bytes=st.none() | st.integers(1, 20),
)
def test_whoever_stays_within_its_part_loses_nothing(
    entries: list[tuple[str, int]], most: int, most_bytes: int | None
) -> None:
    counts = Counter(client for client, _ in entries)
    sizes: Counter[str] = Counter()
    for client, size in entries:
        sizes[client] += size
    safe = {
        client
        for client in counts
        if counts[client] * len(counts) <= most and (most_bytes is None or sizes[client] * len(counts) <= most_bytes)
    }
    assert not {key[0] for key in gone(entries, most=most, most_bytes=most_bytes)} & safe
