"""What a check of `turnbridge doctor` found, and how it is shown."""

import sys
from typing import Literal, NamedTuple, TypeAlias

import click

from turnbridge.logs.output import may_colour

State: TypeAlias = Literal["ok", "warning", "wrong"]
COLOURS: dict[State, str] = {"ok": "green", "warning": "yellow", "wrong": "red"}


class Finding(NamedTuple):
    """The result of one check; it has a remedy unless all is well."""

    check: str
    state: State
    text: str
    remedy: str = ""


def show(finding: Finding) -> None:
    """Print a finding on a line, and its remedy below it."""
    state = f"{finding.state:7}"
    coloured = click.style(state, fg=COLOURS[finding.state]) if may_colour(sys.stdout) else state
    click.echo(f"{coloured}  {finding.check:11}  {finding.text}")
    if finding.remedy:
        click.echo(f"{'':22}→ {finding.remedy}")
