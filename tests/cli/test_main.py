"""The commands and their options, which are shown without importing what they do."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from turnbridge.cli import options
from turnbridge.cli.main import app, summary

IMPORTED = """
import sys
from turnbridge.cli.main import app
for words in {all_words!r}:
    try:
        app(words)
    except SystemExit:
        pass
print(*sorted(name for name in sys.modules if "." not in name or name.startswith("turnbridge")), file=sys.stderr)
"""
DECLARED = {"turnbridge.cli", "turnbridge.cli.main", "turnbridge.cli.options", "turnbridge.cli.store_options"}
# What makes a command slow to start.
HEAVY = {"asyncio", "limits", "msgspec", "starlette", "structlog", "turnbridge.bootstrap", "uvicorn"}


def commands(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command, with the words that name it."""
    for name, command in group.commands.items():
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


EVERY = dict(commands(app))


def imported(*all_words: list[str]) -> set[str]:
    """Return the names of modules that commands have imported."""
    script = IMPORTED.format(all_words=all_words)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stderr.split())


@pytest.mark.promise("commands.help")
def test_help_and_version_import_nothing_of_what_a_command_does() -> None:
    found = imported(["--version"], ["--help"], ["-h"], *([*words, "-h"] for words in EVERY))
    assert found & HEAVY == set()
    assert {name for name in found if name.startswith("turnbridge.")} == DECLARED


@pytest.mark.promise("commands.help")
@pytest.mark.parametrize("words", [("codex",), ("completion", "zsh"), ("config",), ("connect",), ("connect", "zed")])
def test_a_command_that_only_prints_does_not_import_the_server(words: tuple[str, ...]) -> None:
    assert imported([*words]) & HEAVY <= {"asyncio", "msgspec"}


@pytest.mark.promise("commands.help")
def test_a_command_that_reads_files_does_not_import_the_server() -> None:
    found = imported(["store", "show"], ["keys", "list"], ["usage"], ["trace", "--list"])
    assert found & HEAVY <= {"asyncio", "msgspec", "structlog"}
    assert [name for name in found if name.startswith(("turnbridge.api", "turnbridge.codex.process.worker"))] == []


@pytest.mark.promise("commands.help")
def test_the_server_is_imported_without_what_few_gateways_need() -> None:
    script = "import sys, turnbridge.cli.main, turnbridge.cli.serve; print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    extras = {"asyncpg", "limits", "opentelemetry", "pypdf", "redis"}
    assert set(ran.stderr.split()) & {*extras, "httpx2", "pydantic", "turnbridge.diagnostics"} == set()


@pytest.mark.parametrize(
    "words", [words for words, command in EVERY.items() if not isinstance(command, click.Group)], ids=" ".join
)
def test_what_a_command_does_takes_the_options_that_are_declared(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[inspect.Signature, dict[str, object]]] = []

    class Found:
        def __init__(self, name: str) -> None:
            self._module = importlib.import_module(name)

        def __getattr__(self, name: str) -> object:
            signature = inspect.signature(getattr(self._module, name))
            return lambda **chosen: called.append((signature, chosen))

    monkeypatch.setattr(options, "importlib", SimpleNamespace(import_module=Found))
    command = EVERY[words]
    assert command.callback is not None
    command.callback(**{str(param.name): None for param in command.params})
    ((signature, chosen),) = called
    taken = signature.parameters.values()
    others = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken)
    named = {parameter.name for parameter in taken if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
    assert named <= set(chosen) if others else named == set(chosen)


@pytest.mark.promise("commands.help")
@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_a_command_has_short_help(words: tuple[str, ...]) -> None:
    short, long = (CliRunner().invoke(app, [*words, word]) for word in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)
    assert " ".join(short.output.split()).find(summary(EVERY[words])) > 0


def test_the_list_holds_every_command() -> None:
    shown = CliRunner().invoke(app, ["-h"]).output
    assert all(f"\n  {name} " in shown for name in app.commands)
