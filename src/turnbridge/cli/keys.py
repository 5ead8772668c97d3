"""`turnbridge keys`: the keys of the people and programs that share a gateway."""

import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import click

from turnbridge.cli.chosen_account import existing_account
from turnbridge.cli.console import print_json, refuse, usable_settings
from turnbridge.cli.store import refuse_store, store_location, with_store
from turnbridge.engine.keys import NewKey, create_key, find_key, revoke_key, rotate_key
from turnbridge.settings.command_line import own_command
from turnbridge.store.sql_store import SqlStore
from turnbridge.turn.clients import DEFAULT_ACCOUNT, ClientLimits, KeyRecord
from turnbridge.turn.errors import GatewayError, RequestError
from turnbridge.turn.items import Json, JsonObject, replace
from turnbridge.turn.rates import parse_rates
from turnbridge.turn.usage import described_tokens, parse_token_limits

T = TypeVar("T")

EXIT_REFUSED = 1
NO_LIMIT = "none"
PERIOD = re.compile(r"(\d{1,6})\s*(minutes?|m|hours?|h|days?|d|weeks?|w)")
PERIOD_SECONDS = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
MOST_MODELS = 100
LONGEST_TEXT = 200


def check_text(text: str) -> None:
    """Raise `ValueError` if a text is too long: the limits of keys are in the memory of every gateway."""
    if len(text) > LONGEST_TEXT or not text.isprintable():
        raise ValueError(f"expected at most {LONGEST_TEXT} printable characters")


def check_rate(text: str) -> None:
    """Raise `ValueError` if this is no rate limit."""
    check_text(text)
    if text != NO_LIMIT:
        parse_rates(text)


def check_turns(text: str) -> None:
    """Raise `ValueError` if this is no number of turns."""
    if text != NO_LIMIT and not (text.isascii() and text.isdigit() and 0 < len(text) < 7 and int(text)):
        raise ValueError(f"expected a whole number of at least 1, or `{NO_LIMIT}`")


def check_tokens(text: str) -> None:
    """Raise `ValueError` if this is no token limit."""
    check_text(text)
    if text != NO_LIMIT:
        parse_token_limits(text)


def expiry_of(text: str, *, now: int = 0) -> int | None:
    """Return the end of a period such as `30d`, or the beginning of a day in UTC such as `2027-01-31`."""
    if text == NO_LIMIT:
        return None
    if found := PERIOD.fullmatch(text.lower()):
        return now + int(found[1]) * PERIOD_SECONDS[found[2][0]]
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise ValueError(
            f"expected a period such as `12h`, `30d` or `4w`, a day such as `2027-01-31`, or `{NO_LIMIT}`"
        ) from None


def create(
    *,
    name: str,
    models: Sequence[str],
    rate: str | None,
    turns: str | None,
    tokens: str | None,
    expires: str | None,
    account: str | None,
    admin: bool,
    as_json: bool,
) -> None:
    """Make a key, and print it: this once, since only a digest of it is stored."""
    chosen, now = ClientLimits(account=existing_account(usable_settings(), account)[0]), int(time.time())
    limits = _changed(chosen, models=models, rate=rate, turns=turns, tokens=tokens)
    expires_at = None if expires is None else expiry_of(expires, now=now)

    async def make(store: SqlStore) -> NewKey:
        return await create_key(store, name, limits=limits, admin=admin, expires_at=expires_at, now=now)

    _print_new(_with_keys(make), as_json=as_json)


def list_keys(*, as_json: bool) -> None:
    """List the keys with their limits."""
    _, records = _with_keys(lambda store: store.keys())
    if as_json:
        print_json([as_json_object(record) for record in records])
        return
    if not records:
        click.echo(
            f"There are no keys yet besides the gateway's own. Make one: {own_command('keys', 'create', 'NAME')}"
        )
        return
    rows = [("NAME", "KEY", "STATE", "CREATED", "LIMITS"), *(_row(record) for record in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        click.echo("  ".join([*(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]))


def revoke(*, name: str, forget: bool, as_json: bool) -> None:
    """Stop a key, and what runs for it. What it has stored stays, for `rotate` to give access to again."""
    now = int(time.time())

    async def stop(store: SqlStore) -> KeyRecord:
        record = await revoke_key(store, name, now=now)
        if forget:
            await store.delete_key(name)
        return record

    record = _with_keys(stop)
    if as_json:
        print_json(as_json_object(record))
    else:
        click.echo(f"Revoked: {record.name} (…{record.hint}). It stops within a second.")


def rotate(*, name: str, expires: str | None, as_json: bool) -> None:
    """Replace a key by a new one, and print it. What the old one has stored belongs to the new one."""
    now = int(time.time())
    expires_at = None if expires is None else expiry_of(expires, now=now)
    _print_new(_with_keys(lambda store: rotate_key(store, name, expires_at=expires_at, now=now)), as_json=as_json)


def limits(
    *,
    name: str,
    models: Sequence[str],
    rate: str | None,
    turns: str | None,
    tokens: str | None,
    expires: str | None,
    admin: bool | None,
    as_json: bool,
) -> None:
    """Show the limits of a key, or change those that are given. `none` removes a limit."""
    now = int(time.time())

    async def change(store: SqlStore) -> KeyRecord:
        record = await find_key(store, name)
        changed = replace(
            record,
            limits=_changed(record.limits, models=models, rate=rate, turns=turns, tokens=tokens),
            expires_at=record.expires_at if expires is None else expiry_of(expires, now=now),
            admin=record.admin if admin is None else admin,
        )
        if changed != record:
            await store.change_key(changed)
        return changed

    record = _with_keys(change)
    if as_json:
        print_json(as_json_object(record))
    else:
        click.echo(f"{record.name}: {_described(record)}")


def _with_keys(work: Callable[[SqlStore], Awaitable[T]]) -> T:
    """Return the result of work on the keys; exit with what is wrong."""
    try:
        return with_store(usable_settings(), work)
    except RequestError as error:
        refuse(error.message, status=EXIT_REFUSED)
    except GatewayError as error:
        refuse_store(error)


def _changed(
    limits: ClientLimits, *, models: Sequence[str], rate: str | None, turns: str | None, tokens: str | None
) -> ClientLimits:
    """Return the limits with those changed that were given."""
    if models:
        names = tuple(dict.fromkeys(name.strip() for each in models for name in each.split(",") if name.strip()))
        if len(names) > MOST_MODELS or not names:
            raise click.BadParameter(f"expected 1 to {MOST_MODELS} names", param_hint="--models")
        limits = replace(limits, models=None if names == (NO_LIMIT,) else names)
    if rate is not None:
        limits = replace(limits, rate=None if rate == NO_LIMIT else rate)
    if turns is not None:
        limits = replace(limits, turns=None if turns == NO_LIMIT else int(turns))
    if tokens is not None:
        limits = replace(limits, tokens=() if tokens == NO_LIMIT else parse_token_limits(tokens))
    return limits


def _print_new(made: NewKey, *, as_json: bool) -> None:
    """Print a key on standard output, and what to know about it beside it, so that a script reads the key alone."""
    key, record = made
    if as_json:
        print_json({"key": key, **as_json_object(record)})
        return
    click.echo(f"Key of {record.name}, shown this once ({_described(record)}):", err=True)
    click.echo(key)
    click.echo(
        f"It works within a second on every gateway with this store: {store_location(usable_settings())}", err=True
    )
    sys.stdout.flush()


def as_json_object(record: KeyRecord) -> JsonObject:
    """Return all that is known of a key but its digest."""
    limits = record.limits
    models: Json = None if limits.models is None else list(limits.models)
    return {
        "name": record.name,
        "hint": record.hint,
        "state": record.ended(time.time()) or "active",
        "account": limits.account or DEFAULT_ACCOUNT,
        "admin": record.admin,
        "models": models,
        "rate": limits.rate,
        "turns": limits.turns,
        "tokens": [{"amount": limit.amount, "window": limit.window} for limit in limits.tokens],
        "created_at": record.created_at,
        "rotated_at": record.rotated_at,
        "expires_at": record.expires_at,
        "revoked_at": record.revoked_at,
    }


def _row(record: KeyRecord) -> tuple[str, ...]:
    state = record.ended(time.time()) or "active"
    return record.name, f"…{record.hint}", state, _day(record.created_at), _described(record)


def _described(record: KeyRecord) -> str:
    limits = record.limits
    parts = [
        "admin" if record.admin else "",
        f"account {limits.account}" if limits.account is not None else "",
        f"models {', '.join(limits.models)}" if limits.models is not None else "",
        limits.rate or "",
        f"{limits.turns} turns at once" if limits.turns is not None else "",
        *map(described_tokens, limits.tokens),
        f"expires {_day(record.expires_at)}" if record.expires_at is not None else "",
    ]
    return "; ".join(filter(None, parts)) or "no limits of its own"


def _day(moment: int) -> str:
    try:
        return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return "after the year 9999"
