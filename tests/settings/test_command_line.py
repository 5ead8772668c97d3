"""The command that messages tell the user to run."""

import os
import sys
from pathlib import Path

import pytest

from turnbridge.settings.command_line import CARRIED_VARIABLES, own_command


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an installed `turnbridge` that runs now."""
    for name in CARRIED_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    program = tmp_path / "my tools" / "bin" / "turnbridge"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr(sys, "argv", [str(program), "serve"])
    return program


def test_a_script_that_is_not_on_the_path_is_called_by_its_path(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_command("login") == f"'{script}' login"
    monkeypatch.chdir(script.parent)
    monkeypatch.setattr(sys, "argv", ["./turnbridge"])
    assert own_command("ask", "Hello!") == f"'{script}' ask 'Hello!'"


def test_a_script_on_the_path_is_called_by_its_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}/usr/bin")
    assert own_command("login") == "turnbridge login"


def test_a_script_that_is_on_the_path_of_this_terminal_only_is_called_by_its_path(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    monkeypatch.setattr(sys, "prefix", str(script.parent.parent))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert own_command("login") == f"'{script}' login"


def test_a_module_is_called_by_its_interpreter(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(script.with_name("__main__.py"))])
    monkeypatch.setattr(sys, "executable", "/my python/python")
    assert own_command("login") == "'/my python/python' -m turnbridge login"


def test_variables_that_select_directories_come_along_as_absolute_paths(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    for name, value in {"CODEX_HOME": "my codex", "CODEX_BIN": "codex", "PROXY_DATA_DIR": "", "PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert own_command("login") == f"CODEX_HOME='{script.parent / 'my codex'}' CODEX_BIN=codex '{script}' login"
