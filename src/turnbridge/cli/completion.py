"""`turnbridge completion`: the script with which a shell completes commands and options."""

import sys

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

PROGRAM = "turnbridge"
VARIABLE = "_TURNBRIDGE_COMPLETE"
SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
# Where each shell looks for it; what is sourced in a start-up file works with any version.
INSTALL = {
    "bash": "turnbridge completion bash > ~/.local/share/bash-completion/completions/turnbridge",
    "zsh": "echo 'source <(turnbridge completion zsh)' >> ~/.zshrc",
    "fish": "turnbridge completion fish > ~/.config/fish/completions/turnbridge.fish",
}


def completion(*, shell: str) -> None:
    """Print the script for the completion of a shell: bash, zsh or fish."""
    made = SHELLS[shell](click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE)
    # `source` of bash would run a bash to learn its version.
    click.echo(made.source_template % made.source_vars())
    if sys.stdout.isatty():
        click.echo(f"To install it: {INSTALL[shell]}", err=True)
