"""The list of commands, which is printed without importing them."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from turnbridge.cli.main import COMMANDS, app

IMPORTED = """
import sys
from turnbridge.cli.main import app
try:
    app([{word!r}])
except SystemExit:
    pass
print(*sorted(name for name in sys.modules if "." not in name or name.startswith("turnbridge")), file=sys.stderr)
"""
# What makes a command slow to start.
HEAVY = {"asyncio", "limits", "msgspec", "starlette", "structlog", "turnbridge.bootstrap", "uvicorn"}


@pytest.mark.promise("commands.help")
@pytest.mark.parametrize("word", ["--help", "-h", "--version"])
def test_help_and_version_import_nothing_of_the_server(word: str) -> None:
    script = IMPORTED.format(word=word)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    imported = set(ran.stderr.split())
    assert imported & HEAVY == set()
    assert {name for name in imported if name.startswith("turnbridge.")} == {"turnbridge.cli", "turnbridge.cli.main"}


@pytest.mark.promise("commands.help")
@pytest.mark.parametrize(
    "words", [("serve", "-h"), ("connect", "-h"), ("trace", "-h"), ("completion", "zsh"), ("config",)]
)
def test_a_command_that_only_prints_does_not_import_the_server(words: tuple[str, ...]) -> None:
    script = IMPORTED.replace("[{word!r}]", repr(list(words)))
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert set(ran.stderr.split()) & {"starlette", "turnbridge.bootstrap", "uvicorn"} == set()


@pytest.mark.promise("commands.help")
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_has_the_summary_of_the_list_and_short_help(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    assert command.name == name
    # The first sentence: what follows it belongs to the command's own help.
    assert str(command.help).replace("\n", " ").startswith(COMMANDS[name].summary)
    short, long = (CliRunner().invoke(app, [name, word]) for word in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)


def test_the_list_holds_every_command() -> None:
    shown = CliRunner().invoke(app, ["-h"]).output
    assert all(f"\n  {name} " in shown for name in COMMANDS)
