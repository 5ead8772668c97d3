"""Lanes: order, limits and memory, for any order of events."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.responses import lanes as bounds
from turnbridge.api.responses.lanes import (
    MOST_NAMED,
    MOST_RUNNING,
    MOST_WAITING,
    Lane,
    LaneMemory,
    Lanes,
    Remembered,
    checked_lane,
)
from turnbridge.turn.errors import InvalidRequest, RateLimited
from turnbridge.turn.items import Json, JsonObject


@pytest.mark.parametrize("name", [None, "a", "A-1_b.c", "x" * 256])
def test_a_lane_is_named_by_letters_digits_and_a_few_signs(name: str | None) -> None:
    assert checked_lane(name) == name


@pytest.mark.parametrize("name", ["", "x" * 257, "a b", "ä", "a\n", "a/b", 1, True, [], {}])
def test_other_names_of_lanes_are_refused(name: Json) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked_lane(name)
    assert (refused.value.error_code, refused.value.param) == ("invalid_stream_id", "stream_id")


def test_requests_of_one_lane_run_one_after_another() -> None:
    lanes: Lanes[int] = Lanes()
    for number in range(3):
        lanes.add("a", number, 1)
    ran = []
    while started := lanes.start():
        assert len(started) == 1
        assert lanes.start() == []
        ran += [number for _, number in started]
        lanes.end("a")
    assert (ran, lanes.idle, lanes.waiting_bytes) == ([0, 1, 2], True, 0)


def test_the_seventeenth_lane_waits_and_is_not_refused() -> None:
    lanes: Lanes[int] = Lanes()
    for number in range(MOST_RUNNING + 1):
        lanes.add(f"lane-{number}", number, 1)
    assert [number for _, number in lanes.start()] == list(range(MOST_RUNNING))
    lanes.end("lane-3")
    assert lanes.start() == [("lane-16", 16)]


def test_a_lane_that_goes_on_waits_behind_those_that_came_before() -> None:
    lanes: Lanes[str] = Lanes()
    for number in range(MOST_RUNNING):
        lanes.add(f"lane-{number}", "first", 1)
    lanes.start()
    lanes.add("lane-0", "second", 1)
    lanes.add("late", "first", 1)
    lanes.end("lane-0")
    assert lanes.start() == [("late", "first")]


def test_the_thirty_third_name_is_refused_for_good_and_the_default_lane_is_not_counted() -> None:
    lanes: Lanes[int] = Lanes()
    for number in range(MOST_NAMED):
        lanes.add(f"lane-{number}", number, 1)
        lanes.start()
        lanes.end(f"lane-{number}")
    for _ in range(2):
        with pytest.raises(InvalidRequest) as refused:
            lanes.add("one-more", 0, 1)
        assert refused.value.error_code == "websocket_stream_limit_reached"
    lanes.add(None, 0, 1)
    lanes.add("lane-7", 0, 1)
    assert lanes.start() == [(None, 0), ("lane-7", 0)]


def test_what_waits_is_bounded_in_number() -> None:
    lanes: Lanes[int] = Lanes()
    lanes.add(None, 0, 1)
    lanes.start()
    for number in range(MOST_WAITING):
        lanes.add(None, number, 1)
    with pytest.raises(RateLimited) as refused:
        lanes.add(None, 0, 1)
    assert refused.value.error_code == "queue_full"
    lanes.end(None)
    lanes.start()
    lanes.add(None, 0, 1)


def test_what_waits_is_bounded_in_size_but_one_request_always_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_WAITING_BYTES", 10)
    lanes: Lanes[str] = Lanes()
    lanes.add(None, "large", 100)
    with pytest.raises(RateLimited):
        lanes.add("a", "small", 1)
    assert lanes.start() == [(None, "large")]
    lanes.add("a", "small", 10)
    assert lanes.waiting_bytes == 10


LANES = st.sampled_from([None, *(f"lane-{number}" for number in range(20))])


@given(st.data())
def test_in_any_order_of_events_each_lane_runs_its_requests_alone_and_in_their_order(data: st.DataObject) -> None:
    lanes: Lanes[tuple[Lane, int]] = Lanes()
    sent: Counter[Lane] = Counter()
    ran: dict[Lane, list[int]] = {}
    running: set[Lane] = set()

    def start() -> None:
        for lane, (own, number) in lanes.start():
            assert (lane, lane in running) == (own, False)
            running.add(lane)
            ran.setdefault(lane, []).append(number)
        assert len(running) <= MOST_RUNNING

    for _ in range(data.draw(st.integers(0, 60))):
        if bool(running) and data.draw(st.booleans()):
            lane = data.draw(st.sampled_from(sorted(running, key=str)))
            running.remove(lane)
            lanes.end(lane)
        else:
            lane = data.draw(LANES)
            lanes.add(lane, (lane, sent[lane]), 1)
            sent[lane] += 1
        start()
        # Nothing waits in vain.
        waiting = {lane for lane in sent if len(ran.get(lane, [])) < sent[lane]}
        assert not (waiting - running) or len(running) == MOST_RUNNING
    while running:
        lanes.end(running.pop())
        start()
    assert ran == {lane: list(range(count)) for lane, count in sent.items()}
    assert (lanes.idle, lanes.waiting_bytes) == (True, 0)


ITEMS: tuple[JsonObject, ...] = ({"type": "message", "role": "user", "content": "hi"},)


def test_a_lane_remembers_its_latest_response_for_all_lanes_of_its_connection_only() -> None:
    memory = LaneMemory()
    memory.keep("client", (1, None), Remembered("resp_1", ITEMS), 2)
    memory.keep("client", (1, "a"), Remembered("resp_2", ()), 0)
    assert (memory.find(1, "resp_1"), memory.find(1, "resp_2"), memory.find(2, "resp_1")) == (ITEMS, (), None)
    memory.keep("client", (1, None), Remembered("resp_3", ITEMS), 2)
    assert (memory.find(1, "resp_1"), memory.find(1, "resp_3"), len(memory)) == (None, ITEMS, 2)
    memory.forget(1)
    assert (memory.find(1, "resp_3"), len(memory)) == (None, 0)


def test_a_response_is_dropped_from_its_own_lane_only() -> None:
    memory = LaneMemory()
    memory.keep("client", (1, "a"), Remembered("resp_1", ITEMS), 2)
    memory.drop((1, "b"), "resp_1")
    memory.drop((1, "a"), "resp_other")
    assert memory.find(1, "resp_1") == ITEMS
    memory.drop((1, "a"), "resp_1")
    memory.drop((1, "a"))
    assert (memory.find(1, "resp_1"), len(memory)) == (None, 0)


def test_the_client_that_holds_most_loses_its_oldest() -> None:
    memory = LaneMemory(most=3, most_characters=100)
    memory.keep("poor", (1, None), Remembered("resp_poor", ITEMS), 10)
    for number in range(3):
        memory.keep("rich", (2, str(number)), Remembered(f"resp_{number}", ITEMS), 10)
    assert [memory.find(2, f"resp_{number}") for number in range(3)] == [None, ITEMS, ITEMS]
    memory.keep("rich", (2, "3"), Remembered("resp_large", ITEMS), 1000)
    assert memory.find(2, "resp_large") is None
    assert memory.find(1, "resp_poor") == ITEMS
