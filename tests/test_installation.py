"""How `make install` installs what is locked."""

import shutil
import subprocess

import pytest

from tools.docs import ROOT


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
@pytest.mark.parametrize("lock", ["run", "dev"])
def test_locked_packages_are_installed_by_hash_and_from_wheels_only(lock: str) -> None:
    # Only says what it would do.
    command = ["make", "--dry-run", "--always-make", f".venv/.{lock}"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = [line for line in planned.splitlines() if f"-r requirements/{lock}.txt" in line]
    assert len(installs) == 1
    assert "--only-binary :all: --require-hashes" in installs[0]
