"""The systemd units, judged by systemd itself."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.proxies import DEPLOY

UNITS = DEPLOY / "systemd"
# systemd's own scale of exposure goes to 10.0, in tenths here; below 2.0 it says OK.
MOST_EXPOSED = "20"

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture
def units(tmp_path: Path) -> list[str]:
    """Return copies of the units, with a program and a user that exist here."""
    # By a link: a unit would have to quote a path with a space.
    program = tmp_path / "python"
    program.symlink_to(sys.executable)
    for path in UNITS.iterdir():
        text = path.read_text(encoding="utf-8").replace("/opt/turnbridge/bin/turnbridge", str(program))
        text = re.sub(r"^(User|Group)=turnbridge$", r"\1=root", text, flags=re.MULTILINE)
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    return sorted(str(tmp_path / path.name) for path in UNITS.iterdir())


@pytest.mark.promise("deploy.systemd")
def test_systemd_finds_nothing_wrong_with_the_units(units: list[str]) -> None:
    done = _analyze("verify", "--man=no", *units)
    # Units of the machine itself may be wrong.
    ours = [line for line in done.stderr.splitlines() if "turnbridge" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.promise("deploy.systemd")
def test_systemd_rates_the_service_as_little_exposed(units: list[str]) -> None:
    (service,) = [unit for unit in units if unit.endswith(".service")]
    text = Path(service).read_text(encoding="utf-8")
    # As delivered, it has a user of its own.
    Path(service).write_text(text.replace("User=root", "User=turnbridge"), encoding="utf-8")
    done = _analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", service)
    assert done.returncode == 0, done.stdout


def _analyze(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["systemd-analyze", *words], capture_output=True, encoding="utf-8", check=False, timeout=30)
