"""How a command says that it cannot do what it was asked."""

from typing import NoReturn

import typer
from pydantic import ValidationError

# Refuses a half-configured server with the status that service managers read as "do not try again as it is".
EXIT_CONFIG = 78
# Says that something which the program needs is not there.
EXIT_UNAVAILABLE = 69


def refuse(message: str, *, status: int = EXIT_CONFIG) -> NoReturn:
    """End the program with a message."""
    typer.secho(message, fg="red", err=True)
    raise typer.Exit(status)


def explained(error: ValidationError | ValueError) -> str:
    """Return what is wrong with the settings, each by its name."""
    if isinstance(error, ValidationError):
        return "\n".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
    return str(error)
