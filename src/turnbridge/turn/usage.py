"""Usage of clients by model and hour, the windows of token limits, and what is asked of both."""

import re
from typing import Literal, NamedTuple, TypeAlias

import msgspec

HOUR_S = 3600
DAY_S = 24 * HOUR_S
# 1 January 1970 was a Thursday; weeks begin on Monday.
FIRST_MONDAY_S = 4 * DAY_S
# How long usage is kept: a quarter of a year. Each client has a row for each model and hour in which it asked.
USAGE_DAYS = 92
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
TOKEN_LIMIT = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)\s*([kmg]?)\s*(?:/|\s+per\s+)\s*(hour|day|week)", re.IGNORECASE)
MOST_TOKENS = 10**15

Window: TypeAlias = Literal["hour", "day", "week"]
"""In UTC, and made of whole hours, by which usage is stored."""
WINDOW_SECONDS: dict[Window, int] = {"hour": HOUR_S, "day": DAY_S, "week": 7 * DAY_S}


class TokenLimit(msgspec.Struct, frozen=True):
    """Tokens, of input and output together, that a client may use in a window."""

    amount: int
    window: Window


class Counts(msgspec.Struct, kw_only=True):
    """What requests have used; input includes cached tokens, and output reasoning."""

    requests: int = 0
    errors: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0

    def add(self, other: "Counts") -> None:
        """Add other counts to these."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class UsageKey(NamedTuple):
    """What usage is counted by."""

    client: str
    hour: int
    """The beginning of the hour."""
    model: str


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which usage is asked for, in buckets of so many seconds from `start` up to `end`."""

    start: int
    end: int
    width: int
    by_client: bool = False
    by_model: bool = False
    client: str | None = None
    """Only of the client with this id."""
    names: tuple[str, ...] | None = None
    """Only of the clients with these names."""
    models: tuple[str, ...] | None = None


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one bucket, and of one client and model if it was asked for so."""

    start: int
    client: str | None
    """The client's name."""
    model: str | None
    counts: Counts


def window_start(window: Window, now: float) -> int:
    """Return when the window began that a moment is in."""
    origin = FIRST_MONDAY_S if window == "week" else 0
    seconds = WINDOW_SECONDS[window]
    return origin + int(now - origin) // seconds * seconds


def parse_token_limits(text: str) -> tuple[TokenLimit, ...]:
    """Return limits such as `2M/day;10M/week`; raises `ValueError`."""
    limits = []
    for part in text.split(";"):
        found = TOKEN_LIMIT.fullmatch(part.strip())
        amount = int(float(found[1]) * UNITS[found[2].lower()]) if found else 0
        if found is None or not 0 < amount <= MOST_TOKENS:
            raise ValueError("expected `2M/day`, or several limits as `500k/hour;2M/day`; windows: hour, day, week")
        limits.append(TokenLimit(amount, msgspec.convert(found[3].lower(), Window)))
    return tuple(limits)


def described_tokens(limit: TokenLimit) -> str:
    """Return a limit in words."""
    return f"{limit.amount:,} tokens per {limit.window}"
