"""What the parts of the store share."""

from collections.abc import Callable

from turnbridge.store.database import Database


class Part:
    """A part of the store: a database, and what time it is."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now
