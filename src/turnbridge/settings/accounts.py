"""The Codex accounts of a gateway: where each has its home, and how one logs in to it.

The default account is the user's own Codex home. Each named one has a Codex home in the data directory.
"""

from pathlib import Path

from turnbridge.settings.command_line import own_command
from turnbridge.settings.fields import Settings
from turnbridge.turn.clients import ACCOUNT_NAME

ACCOUNTS = "accounts"


def account_home(settings: Settings, account: str | None) -> Path:
    """Return the Codex home that has the login and configuration of an account."""
    return settings.codex_home if account is None else settings.data_dir / ACCOUNTS / account


def named_accounts(settings: Settings) -> list[str]:
    """Return the accounts besides the default one."""
    folder = settings.data_dir / ACCOUNTS
    homes = folder.iterdir() if folder.is_dir() else ()
    return sorted(home.name for home in homes if home.is_dir() and ACCOUNT_NAME.fullmatch(home.name))


def login_command(account: str | None = None) -> str:
    """Return a shell command that logs in."""
    return own_command("login", *(() if account is None else ("--account", account)))
