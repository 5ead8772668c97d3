"""What a replica knows of the others, as the engine, the APIs and HTTP see it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class SharedStateAway(Exception):
    """Redis cannot be used now: each replica falls back to its share, or to what it knows itself."""


@dataclass(eq=False, slots=True)
class SlotLease:
    """The turns of one request, as all replicas count them."""

    number: int
    """Tells the leases of one replica apart."""
    client: str
    turns: int
    """How many of them run once it is started."""
    share: int
    """How much of its client's limit it takes, running or waiting."""
    most: int | None
    """That limit."""
    started: bool = False


class Verdict(IntEnum):
    """What became of a request for turns."""

    STARTED = 1
    FULL = 2
    """All turns are taken."""
    CLIENT_FULL = 3
    """Its client runs as many turns as one client may."""
    QUEUED = 4
    """It is counted for its client's limit, and was not to be started."""
    TOO_MANY = 5
    """It would exceed its client's limit."""
    AWAY = 6
    """Nothing counts for all replicas now."""


class TurnSlots(Protocol):
    """The turns that replicas run together."""

    on_free: list[Callable[[], None]]
    """Called when a turn of another replica has ended that this one may have waited for."""

    @property
    def counted(self) -> bool:
        """Tell whether they are counted for all replicas now; if not, each holds its share of every limit."""
        ...

    def share(self, limit: int) -> int:
        """Return this replica's share of a limit."""
        ...

    def lease(self, client: str, turns: int, share: int, most: int | None) -> SlotLease:
        """Return a lease that holds nothing yet."""
        ...

    async def take(self, lease: SlotLease, *, total: int, of_client: int, start: bool) -> tuple[Verdict, int]:
        """Count a lease for its client, and let it run if it is to be started and there are turns for it.

        At most `total` turns run, `of_client` of them of one client. Returns also how many turns its client has.
        """
        ...

    def take_alone(self, lease: SlotLease, *, started: bool) -> None:
        """Note what a lease holds that this replica has admitted by its share."""
        ...

    def give_back(self, lease: SlotLease) -> None:
        """End a lease."""
        ...


class ReplicaStore(Protocol):
    """Stores which replicas are alive, by the clock of the database."""

    async def replica_alive(self, replica: str, lease_s: float) -> int:
        """Renew the lease of a replica, and return how many replicas have one."""

    async def replica_gone(self, replica: str) -> None:
        """End the lease of a replica that stops."""


class Claim(IntEnum):
    """Who makes the answer to an `Idempotency-Key`."""

    MINE = 1
    OTHER_REQUEST = 2
    """The key came with another request before."""
    FINISHED = 3
    RUNNING = 4
    """Another replica makes it."""


class AnswerClaims(Protocol):
    """The answers to keys, on all replicas. Each method may raise `SharedStateAway`."""

    async def claim(self, identity: str, fingerprint: str) -> Claim:
        """Claim the answer to a key, which comes with a request that has this fingerprint."""
        ...

    async def finished(self, identity: str) -> bytes | None:
        """Return a finished answer, if it is still there."""
        ...

    async def finish(self, client: str, identity: str, answer: bytes | None) -> None:
        """Keep a finished answer, or end the claim without one; a claim that has lapsed is another's."""
        ...


class AnswerStore(Protocol):
    """Stores claims and answers for replicas without a Redis, by the clock of the database."""

    async def claim_answer(self, identity: str, fingerprint: str, owner: str, lease_s: float) -> Claim: ...
    async def claimed_answer(self, identity: str) -> bytes | None: ...
    async def finish_answer(self, identity: str, owner: str, answer: bytes | None, kept_s: float) -> None: ...
    async def renew_answers(self, identities: Sequence[str], owner: str, lease_s: float) -> None: ...
