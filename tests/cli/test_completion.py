"""The completion of shells, as a shell runs it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from turnbridge.cli.completion import SHELLS
from turnbridge.cli.main import app

# What bash does when somebody types these words and presses Tab.
ASKED = """
source "$1"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_turnbridge_completion turnbridge
echo "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a PATH on which `turnbridge` is."""
    program = tmp_path / "turnbridge"
    # As an installer writes it where the path of Python may have a space.
    to_python = f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n"
    program.write_text(f"{to_python}from turnbridge.cli.main import app\napp()\n")
    program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.promise("commands.completion")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("turnbridge comp", "completion"),
        ("turnbridge connect op", "opencode open-webui openai-sdk"),
        ("turnbridge connect zed --w", "--write"),
        ("turnbridge store s", "show"),
        ("turnbridge nonsense x", ""),
        ('turnbridge ""', " ".join(sorted(app.commands))),
    ],
)
def test_bash_completes(tmp_path: Path, path: str, words: str, offered: str) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(CliRunner().invoke(app, ["completion", "bash"]).stdout)
    ran = subprocess.run(
        ["bash", "--norc", "-c", ASKED.format(words=words), "bash", str(script)],
        env={"PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (ran.stdout.strip(), ran.stderr) == (offered, "")


@pytest.mark.promise("commands.completion")
@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_the_script_is_one_that_the_shell_can_read(tmp_path: Path, shell: str) -> None:
    printed = CliRunner().invoke(app, ["completion", shell])
    assert printed.exit_code == 0
    assert f"_TURNBRIDGE_COMPLETE={shell}_complete" in printed.stdout
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} to read it")
    script = tmp_path / "completion"
    script.write_text(printed.stdout)
    subprocess.run([shell, "-n", str(script)], check=True, timeout=60)


def test_another_shell_is_refused() -> None:
    refused = CliRunner().invoke(app, ["completion", "tcsh"])
    assert refused.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in refused.stderr
