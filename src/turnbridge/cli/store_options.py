"""The commands that work on the store, with their arguments and options: `keys`, `store` and `usage`."""

import functools
import importlib
from collections.abc import Callable

import click

from turnbridge.cli.options import JSON, PATH, account_option, done_by

JSON_ARRAY = click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")


class _Checked(click.ParamType[str]):
    """A text that a function of `cli.keys` checks."""

    def __init__(self, name: str, check: str) -> None:
        self.name = name
        self._check = check

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = value.strip()
        try:
            getattr(importlib.import_module("turnbridge.cli.keys"), self._check)(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return text


KEY_NAME = click.argument("name", metavar="NAME")
EXPIRES = click.option(
    "--expires", type=_Checked("period", "expiry_of"), help="When it expires: `12h`, `30d`, or a day as `2027-01-31`."
)
KEY_LIMITS = (
    click.option(
        "--models",
        type=_Checked("names", "check_text"),
        multiple=True,
        help="Models that it may use, separated by commas.",
    ),
    click.option(
        "--rate", type=_Checked("rate", "check_rate"), help="Requests that it may send, such as `60/minute;1000/day`."
    ),
    click.option(
        "--turns", type=_Checked("number", "check_turns"), help="Turns that it may have at once, running or queued."
    ),
    click.option(
        "--tokens",
        type=_Checked("tokens", "check_tokens"),
        help="Tokens that it may use in an hour, day or week: `2M/day`.",
    ),
    EXPIRES,
)


def _key_limits(declared: Callable[..., None]) -> Callable[..., None]:
    """Add the options that limit a key."""
    return functools.reduce(lambda function, option: option(function), reversed(KEY_LIMITS), declared)


@click.group()
def keys() -> None:
    """Make, limit and revoke keys for the people and programs that share the gateway.

    A change is live within a second on every gateway that uses the same store. No restart is needed.
    """


@keys.command()
@KEY_NAME
@_key_limits
@account_option("The Codex account that its turns run on, for good. See `turnbridge login --account`.")
@click.option("--admin", is_flag=True, help="Let it read the metrics and usage of all keys.")
@JSON
@done_by("cli.keys")
def create() -> None:
    """Make a key, and print it: this once, since only a digest of it is stored."""


@keys.command("list")
@JSON_ARRAY
@done_by("cli.keys")
def list_keys() -> None:
    """List the keys with their limits."""


@keys.command()
@KEY_NAME
@click.option("--forget", is_flag=True, help="Free the name, too; nobody can read any more what was stored under it.")
@JSON
@done_by("cli.keys")
def revoke() -> None:
    """Stop a key, and what runs for it. What it has stored stays, for `rotate` to give access to again."""


@keys.command()
@KEY_NAME
@EXPIRES
@JSON
@done_by("cli.keys")
def rotate() -> None:
    """Replace a key by a new one, and print it. What the old one has stored belongs to the new one."""


@keys.command()
@KEY_NAME
@_key_limits
@click.option("--admin/--no-admin", default=None, help="Whether it may read the metrics and usage of all keys.")
@JSON
@done_by("cli.keys")
def limits() -> None:
    """Show the limits of a key, or change those that are given. `none` removes a limit."""


@click.group()
def store() -> None:
    """Inspect and maintain the response store."""


@store.command()
@done_by("cli.store")
def show() -> None:
    """Show the location, size and contents of the store."""


@store.command()
@click.option(
    "--older-than-days", type=click.FloatRange(min=0), help="Delete entries older than this (PROXY_STORE_TTL_DAYS)."
)
@click.option(
    "--max-mb",
    type=click.IntRange(min=0),
    help="Then delete the oldest entries of the key that uses most, down to this size (PROXY_STORE_MAX_MB).",
)
@done_by("cli.store")
def prune() -> None:
    """Delete entries by age and size, as the gateway itself does every 15 minutes."""


@store.command()
@click.option("--out", type=PATH, help="File to write. Default: standard output.")
@done_by("cli.store")
def export() -> None:
    """Export all entries, one JSON object per line."""


@store.command()
@done_by("cli.store")
def vacuum() -> None:
    """Reclaim disk space; blocks the gateway's writes meanwhile."""


@store.command()
@click.option("--to", "target", required=True, help="The other store: postgresql://…, or a file of SQLite.")
@done_by("cli.store")
def copy() -> None:
    """Copy all entries to another, empty store: SQLite to Postgres, or back.

    An interrupted copy is resumed by the same command. Stop the gateways that use either store meanwhile.
    """


@store.command("import")
@click.argument("source")
@done_by("cli.store")
def import_() -> None:
    """Copy all entries of another store (postgresql://…, or a file of SQLite) into the gateway's own, empty one.

    An interrupted copy is resumed by the same command. Stop the gateways that use either store meanwhile.
    """


@click.command()
@click.option("--days", type=click.IntRange(min=1), default=30, help="How many days, today included (UTC).")
@click.option("--by", type=click.Choice(["client", "model", "day"]), default="client", help="What each line is about.")
@JSON_ARRAY
@done_by("cli.usage")
def usage() -> None:
    """Show the requests and tokens of each client, model or day."""
