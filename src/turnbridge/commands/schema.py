"""`turnbridge schema`: the protocol that a Codex binary describes, and what changed between two of them."""

import asyncio
import json
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from turnbridge.appserver.capabilities import Binary, examine
from turnbridge.codex import user_spec
from turnbridge.commands.refusal import refuse, usable_settings
from turnbridge.turn.errors import GatewayError
from turnbridge.wire.codex.differences import Difference, differences

EXIT_CHANGED = 1
COLOURS = {"+": "green", "-": "red", "~": "yellow"}


def schema(
    codex_bin: Annotated[
        Path | None, typer.Option(help="The `codex` program (CODEX_BIN). Default: the one installed with Turnbridge.")
    ] = None,
    diff: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="BIN_A BIN_B", help="Tell what changed from one program to another that concerns us."),
    ] = None,
) -> None:
    """Print the protocol as a Codex binary describes it, or what changed; exit status 1 if something did."""
    spec = user_spec(usable_settings(CODEX_BIN=codex_bin))
    if diff is None:
        typer.echo(json.dumps(_examined(spec.binary, spec.notes_dir).schema(), indent=2))
        return
    old, new = (_examined(path.expanduser().absolute(), spec.notes_dir) for path in diff)
    changed = differences(old.schema(), new.schema())
    _tell(old, new, changed)
    if changed:
        raise typer.Exit(EXIT_CHANGED)


def _examined(path: Path, notes: Path) -> Binary:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        try:
            return asyncio.run(examine(path, home=home, cwd=home, notes=notes))
        except (GatewayError, OSError) as error:
            refuse(str(error))


def _tell(old: Binary, new: Binary, changed: list[Difference]) -> None:
    typer.secho(f"{old.version} -> {new.version}", bold=True)
    if not changed:
        typer.echo("Nothing that concerns us has changed.")
    for section, lines in groupby(changed, key=lambda difference: difference.section):
        typer.secho(f"\n{section}", bold=True)
        for difference in lines:
            line = str(difference)
            typer.secho(f"  {line}", fg=COLOURS[line[0]])
