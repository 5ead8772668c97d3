"""The API key of this installation."""

import os
from pathlib import Path

import pytest

from turnbridge.cli.api_key import KEY_FILE, known_key, stored_key
from turnbridge.settings.fields import load_settings


@pytest.mark.promise("ingress.key.made")
def test_the_key_is_made_once_and_for_its_user_only(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        key = stored_key(tmp_path / "data")
    finally:
        os.umask(previous)
    assert key.startswith("sk-turnbridge-")
    assert len(key) > 40
    assert stored_key(tmp_path / "data") == key
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "data", tmp_path / "data" / KEY_FILE)]
    assert modes == [0o700, 0o600]


def test_every_installation_has_another_key(tmp_path: Path) -> None:
    assert stored_key(tmp_path / "a") != stored_key(tmp_path / "b")


@pytest.mark.parametrize("left_over", ["", "\n"])
def test_a_key_file_that_was_never_finished_is_no_key(tmp_path: Path, left_over: str) -> None:
    (tmp_path / KEY_FILE).write_text(left_over)
    assert stored_key(tmp_path).startswith("sk-turnbridge-")


@pytest.mark.parametrize(("chosen", "expected"), [(" , sk-a, sk-b", "sk-a"), (None, "sk-kept")])
def test_commands_use_the_first_chosen_key_or_the_generated_one(
    tmp_path: Path, chosen: str | None, expected: str
) -> None:
    (tmp_path / KEY_FILE).write_text("sk-kept\n")
    assert known_key(load_settings(PROXY_DATA_DIR=tmp_path, PROXY_API_KEY=chosen)) == expected


def test_commands_generate_no_key(tmp_path: Path) -> None:
    assert known_key(load_settings(PROXY_DATA_DIR=tmp_path)) is None
    assert list(tmp_path.iterdir()) == []
