"""The soak itself: a short one passes, and what it must not pass over it does not."""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from soak.faults import Fault, Faults
from soak.hostile import Attack
from soak.load import Outcome
from soak.report import Bounds, Report
from soak.watch import Sample
from tests.support.latency import Latency
from tests.support.plain_http import Answer

ROOT = Path(__file__).parent.parent.parent
SECONDS = 10
# The start, the rest at the end, and a machine that has much to do.
MOST_SECONDS = SECONDS + 90


@pytest.mark.promise("faults.soak")
@pytest.mark.real
@pytest.mark.timeout(MOST_SECONDS + 10)
def test_a_short_soak_has_no_unexplained_outcome_and_no_leak(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    # `tests/hostile` has every attack by itself.
    chosen = ["--minutes", str(SECONDS / 60), "--hostile", "0", "--seed", "1", "--report", str(report)]
    command = [sys.executable, "-m", "soak", *chosen]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=MOST_SECONDS, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(report.read_text(encoding="utf-8"))
    assert (told["passed"], told["unexplained"], told["leaks"], told["excesses"]) == (True, [], [], [])
    assert {"stop", "kill", "garbage"} <= set(told["faults"])


def outcome(**fields: str) -> Outcome:
    return Outcome(kind="chat", began=100.0, ended=101.0, **fields)


@pytest.mark.parametrize(
    ("ended", "faults", "explained"),
    [
        (outcome(), [], True),
        (outcome(told="backend_unavailable"), [], False),
        (outcome(told="backend_unavailable"), [Fault(kind="kill", at=100.5)], True),
        (outcome(told="backend_unavailable"), [Fault(kind="kill", at=50.0)], False),
        (outcome(told="backend_unavailable"), [Fault(kind="kill", at=101.5)], False),
        (outcome(told="backend_unavailable"), [Fault(kind="garbage", at=100.5)], False),
        (outcome(told="internal_error"), [Fault(kind="kill", at=100.5)], False),
        (outcome(defect="2 endings"), [Fault(kind="kill", at=100.5)], False),
    ],
)
def test_only_a_fault_at_the_time_explains_an_error_and_nothing_explains_a_defect(
    ended: Outcome, faults: list[Fault], explained: bool
) -> None:
    done = Faults(Mock(), random.Random(0), interval_s=1)
    done.done += faults
    assert done.explain(ended) is explained


def report(
    *,
    unexplained: Sequence[Outcome] = (),
    leaks: Sequence[str] = (),
    gateway_mb: float = 100,
    attacks: Sequence[Attack] = (),
    longest_s: float = 0.1,
) -> Report:
    sample = Sample(
        second=1, requests=1, gateway_mb=gateway_mb, descriptors=1, app_servers=1, largest_mb=1, app_servers_mb=1
    )
    return Report(
        mode="test",
        seed=0,
        outcomes=[outcome(), *unexplained],
        unexplained=unexplained,
        faults=Counter(),
        samples=[sample],
        bounds=Bounds(
            gateway_mb=100, app_server_mb=100, app_servers_mb=100, healthz_p99_ms=100, healthz_longest_ms=100
        ),
        leaks=leaks,
        attacks=attacks,
        latency=Latency(asked=100, p99_s=0.1, longest_s=longest_s),
    )


def test_a_report_passes_only_if_nothing_is_wrong() -> None:
    assert report().passed
    assert not report(unexplained=[outcome(defect="no end")]).passed
    assert not report(leaks=["7 app-servers instead of 6"]).passed
    assert not report(gateway_mb=101).passed
    assert not report(longest_s=0.2).passed


@pytest.mark.parametrize(
    ("ending", "passed"),
    [
        ("200", True),
        ("400 invalid_json", True),
        ("cut off", True),
        ("503 queue_timeout", True),
        ("500 internal_error", False),
        ("hangs", False),
    ],
)
def test_a_hostile_request_may_be_refused_or_cut_off_but_must_end_and_be_no_defect(ending: str, passed: bool) -> None:
    assert report(attacks=[Attack("json: deep", ending)]).passed is passed


def test_an_answer_that_ends_twice_or_never_is_seen() -> None:
    chat, response = Answer(), Answer()
    for frame in ('{"choices": [{"delta": {"content": "hi"}}]}', "[DONE]", '{"error": {"code": "x"}}'):
        chat.add(frame)
    response.add('{"type": "response.output_text.delta", "delta": "hi"}')
    assert [(answer.text, answer.endings) for answer in (chat, response)] == [("hi", 2), ("hi", 0)]
