"""How many app-servers there may be: one number for the pools of all accounts and tool modes together.

Each pool that is in use has one app-server at least, so that no account waits for another's. Beyond that they share.
"""

from typing import Protocol


class Member(Protocol):
    """A pool that shares the budget."""

    @property
    def target(self) -> int:
        """Return how many app-servers it is to have now."""
        ...

    def give_one_up(self) -> bool:
        """Stop an app-server that the pool can do without; tell whether there is one."""
        ...


class Budget:
    """At most `most` app-servers, or one for each pool in use if these are more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._members: list[Member] = []

    def join(self, pool: Member) -> None:
        """Count the app-servers of a pool."""
        self._members.append(pool)

    def leave(self, pool: Member) -> None:
        """Count those of a pool no more."""
        self._members.remove(pool)

    @property
    def has_room(self) -> bool:
        """Tell whether another app-server may be started."""
        return sum(pool.target for pool in self._members) < self._most

    def make_room(self) -> None:
        """Take one from the pool that has most, for a pool that has none; if nobody can do without one, take none."""
        if not self.has_room:
            any(pool.give_one_up() for pool in sorted(self._members, key=lambda pool: -pool.target))
