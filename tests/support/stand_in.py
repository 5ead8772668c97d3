"""Programs that stand in the place of `codex`."""

import sys
from pathlib import Path

import codex_cli_bin

from turnbridge.codex.self_check import HOME_PREFIX


def stand_in(directory: Path, script: str) -> Path:
    """Return a program that runs this script as Codex; what Codex is asked about itself, the real one answers."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "codex"
    real = codex_cli_bin.bundled_codex_path()
    program.write_text(
        f'#!/bin/sh\ncase "$1 $2 $CODEX_HOME" in\n'
        f'--version*|*generate-json-schema*|*/{HOME_PREFIX}*) exec "{real}" "$@";;\nesac\n'
        f'exec "{sys.executable}" -I -S "{script}" "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program
