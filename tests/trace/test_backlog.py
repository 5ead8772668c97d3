"""What waits for the trace's thread: in order, bounded, and never in the way."""

import threading
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.trace.reading import lines, trace_to
from turnbridge.trace.trace import Backlog, Line

PATIENCE_S = 10


class Held:
    """A job that does not end before it may."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> None:
        self.began.set()
        self.may_end.wait(PATIENCE_S)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be room for three messages of 1,000 bytes."""
    monkeypatch.setattr(Backlog, "bytes_per_job", 0)
    monkeypatch.setattr(Backlog, "most_waiting_bytes", 3000)


def test_jobs_are_done_in_order_beside_whoever_adds_them_and_before_it_is_closed() -> None:
    jobs = Backlog("test")
    done: list[tuple[int, int]] = []

    def job(number: int) -> None:
        done.append((number, threading.get_ident()))

    for number in range(1000):
        jobs.add(partial(job, number), 1)
    jobs.close()
    assert [number for number, _ in done] == list(range(1000))
    assert threading.get_ident() not in {thread for _, thread in done}


@pytest.mark.usefixtures("small")
def test_what_there_is_no_room_for_is_dropped_and_counted_and_there_is_room_again() -> None:
    jobs = Backlog("test")
    done: list[str] = []
    held, over = Held(), threading.Event()
    jobs.add(held, 1000)
    assert held.began.wait(PATIENCE_S)
    for name in ("first", "second", "too many"):
        jobs.add(partial(done.append, name), 1000)
    jobs.add(over.set, 0)
    assert jobs.dropped == 1
    held.may_end.set()
    assert over.wait(PATIENCE_S)
    jobs.add(lambda: done.append("later"), 1000)
    jobs.close()
    assert (done, jobs.dropped) == (["first", "second", "later"], 1)


@pytest.mark.usefixtures("small")
def test_a_message_larger_than_the_bound_is_taken_when_nothing_else_waits() -> None:
    jobs = Backlog("test")
    done: list[str] = []
    jobs.add(lambda: done.append("large"), 10_000)
    jobs.close()
    assert done == ["large"]


def test_a_job_that_fails_is_counted_and_logged_and_the_next_one_is_done() -> None:
    jobs = Backlog("test")
    done: list[str] = []
    with capture_logs() as logs:
        jobs.add(lambda: done.extend([str(1 // 0)]), 1)
        jobs.add(lambda: done.append("next"), 1)
        jobs.close()
    assert (done, jobs.dropped, [log["event"] for log in logs]) == (["next"], 1, ["trace_line_failed"])


def test_a_close_does_not_wait_for_ever_and_nothing_is_taken_after_it() -> None:
    jobs = Backlog("test")
    jobs.closing_s = 0.01
    held = Held()
    jobs.add(held, 1)
    jobs.close()
    jobs.add(held.may_end.set, 1)
    assert (jobs.dropped, held.may_end.is_set()) == (1, False)
    held.may_end.set()


def test_without_a_job_there_is_no_thread() -> None:
    before = threading.active_count()
    jobs = Backlog("test")
    assert threading.active_count() == before
    jobs.close()


@pytest.mark.usefixtures("small")
def test_a_line_says_how_many_were_lost_before_it(tmp_path: Path) -> None:
    path = tmp_path / "wire.ndjson"
    trace = trace_to(path)
    held = Held()
    trace.later(held, 3000)
    assert held.began.wait(PATIENCE_S)
    for _ in range(2):
        trace.later(lambda: trace.note(Line(*trace.clock(), "http_ingress", "inbound", "request")), 1000)
    for _ in range(2):
        trace.later(lambda: trace.note(Line(*trace.clock(), "http_ingress", "inbound", "disconnect")))
    held.may_end.set()
    trace.close()
    assert [(line["kind"], line.get("lost")) for line in lines(path)] == [("disconnect", 2), ("disconnect", None)]
    assert trace.lost == 2
