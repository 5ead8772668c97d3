"""The shell command that runs this very copy of Turnbridge, for messages that tell the user what to run."""

import os
import shlex
import shutil
import sys
from pathlib import Path

PROGRAM = "turnbridge"
# The command may be pasted into another terminal, where these are not set.
CARRIED_VARIABLES = ("PROXY_CONFIG", "PROXY_DATA_DIR", "CODEX_HOME", "CODEX_BIN")


def own_command(*words: str) -> str:
    """Return a command of this copy as a line for a shell, with the variables that select its directories."""
    given = {name: os.environ[name] for name in CARRIED_VARIABLES if os.environ.get(name)}
    variables = [f"{name}={shlex.quote(_absolute(name, value))}" for name, value in given.items()]
    return " ".join([*variables, *_program(), *map(shlex.quote, words)])


def _absolute(name: str, value: str) -> str:
    """Return a path that means the same in another directory; CODEX_BIN may be the name of a program."""
    return value if name == "CODEX_BIN" and os.sep not in value else str(Path(value).expanduser().absolute())


def _program() -> list[str]:
    script = Path(sys.argv[0])
    if script.name != PROGRAM or not script.is_file():
        return [shlex.quote(sys.executable), "-m", PROGRAM]
    found = shutil.which(PROGRAM)
    if found is not None and Path(found).samefile(script) and not _in_virtual_environment(Path(found)):
        return [PROGRAM]
    return [shlex.quote(str(script.absolute()))]


def _in_virtual_environment(script: Path) -> bool:
    """Tell whether a script is on PATH only where its virtual environment is active."""
    return sys.prefix != sys.base_prefix and script.parent == Path(sys.prefix) / "bin"
