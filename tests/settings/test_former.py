"""What became of the settings that users come with."""

import re

from turnbridge.settings.fields import known_names, unknown_settings
from turnbridge.settings.former import FORMER


def test_what_is_kept_exists_and_what_is_not_does_not() -> None:
    known = set(known_names())
    assert {one.name for one in FORMER if one.outcome == "kept"} <= known
    assert not {one.name for one in FORMER if one.outcome != "kept"} & known


def test_each_is_listed_once() -> None:
    names = [one.name for one in FORMER]
    assert sorted(names) == sorted(set(names))


def test_whatever_a_note_refers_to_exists() -> None:
    known = set(known_names())
    named = {name for one in FORMER for name in re.findall(r"`((?:PROXY|WORKER)_[A-Z_]+)", one.note)}
    assert named <= known


def test_whoever_sets_one_that_is_gone_or_renamed_is_told() -> None:
    environment = {"PROXY_KILL_ON_DISCONNECT": "1", "TOKEN_LOG_PATH": "usage.log", "WORKER_MAX_CONCURRENCY": "4"}
    sums = "The log has the tokens of every request, and `/metrics` their sums."
    assert unknown_settings(environment) == [
        "PROXY_KILL_ON_DISCONNECT is set, but has no effect here. A turn always ends when its client leaves.",
        f"TOKEN_LOG_PATH is set, but has no effect here. {sums}",
        "WORKER_MAX_CONCURRENCY is set, but has another name here: `PROXY_MAX_TURNS`.",
    ]


def test_what_other_programs_listen_to_is_left_alone() -> None:
    assert unknown_settings({"NODE_ENV": "production", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}) == []
