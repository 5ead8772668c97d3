"""`turnbridge schema`: the protocol of a binary, and what changed between two."""

import importlib.metadata
from pathlib import Path

import codex_cli_bin
import msgspec
import pytest
from click.testing import CliRunner

from tests.support.codex_schema import pinned_schema
from turnbridge.cli.main import app
from turnbridge.codex.process.binary import SCHEMA_FILE

pytestmark = pytest.mark.real

REAL = codex_cli_bin.bundled_codex_path()
VERSION = importlib.metadata.version("openai-codex-cli-bin")


@pytest.fixture
def runner(tmp_path: Path) -> CliRunner:
    """Return a runner of commands that keep their notes in the test's own directory."""
    return CliRunner(env={"PROXY_DATA_DIR": str(tmp_path / "data")})


def other_codex(directory: Path) -> Path:
    """Return a Codex of another version, which does not know `thread/inject_items`."""
    directory.mkdir()
    (directory / "schema.json").write_bytes(
        msgspec.json.encode(pinned_schema()).replace(b'"thread/inject_items"', b'"thread/give_items"')
    )
    program = directory / "codex"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec echo codex-cli 9.9.9\n'
        f'for out; do :; done\nexec cp "{directory}/schema.json" "$out/{SCHEMA_FILE}"\n'
    )
    program.chmod(0o700)
    return program


def test_the_protocol_of_the_pinned_binary_is_printed(runner: CliRunner) -> None:
    printed = runner.invoke(app, ["schema"])
    assert (printed.exit_code, msgspec.json.decode(printed.stdout)) == (0, pinned_schema())


def test_what_changed_between_two_binaries_is_told(runner: CliRunner, tmp_path: Path) -> None:
    other = other_codex(tmp_path / "other")
    told = runner.invoke(app, ["schema", "--diff", str(REAL), str(other)])
    assert told.exit_code == 1
    assert told.stdout.splitlines() == [
        f"{VERSION} -> 9.9.9",
        "",
        "capabilities",
        "  ~ dialects: -v2",
        "  ~ inject_items: +False -True",
        "",
        "what thread/inject_items takes",
        "  - all of it: there",
        "",
        "what we read of the answer to thread/inject_items",
        "  - all of it: there",
    ]


def test_two_binaries_alike_differ_in_nothing(runner: CliRunner) -> None:
    told = runner.invoke(app, ["schema", "--diff", str(REAL), str(REAL)])
    assert (told.exit_code, told.stdout) == (0, f"{VERSION} -> {VERSION}\nNothing that concerns us has changed.\n")


@pytest.mark.parametrize("words", [["--codex-bin", "/nowhere/codex"], ["--diff", "/nowhere/codex", str(REAL)]])
def test_a_binary_that_is_not_there_is_named(runner: CliRunner, words: list[str]) -> None:
    refused = runner.invoke(app, ["schema", *words])
    assert refused.exit_code == 78
    assert "/nowhere/codex" in refused.stderr
