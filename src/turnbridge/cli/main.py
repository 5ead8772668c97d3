"""The `turnbridge` command and the list of its commands."""

import click
from click.exceptions import Exit

from turnbridge import __version__
from turnbridge.cli import options, store_options

# 128 + SIGINT, as shells report a program that Ctrl-C ended.
EXIT_INTERRUPTED = 130
# Wide enough for the longest line of the help.
HELP_COLUMNS = 120

COMMANDS: tuple[click.Command, ...] = (
    *(options.ask, options.codex, options.completion, options.config, options.connect, options.doctor),
    *(options.login, options.logout, options.models, options.probe, options.schema, options.serve, options.service),
    *(options.status, options.trace, options.whoami, store_options.keys, store_options.store, store_options.usage),
)


def summary(command: click.Command) -> str:
    """Return the first sentence of a command's help."""
    words = " ".join(str(command.help).split("\n\n")[0].split())
    return f"{words.partition('. ')[0].removesuffix('.')}."


class _Commands(click.Group):
    """Exits without a traceback on Ctrl-C."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, with the first sentence of each one's help: click would shorten it."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(command)) for name, command in sorted(self.commands.items())])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):  # The latter from a prompt.
            raise Exit(EXIT_INTERRUPTED) from None


@click.group(
    cls=_Commands,
    commands=COMMANDS,
    context_settings={
        "max_content_width": HELP_COLUMNS,
        "show_default": True,
        "help_option_names": ["-h", "--help"],
    },
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="turnbridge", message="%(prog)s %(version)s", help="Print the version.")
@click.pass_context
def app(ctx: click.Context) -> None:
    """The OpenAI API in front of Codex.

    Without a command: the state of the gateway and the account, and what to do next.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(options.status)
