"""The pinned binary, asked about itself."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from codex_cli_bin import bundled_codex_path

from tests.codex.protocol.protocol import Protocol

PATIENCE_S = 90
"""Longer than a cold start of the binary; all that is asked here takes a tenth of a second."""

Codex: TypeAlias = Callable[..., str]


@pytest.fixture(scope="session")
def codex(tmp_path_factory: pytest.TempPathFactory) -> Codex:
    """Return a function that runs the binary in a home of its own, and returns what it prints."""
    home = tmp_path_factory.mktemp("home")

    def run(*words: str | Path) -> str:
        return subprocess.run(
            [bundled_codex_path(), *words],
            env={"CODEX_HOME": str(home), "HOME": str(home)},
            capture_output=True,
            check=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
        ).stdout

    return run


@pytest.fixture(scope="session")
def protocol(codex: Codex, tmp_path_factory: pytest.TempPathFactory) -> Protocol:
    """Return the protocol as the binary describes it."""
    directory = tmp_path_factory.mktemp("protocol")
    codex("app-server", "generate-json-schema", "--experimental", "--out", directory)
    return Protocol(directory)
