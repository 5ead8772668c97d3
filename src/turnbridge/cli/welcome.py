"""What `serve` does for a person at a terminal: offers a login where there is none, and says who is logged in."""

import os
import sys
import tomllib

import click

from turnbridge.cli.account import account_of, account_while_serving, login
from turnbridge.cli.plan import described_account, described_limits
from turnbridge.codex.account import LOGIN_FILE
from turnbridge.settings.fields import Settings
from turnbridge.turn.errors import GatewayError

# Settings of Codex with which there need not be a login file.
OTHER_LOGINS = ("model_provider", "cli_auth_credentials_store", "openai_base_url", "chatgpt_base_url")
CHOICES = """Nobody is logged in to Codex. What do you want to do?

  1  Log in to ChatGPT, in a browser on this machine
  2  Log in to ChatGPT, with a code on any device
  3  Use an OpenAI API key
  4  Try the demo: a scripted model, no account
  5  Start without a login, and log in later
"""


def is_interactive() -> bool:
    """Tell whether somebody can answer a question: not in a service, in a pipe, or in the background of a shell."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # A terminal that is not this process's own.
        return False


def offer_login(settings: Settings) -> bool:
    """Offer a login if there is none; True if the demo was chosen instead."""
    if not _may_lack_login(settings) or not _lacks_login(settings):
        return False
    click.echo(CHOICES)
    match click.prompt("Your choice", type=click.IntRange(1, 5), default=1):
        case 1 | 2 | 3 as number:
            login(device=number == 2, api_key=number == 3, access_token=False, account=None, as_json=False)
        case 4:
            return True
    return False


def _may_lack_login(settings: Settings) -> bool:
    """Tell whether it is worth to ask Codex, which takes a second: most users are logged in."""
    if settings.codex_force_provider is not None or (settings.codex_home / LOGIN_FILE).exists():
        return False
    try:
        config = tomllib.loads((settings.codex_home / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # Missing, or wrong: then the start says so.
        return True
    return not any(name in config for name in OTHER_LOGINS)


def _lacks_login(settings: Settings) -> bool:
    try:
        identity, _, _ = account_of(settings)
    except (GatewayError, OSError):  # The start says why Codex cannot be asked.
        return False
    return not identity.usable


async def account_lines(settings: Settings) -> str:
    """Return who is logged in and how much of the plan is used, for the banner; nothing if Codex cannot be asked."""
    try:
        identity, limits, problem = await account_while_serving(settings)
    except (GatewayError, OSError):
        return ""
    lines = [f"  Account   {described_account(identity)}", *(f"          {line}" for line in described_limits(limits))]
    if problem is not None:
        lines.append(f"            The plan's limits cannot be read: {problem}")
    return "\n".join(lines) + "\n\n"
