"""`turnbridge keys`."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from turnbridge.cli.keys import expiry_of
from turnbridge.cli.main import app
from turnbridge.turn.clients import NAME_RULE

EXIT_USAGE = 2
DAY_S = 24 * 3600


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PROXY_CONFIG", "")


def keys(*words: str) -> Result:
    return CliRunner().invoke(app, ["keys", *words])


def told(*words: str) -> Any:
    result = keys(*words, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


@pytest.mark.promise("commands.keys")
def test_a_key_is_alone_on_standard_output_and_nowhere_else(tmp_path: Path) -> None:
    made = keys("create", "alice", "--rate", "60/minute", "--expires", "30d", "--admin")

    assert made.exit_code == 0
    key = made.stdout.strip()
    assert re.fullmatch(r"sk-turnbridge-[\w-]{32}", key)
    assert key not in made.stderr
    assert "admin; 60/minute; expires 20" in made.stderr
    listed = keys("list").stdout
    assert key not in listed
    assert f"…{key[-4:]}" in listed
    assert all(key.encode() not in file.read_bytes() for file in tmp_path.iterdir())
    assert {file.stat().st_mode & 0o077 for file in tmp_path.iterdir()} == {0}


@pytest.mark.promise("commands.accounts")
def test_a_key_has_an_account_for_good(tmp_path: Path) -> None:
    for name, problem in (
        ("work", "There is no account `work`, only: default."),
        ("../x", "A name has 1 to 64 small letters"),
        ("Work", "A name has 1 to 64 small letters"),
    ):
        refused = keys("create", "ann", "--account", name)
        assert (refused.exit_code != 0, problem in " ".join(refused.stderr.split())) == (True, True)
    (tmp_path / "accounts" / "work").mkdir(parents=True)
    assert told("create", "ann", "--account", "work")["account"] == "work"
    assert told("create", "ben", "--account", "default")["account"] == "default"
    assert "account work" in keys("list").stdout
    assert told("rotate", "ann")["account"] == "work"
    assert told("limits", "ann", "--rate", "5/hour")["account"] == "work"


@pytest.mark.promise("commands.keys")
def test_limits_are_shown_changed_and_removed() -> None:
    assert keys("list").stdout.startswith("There are no keys yet")
    made = told("create", "ci", "--models", "gpt-5.5, fast", "--models", "gpt-6-sol", "--turns", "4")
    assert (made["models"], made["turns"], made["rate"]) == (["gpt-5.5", "fast", "gpt-6-sol"], 4, None)

    changed = told("limits", "ci", "--models", "none", "--rate", "5/hour", "--expires", "2099-01-01", "--admin")
    assert (changed["models"], changed["rate"], changed["turns"], changed["admin"]) == (None, "5/hour", 4, True)
    assert changed["expires_at"] == 4_070_908_800
    assert told("limits", "ci") == changed
    assert told("list") == [changed]
    plain = told("limits", "ci", "--turns", "none", "--rate", "none", "--expires", "none", "--no-admin")
    assert (plain["turns"], plain["rate"], plain["expires_at"], plain["admin"]) == (None, None, None, False)
    assert keys("limits", "ci").stdout == "ci: no limits of its own\n"


@pytest.mark.promise("commands.keys")
def test_a_key_is_rotated_revoked_and_forgotten() -> None:
    first = told("create", "bob", "--expires", "1h")
    second = told("rotate", "bob")
    assert second["key"] != first["key"]
    assert second["expires_at"] == first["expires_at"]

    assert "Revoked: bob" in keys("revoke", "bob").stdout
    assert told("list")[0]["state"] == "revoked"
    third = told("rotate", "bob", "--expires", "2d")
    assert third["state"] == "active"
    assert abs(third["expires_at"] - time.time() - 2 * DAY_S) < 60
    told("revoke", "bob", "--forget")
    assert told("list") == []
    assert keys("create", "bob").exit_code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["create", "a b"], NAME_RULE),
        (["create", "x" * 100_000], NAME_RULE),
        (["create", "\x1b[2J"], NAME_RULE),
        (["revoke", "nobody"], "There is no key `nobody`."),
        (["rotate", "nobody"], "There is no key `nobody`."),
        (["limits", "nobody", "--rate", "1/day"], "There is no key `nobody`."),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_wrong_name_is_told(words: list[str], says: str) -> None:
    refused = keys(*words)

    assert (refused.exit_code, refused.stdout, refused.stderr.strip()) == (1, "", says)


@pytest.mark.parametrize(
    "option",
    [
        ["--rate", "often"],
        ["--rate", "0/minute"],
        ["--turns", "0"],
        ["--turns", "many"],
        ["--expires", "soon"],
        ["--expires", "9" * 40 + "d"],
        ["--models", " , "],
        ["--models", "m" * 201],
        ["--models", "\x1b[2J"],
        ["--models", ",".join(map(str, range(101)))[:200], "--models", ",".join(map(str, range(100, 160)))],
    ],
    ids=lambda value: " ".join(value)[:24],
)
def test_a_wrong_limit_is_a_usage_error_and_makes_no_key(option: list[str]) -> None:
    refused = keys("create", "alice", *option)

    assert (refused.exit_code, refused.stdout) == (EXIT_USAGE, "")
    assert option[0] in refused.stderr
    assert told("list") == []


def test_a_name_is_taken_once() -> None:
    keys("create", "alice")
    assert "already" in keys("create", "alice").stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90m", 5400), ("12h", 43200), ("1 day", DAY_S), ("2w", 14 * DAY_S), ("none", None), ("1970-01-02", DAY_S)],
)
def test_periods_are_read(text: str, expected: int | None) -> None:
    assert expiry_of(text, now=0) == expected
