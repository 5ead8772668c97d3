"""How a command says that it cannot do what it was asked."""

import sys
from typing import NoReturn

import click
from click.exceptions import Exit

from turnbridge.logs.output import print_to
from turnbridge.settings.fields import Settings, load_settings

# Refuses a half-configured server with the status that service managers read as "do not try again as it is".
EXIT_CONFIG = 78
# Says that something which the program needs is not there.
EXIT_UNAVAILABLE = 69


def refuse(message: str, *, status: int = EXIT_CONFIG) -> NoReturn:
    """End the program with a message."""
    _tell(message, "red")
    raise Exit(status)


def warn(message: str) -> None:
    """Tell what is wrong with a configuration that can be used all the same."""
    _tell(f"warning: {message}", "yellow")


def _tell(message: str, colour: str) -> None:
    print_to(sys.stderr, f"{click.style(message, fg=colour) if sys.stderr.isatty() else message}\n")


def usable_settings(**chosen: object) -> Settings:
    """Return the settings; ends the program if something is wrong with them, and says what, each by its name."""
    try:
        return load_settings(**chosen)
    except ValueError as error:
        refuse(str(error))
