"""`turnbridge usage`: what clients have used, from the store."""

import time
from datetime import UTC, datetime

import click

from turnbridge.cli.console import print_json, usable_settings
from turnbridge.cli.store import refuse_store, with_store
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import Json
from turnbridge.turn.usage import DAY_S, USAGE_DAYS, Counts, UsageQuery, UsageSum

COLUMNS = ("requests", "errors", "input", "cached", "output", "reasoning")


def usage(*, days: int, by: str, as_json: bool) -> None:
    """Show the requests and tokens of each client, model or day."""
    if days > USAGE_DAYS:
        raise click.BadParameter(f"Usage is kept for {USAGE_DAYS} days.", param_hint="--days")
    today = int(time.time()) // DAY_S * DAY_S
    start = today - (days - 1) * DAY_S
    query = UsageQuery(
        start=start,
        end=today + DAY_S,
        width=DAY_S if by == "day" else days * DAY_S,
        by_client=by == "client",
        by_model=by == "model",
    )
    try:
        sums = with_store(usable_settings(), lambda store: store.usage(query))
    except GatewayError as error:
        refuse_store(error)
    lines = [(_name(each, by), each.counts) for each in sums]
    if as_json:
        print_json([_as_json(by, name, counts) for name, counts in lines])
    elif not lines:
        click.echo(f"Nothing was used in the last {days} days.")
    else:
        click.echo("\n".join(_table(by, lines)))


def _as_json(by: str, name: str, counts: Counts) -> Json:
    return {by: name, **{column: getattr(counts, column) for column in COLUMNS}}


def _name(each: UsageSum, by: str) -> str:
    match by:
        case "client":
            return each.client or ""
        case "model":
            return each.model or "(none)"
        case _:
            return f"{datetime.fromtimestamp(each.start, UTC):%Y-%m-%d}"


def _table(by: str, lines: list[tuple[str, Counts]]) -> list[str]:
    """Return the lines of a table, with a sum if there are several."""
    total = Counts()
    for _, counts in lines:
        total.add(counts)
    shown = [*lines, ("total", total)] if len(lines) > 1 else lines
    rows = [(by, *COLUMNS), *((name, *(f"{getattr(counts, each):,}" for each in COLUMNS)) for name, counts in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:{'>' if at else '<'}{widths[at]}}" for at, cell in enumerate(row)) for row in rows]
