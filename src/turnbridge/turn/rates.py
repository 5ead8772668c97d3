"""Rate limits as operators write them: `60/minute`, `10 per 2 hours`, or several as `60/minute;1000/day`."""

import re
from typing import NamedTuple

DAY_S = 24 * 3600
UNITS = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": DAY_S,
    "month": 30 * DAY_S,
    "year": 360 * DAY_S,
}
RATE = re.compile(rf"\s*(\d{{1,12}})\s*(?:/|per)\s*(\d{{1,6}})?\s*({'|'.join(UNITS)})s?\s*", re.IGNORECASE | re.ASCII)
SEPARATORS = re.compile(r"[,;|]")


class Rate(NamedTuple):
    """So many requests in so many seconds."""

    amount: int
    seconds: int

    def described(self) -> str:
        """Return it in words, by the largest unit that fits."""
        unit, size = next((name, size) for name, size in reversed(UNITS.items()) if self.seconds % size == 0)
        count = self.seconds // size
        window = unit if count == 1 else f"{count} {unit}s"
        return f"{self.amount} {'request' if self.amount == 1 else 'requests'} per {window}"


def parse_rates(text: str) -> tuple[Rate, ...]:
    """Return the limits that a text has; raises `ValueError` if it is none."""
    found = [RATE.fullmatch(part) for part in SEPARATORS.split(text)]
    rates = tuple(Rate(int(each[1]), int(each[2] or 1) * UNITS[each[3].lower()]) for each in found if each is not None)
    if len(rates) < len(found) or not all(map(all, rates)):
        raise ValueError("expected `60/minute`, or several limits as `60/minute;1000/day`")
    return rates
