"""The account that `--account` of a command names."""

from pathlib import Path

import click

from turnbridge.cli.console import refuse
from turnbridge.settings.accounts import account_home, login_command, named_accounts
from turnbridge.settings.fields import Settings
from turnbridge.turn.clients import ACCOUNT_NAME, ACCOUNT_RULE, DEFAULT_ACCOUNT


def chosen_account(name: str | None) -> str | None:
    """Return the name of an account, or nothing for the default one; raises a usage error for what is no name."""
    if name is None or name == DEFAULT_ACCOUNT:
        return None
    if not ACCOUNT_NAME.fullmatch(name):
        raise click.BadParameter(ACCOUNT_RULE, param_hint="--account")
    return name


def existing_account(settings: Settings, name: str | None) -> tuple[str | None, Path]:
    """Return an account and its Codex home; exit if there is no such account."""
    account = chosen_account(name)
    home = account_home(settings, account)
    if account is not None and not home.is_dir():
        others = ", ".join((DEFAULT_ACCOUNT, *named_accounts(settings)))
        refuse(f"There is no account `{account}`, only: {others}. To make it: {login_command(account)}")
    return account, home
