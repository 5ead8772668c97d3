"""`turnbridge schema`: the protocol that a Codex binary describes, and what changed between two of them."""

import asyncio
import json
import tempfile
from itertools import groupby
from pathlib import Path

import click
from click.exceptions import Exit

from turnbridge.appserver.capabilities import Binary, examine
from turnbridge.codex import user_spec
from turnbridge.commands.refusal import refuse, usable_settings
from turnbridge.turn.errors import GatewayError
from turnbridge.wire.codex.differences import Difference, differences

EXIT_CHANGED = 1
COLOURS = {"+": "green", "-": "red", "~": "yellow"}


@click.command()
@click.option(
    "--codex-bin",
    type=click.Path(path_type=Path),
    help="The `codex` program (CODEX_BIN). Default: the one installed with Turnbridge.",
)
@click.option(
    "--diff",
    type=(click.Path(path_type=Path), click.Path(path_type=Path)),
    metavar="BIN_A BIN_B",
    help="Tell what changed from one program to another that concerns us.",
)
def schema(*, codex_bin: Path | None, diff: tuple[Path, Path] | None) -> None:
    """Print the protocol as a Codex binary describes it, or what changed; exit status 1 if something did."""
    spec = user_spec(usable_settings(CODEX_BIN=codex_bin))
    if diff is None:
        click.echo(json.dumps(_examined(spec.binary, spec.notes_dir).schema(), indent=2))
        return
    old, new = (_examined(path.expanduser().absolute(), spec.notes_dir) for path in diff)
    changed = differences(old.schema(), new.schema())
    _tell(old, new, changed)
    if changed:
        raise Exit(EXIT_CHANGED)


def _examined(path: Path, notes: Path) -> Binary:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        try:
            return asyncio.run(examine(path, home=home, cwd=home, notes=notes))
        except (GatewayError, OSError) as error:
            refuse(str(error))


def _tell(old: Binary, new: Binary, changed: list[Difference]) -> None:
    click.secho(f"{old.version} -> {new.version}", bold=True)
    if not changed:
        click.echo("Nothing that concerns us has changed.")
    for section, lines in groupby(changed, key=lambda difference: difference.section):
        click.secho(f"\n{section}", bold=True)
        for difference in lines:
            line = str(difference)
            click.secho(f"  {line}", fg=COLOURS[line[0]])
