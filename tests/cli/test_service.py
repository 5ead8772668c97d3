"""`turnbridge service`, with a stand-in for systemctl; systemd itself checks the unit, where it is installed."""

import json
import os
import plistlib
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.command import Finished, environment
from turnbridge.cli.console import EXIT_CONFIG, EXIT_UNAVAILABLE
from turnbridge.cli.main import app
from turnbridge.cli.units import MARK, launchd_agent, systemd_unit

ROOT = os.geteuid() == 0
# Without this, root's tests could install nothing; other users need no permission.
AS_ROOT = ("--allow-root",) if ROOT else ()
# Remembers what it was told, and whether the service runs.
SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$HOME/told"
case "$2" in
  enable) touch "$HOME/runs" ;;
  disable) rm -f "$HOME/runs" ;;
  is-active) test -e "$HOME/runs" || { echo inactive; exit 3; } ;;
esac
"""
ODD = 'it\'s 100% "odd" $HOME \\ dir'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with a stand-in for systemctl, which starts nothing that could be waited for."""
    monkeypatch.setattr("turnbridge.cli.service.START_PATIENCE_S", 0.0)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    return tmp_path


def service(home: Path, *words: str, path: str | None = None, **variables: str) -> Finished:
    usual = environment(home, PATH=f"{home / 'bin'}:{os.environ['PATH']}" if path is None else path, **variables)
    ran = CliRunner().invoke(app, ["service", *words], env=usual)
    return Finished(ran.exit_code, ran.stdout, ran.stderr)


def unit_of(home: Path) -> Path:
    return home / ".config" / "systemd" / "user" / "turnbridge.service"


def told(home: Path) -> list[str]:
    return (home / "told").read_text().splitlines()


linux = pytest.mark.skipif(sys.platform == "darwin", reason="systemd is Linux's")


@linux
@pytest.mark.promise("commands.service")
def test_it_is_installed_shown_and_removed(home: Path) -> None:
    first = service(home, "install", "--json", *AS_ROOT, CODEX_MODEL="gpt-5.5", HTTPS_PROXY="http://proxy:3128")
    unit = unit_of(home)
    assert (first.status, first.err) == (0, "")
    assert json.loads(first.out)["changed"]
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    text = unit.read_text()
    for line in ("CODEX_MODEL=gpt-5.5", "HTTPS_PROXY=http://proxy:3128", f"PROXY_DATA_DIR={home}/data", "PORT=9"):
        assert f'Environment="{line}"\n' in text
    again = service(home, "install", "--json", *AS_ROOT, CODEX_MODEL="gpt-5.5", HTTPS_PROXY="http://proxy:3128")
    assert not json.loads(again.out)["changed"]
    assert unit.read_text() == text
    assert not [line for line in told(home) if "restart" in line]
    service(home, "install", *AS_ROOT, CODEX_MODEL="gpt-6")
    assert told(home)[-1] == "--user restart turnbridge.service"
    shown = service(home, "status")
    assert shown.status == 0
    assert "State    running\n" in shown.out
    removed = service(home, "remove")
    assert (removed.status, removed.err) == (0, "")
    assert not unit.exists()
    assert told(home)[-2:] == ["--user disable --now turnbridge.service", "--user daemon-reload"]
    assert service(home, "remove").out == "The service is not installed.\n"
    gone = service(home, "status")
    assert gone.status == 1
    assert "not installed" in gone.out


@linux
@pytest.mark.promise("commands.service")
@pytest.mark.skipif(not ROOT, reason="only root is refused")
def test_root_is_refused_unless_it_asks(home: Path) -> None:
    refused = service(home, "install")
    assert (refused.status, refused.out) == (EXIT_CONFIG, "")
    assert "--allow-root" in refused.err
    assert not unit_of(home).exists()


@linux
@pytest.mark.promise("commands.service")
def test_secrets_stay_out_of_the_file(home: Path) -> None:
    installed = service(home, "install", *AS_ROOT, PROXY_API_KEY="sk-a-secret-of-the-owner")
    assert "sk-a-secret" not in unit_of(home).read_text()
    assert "PROXY_API_KEY is set here" in installed.err
    assert "sk-a-secret" not in installed.out + installed.err


@linux
def test_a_file_of_somebody_else_is_left_alone(home: Path) -> None:
    unit_of(home).parent.mkdir(parents=True)
    unit_of(home).write_text("[Service]\nExecStart=/bin/true\n")
    for words in (("install", *AS_ROOT), ("remove",)):
        refused = service(home, *words)
        assert (refused.status, refused.out) == (1, "")
        assert "was not written by this command" in refused.err
    assert unit_of(home).read_text() == "[Service]\nExecStart=/bin/true\n"


@linux
def test_a_system_without_a_manager_keeps_the_file_and_says_so(home: Path) -> None:
    installed = service(home, "install", *AS_ROOT, path=str(home))
    assert installed.status == EXIT_UNAVAILABLE
    assert installed.out.startswith("Wrote ")
    assert "there is no systemctl on this system" in installed.err
    assert unit_of(home).exists()


def verified(unit: Path, runtime: Path) -> str:
    """Return what systemd has against a unit."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here: `apt install systemd`")
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(unit)],
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runtime), "HOME": str(runtime)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return f"{ran.returncode} {ran.stderr}"


@linux
@pytest.mark.promise("commands.service")
def test_systemd_accepts_the_unit(home: Path) -> None:
    service(home, "install", *AS_ROOT)
    assert verified(unit_of(home), home) == "0 "


@linux
@pytest.mark.promise("commands.service")
def test_systemd_reads_paths_with_spaces_and_signs(tmp_path: Path) -> None:
    unit = tmp_path / "turnbridge.service"
    for name in ("a 100% plain one", ODD):
        program = tmp_path / name / "python"
        program.parent.mkdir()
        program.symlink_to(sys.executable)
        unit.write_text(systemd_unit((str(program), "-m", ODD), {"CODEX_HOME": f"{tmp_path}/{ODD}"}))
        assert verified(unit, tmp_path) == "0 "
    missing = systemd_unit((str(tmp_path / "a 100% missing one"), "-m", ODD), {})
    unit.write_text(missing)
    assert f"{tmp_path}/a 100% missing one is not executable" in verified(unit, tmp_path), "it sees the very path"


@pytest.mark.promise("commands.service")
def test_a_launch_agent_holds_words_and_variables_as_they_are(tmp_path: Path) -> None:
    variables: Mapping[str, str] = {"CODEX_HOME": f"/Users/you/{ODD} & <more>"}
    text = launchd_agent(("/opt/a b/python", "-m", "turnbridge", "serve"), variables, tmp_path / "log")
    assert MARK in text
    agent = plistlib.loads(text.encode())
    assert agent["ProgramArguments"] == ["/opt/a b/python", "-m", "turnbridge", "serve"]
    assert agent["EnvironmentVariables"] == variables
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
