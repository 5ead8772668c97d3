"""The `turnbridge` command and its subcommands, which are imported only when they are used."""

import importlib
from typing import NamedTuple

import click
from click.exceptions import Exit
from click.shell_completion import CompletionItem

from turnbridge import __version__

# 128 + SIGINT, as shells report a program that Ctrl-C ended.
EXIT_INTERRUPTED = 130
# Wide enough for the longest line of the help.
HELP_COLUMNS = 120


class Entry(NamedTuple):
    """A command: its module, in which it has the same name, and its line in the help, which needs no import."""

    module: str
    summary: str


COMMANDS = {
    "ask": Entry("turnbridge.cli.ask", "Ask the model, and print its answer as it comes."),
    "codex": Entry("turnbridge.cli.codex", "Show which Codex is used; `use` chooses another version."),
    "completion": Entry(
        "turnbridge.cli.completion", "Print the script for the completion of a shell: bash, zsh or fish."
    ),
    "config": Entry(
        "turnbridge.cli.config", "Show the effective settings, and where each comes from: default, environment or file."
    ),
    "connect": Entry(
        "turnbridge.cli.connect", "Show or write the settings of a client, and try them; without a client, list them."
    ),
    "doctor": Entry(
        "turnbridge.cli.doctor", "Check everything that a gateway needs, and say how to correct what is wrong."
    ),
    "keys": Entry(
        "turnbridge.cli.keys", "Make, limit and revoke keys for the people and programs that share the gateway."
    ),
    "login": Entry("turnbridge.cli.account", "Log in to ChatGPT in a browser, by a device code, or with an API key."),
    "logout": Entry("turnbridge.cli.account", "Log out: revoke the login, and remove it from your Codex home."),
    "models": Entry("turnbridge.cli.ask", "List the models that clients can name."),
    "probe": Entry(
        "turnbridge.diagnostics.probe",
        "Run one turn with a Codex binary, and print every message, its time, and whether it matches the schema.",
    ),
    "schema": Entry(
        "turnbridge.diagnostics.schema",
        "Print the protocol as a Codex binary describes it, or what changed; exit status 1 if something did.",
    ),
    "serve": Entry("turnbridge.cli.serve_options", "Run the gateway."),
    "service": Entry(
        "turnbridge.cli.service", "Run the gateway as a service of this user: systemd on Linux, launchd on macOS."
    ),
    "status": Entry(
        "turnbridge.cli.status",
        "Show the gateway, the account, and what to do next: as `turnbridge` without a command.",
    ),
    "store": Entry("turnbridge.cli.store", "Inspect and maintain the response store."),
    "trace": Entry(
        "turnbridge.diagnostics.timeline",
        "Show one request as a timeline across both wires, from the trace that PROXY_LOG_PROTO=true writes.",
    ),
    "usage": Entry("turnbridge.cli.usage", "Show the requests and tokens of each client, model or day."),
    "whoami": Entry("turnbridge.cli.account", "Show who is logged in, and how much of the plan is used."),
}


class _Commands(click.Group):
    """Imports commands lazily, and exits without a traceback on Ctrl-C."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name].module), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in sorted(COMMANDS)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them: a shell waits for it at every key."""
        named = [
            CompletionItem(name, help=COMMANDS[name].summary)
            for name in sorted(COMMANDS)
            if name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):  # The latter from a prompt.
            raise Exit(EXIT_INTERRUPTED) from None


@click.group(
    cls=_Commands,
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
    if ctx.invoked_subcommand is None and (status := app.get_command(ctx, "status")) is not None:
        ctx.invoke(status)
