"""How a command says that it cannot do what it was asked."""

from typing import NoReturn

import click
from click.exceptions import Exit

from turnbridge.settings import Settings, load_settings

# Refuses a half-configured server with the status that service managers read as "do not try again as it is".
EXIT_CONFIG = 78
# Says that something which the program needs is not there.
EXIT_UNAVAILABLE = 69


def refuse(message: str, *, status: int = EXIT_CONFIG) -> NoReturn:
    """End the program with a message."""
    click.secho(message, fg="red", err=True)
    raise Exit(status)


def usable_settings(**chosen: object) -> Settings:
    """Return the settings; ends the program if something is wrong with them, and says what, each by its name."""
    try:
        return load_settings(**chosen)
    except ValueError as error:
        refuse(str(error))
