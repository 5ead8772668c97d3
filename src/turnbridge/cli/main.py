"""The `turnbridge` command and its subcommands, which are imported only when they are used."""

import importlib

import click
from click.exceptions import Exit

from turnbridge import __version__

# 128 + SIGINT, as shells report a program that Ctrl-C ended.
EXIT_INTERRUPTED = 130
# Wide enough for the longest line of the help.
HELP_COLUMNS = 120

COMMANDS = {
    "probe": "turnbridge.diagnostics.probe",
    "schema": "turnbridge.diagnostics.schema",
    "serve": "turnbridge.cli.serve",
    "store": "turnbridge.cli.store",
    "trace": "turnbridge.diagnostics.timeline",
}
"""The module of each command, in which the command has the same name."""


class _Commands(click.Group):
    """Imports commands lazily, and exits without a traceback on Ctrl-C."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Exit(EXIT_INTERRUPTED) from None


@click.group(cls=_Commands, context_settings={"max_content_width": HELP_COLUMNS, "show_default": True})
@click.version_option(__version__, prog_name="turnbridge", message="%(prog)s %(version)s", help="Print the version.")
def app() -> None:
    """The OpenAI API in front of Codex."""
