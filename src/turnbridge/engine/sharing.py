"""What a replica knows of the others, as the engine, the APIs and HTTP see it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from turnbridge.turn.items import JsonObject


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

    live: "LiveAnswers | None"
    """Where an answer can be read while it is made; None if others get it when it is whole."""

    async def claim(self, identity: str, fingerprint: str) -> Claim:
        """Claim the answer to a key, which comes with a request that has this fingerprint."""
        ...

    async def finished(self, identity: str) -> bytes | None:
        """Return a finished answer, if it is still there."""
        ...

    async def finish(self, client: str, identity: str, answer: bytes | None) -> None:
        """Keep a finished answer, or end the claim without one; a claim that has lapsed is another's."""
        ...


class LiveAnswers(Protocol):
    """Answers to keys while they are made. Each method may raise `SharedStateAway`."""

    on_watched: Callable[[str, str, bool], None]
    """Called with the identity of an answer that is made here, and the replica that wants to read it, or no more."""

    async def place(self, identity: str) -> str | None:
        """Return where an answer is or was published, if its maker does that; None if nobody makes it."""
        ...

    async def watch(self, place: str, *, wanted: bool) -> None:
        """Ask the maker to publish there, or let it know that this replica reads no more."""
        ...

    async def read(self, place: str, position: int) -> "FramesSoFar":
        """Return what was published after the first `position` bytes."""
        ...

    async def publish(self, identity: str, *, after: int, piece: bytes) -> bool:
        """Add to an answer that is made here; False if others cannot read on, and wait until it is whole."""
        ...

    async def seal(self, identity: str, *, after: int) -> None:
        """Let readers know that this is all."""
        ...


class AnswerStore(Protocol):
    """Stores claims and answers for replicas without a Redis, by the clock of the database."""

    async def claim_answer(self, identity: str, fingerprint: str, owner: str, lease_s: float) -> Claim: ...
    async def claimed_answer(self, identity: str) -> bytes | None: ...
    async def finish_answer(self, identity: str, owner: str, answer: bytes | None, kept_s: float) -> None: ...
    async def renew_answers(self, identities: Sequence[str], owner: str, lease_s: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LegRecord:
    """What the model said up to calls of a client, for replicas that do not have it in memory."""

    owner: str
    call_id: str
    """The first call that the client was given."""
    holder: str
    """The replica where the turn is parked, or was."""
    items: Sequence[JsonObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class LegLimits:
    """How many legs one owner may have, and how many bytes in them."""

    legs: int
    size: int


class SharedChunk(NamedTuple):
    """Whole frames of a background response, and how many frames the stream has up to their end."""

    frames: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesSoFar:
    """Frames of a background response that its maker has shared."""

    chunks: tuple[SharedChunk, ...] = ()
    sealed: bool = False
    """Whether no more will come: the store has the end, or will have it."""


class SharedRunStore(Protocol):
    """Stores what replicas share of running responses, for as long as a reader may need it."""

    async def keep_legs(self, legs: Sequence[LegRecord], lifetime_s: float) -> None:
        """Store legs, each in place of the one with the same call."""

    async def trim_legs(self, owner: str, limits: LegLimits) -> None:
        """Delete the oldest legs of an owner that has too many."""

    async def parked_legs(self, owner: str, call_ids: Sequence[str]) -> Sequence[LegRecord]: ...

    async def maker(self, owner: str, response_id: str) -> str | None:
        """Return the replica that makes a response, or made it."""

    async def add_frames(self, response_id: str, maker: str, *, after: int, chunk: SharedChunk) -> int | None:
        """Add frames to what is shared of a response, if it has `after` frames so far; return how many it then has.

        The result is None if the response has ended, or has another maker.
        """

    async def frames_after(self, response_id: str, position: int) -> FramesSoFar:
        """Return what is shared of a response beyond its first `position` frames."""

    async def count_frames(self, response_id: str) -> int:
        """Return how many frames are shared of a response."""

    async def drop_frames(self, response_id: str) -> None:
        """Delete what is shared of a response."""


class SharedFrames(Protocol):
    """Where the frames of responses are shared."""

    @property
    def interval_s(self) -> float:
        """Return how long a maker gathers frames, and how often a reader asks while some come."""
        ...

    async def add(self, response_id: str, *, after: int, chunk: SharedChunk) -> int | None:
        """Add frames if there are `after` so far; return how many there are then, or None if it is sealed."""
        ...

    async def after(self, response_id: str, position: int) -> FramesSoFar:
        """Return what comes after the first `position` frames."""
        ...

    async def count(self, response_id: str) -> int:
        """Return how many frames there are so far."""
        ...

    async def seal(self, response_id: str) -> FramesSoFar:
        """Refuse further frames, and return all that there are."""
        ...

    async def drop(self, response_id: str) -> None:
        """Let readers know that the store has the end, and delete the frames, soon if not at once."""
        ...


class Peers(Protocol):
    """The replicas on the same store, which send one another short messages."""

    @property
    def id(self) -> str:
        """Return the name of this replica."""
        ...

    def tell(self, replica: str, message: tuple[str, ...]) -> None:
        """Send a message to a replica soon; it may be lost, and the sender must not depend on it."""


class Budget(NamedTuple):
    """The tokens of a client in one window."""

    window: str
    start: int
    ends_in_s: int
    limit: int
    used: int
    """As far as this replica knows."""


class Reservation(NamedTuple):
    """Tokens that a request may use."""

    client: str
    member: str


class TokenBudgets(Protocol):
    """The tokens of clients, on all replicas."""

    def share(self, limit: int) -> int:
        """Return this replica's share of what is left."""
        ...

    async def reserve(
        self, client: str, budgets: Sequence[Budget], tokens: int
    ) -> tuple[Reservation | None, list[int]]:
        """Reserve tokens if every budget has some left; return also what is left of each.

        Raises `SharedStateAway`.
        """
        ...

    def settle(self, client: str, reservation: Reservation | None, budgets: Sequence[Budget], tokens: int) -> None:
        """End a reservation, and count what was used."""
        ...
