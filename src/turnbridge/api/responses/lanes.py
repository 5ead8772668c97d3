"""The lanes of a WebSocket: which request runs next, and the responses that only their connection remembers. Pure.

Requests of one lane run one after another, in the order in which they came; those of different lanes run at once.
"""

import re
from collections import deque
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from turnbridge.turn.errors import InvalidRequest, RateLimited
from turnbridge.turn.fair_shares import FairShares
from turnbridge.turn.items import Json, JsonObject

M = TypeVar("M")

Lane: TypeAlias = str | None
"""The `stream_id` of a lane; None is the default lane."""

STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")

# OpenAI's limits of a connection.
MOST_RUNNING = 16
MOST_NAMED = 32
# Requests that wait hold their messages in memory. No client is known to queue more than a few.
MOST_WAITING = 256
MOST_WAITING_BYTES = 32 * 2**20
COME_BACK_S = 1.0

# Responses that are not stored, of all connections together, and the characters in their histories.
MOST_REMEMBERED = 4096
MOST_REMEMBERED_CHARACTERS = 64 * 2**20


def checked_lane(stream_id: Json) -> Lane:
    """Return the lane that a request names; raises `InvalidRequest` if that is no name."""
    if stream_id is None or (isinstance(stream_id, str) and STREAM_ID.fullmatch(stream_id)):
        return stream_id
    raise InvalidRequest(
        "Invalid 'stream_id': expected 1 to 256 letters, digits, '_', '-' or '.'. Leave it out for the default lane.",
        code="invalid_stream_id",
        param="stream_id",
    )


class _Waiting(NamedTuple, Generic[M]):
    message: M
    size: int


class Lanes(Generic[M]):
    """The requests of one connection that run or wait."""

    def __init__(self) -> None:
        self._named: set[str] = set()
        self._waiting: dict[Lane, deque[_Waiting[M]]] = {}
        self._ready: deque[Lane] = deque()
        """Lanes in which nothing runs and something waits, in the order in which that came to be."""
        self._running: set[Lane] = set()
        self.waiting_bytes = 0
        """The size of the requests that wait."""

    @property
    def idle(self) -> bool:
        """Tell whether nothing runs or waits."""
        return not self._running and not self._waiting

    def add(self, lane: Lane, message: M, size: int) -> None:
        """Queue a request of so many bytes; raises what it is refused with."""
        self._name(lane)
        if sum(map(len, self._waiting.values())) >= MOST_WAITING or (
            self._waiting and self.waiting_bytes + size > MOST_WAITING_BYTES
        ):
            raise RateLimited(
                "Too many requests wait on this connection. Read the responses of some before you send more.",
                code="queue_full",
                retry_after=COME_BACK_S,
            )
        queue = self._waiting.setdefault(lane, deque())
        queue.append(_Waiting(message, size))
        self.waiting_bytes += size
        if len(queue) == 1 and lane not in self._running:
            self._ready.append(lane)

    def add_next(self, lane: Lane, message: M, size: int) -> None:
        """Queue a request of a lane in which one runs, before all others of it."""
        self._waiting.setdefault(lane, deque()).appendleft(_Waiting(message, size))
        self.waiting_bytes += size

    def start(self) -> list[tuple[Lane, M]]:
        """Return the requests that may run now; each occupies its lane until `end`."""
        started = []
        while self._ready and len(self._running) < MOST_RUNNING:
            lane = self._ready.popleft()
            queue = self._waiting[lane]
            message, size = queue.popleft()
            if not queue:
                del self._waiting[lane]
            self.waiting_bytes -= size
            self._running.add(lane)
            started.append((lane, message))
        return started

    def end(self, lane: Lane) -> None:
        """Free a lane whose request has ended."""
        self._running.remove(lane)
        if lane in self._waiting:
            self._ready.append(lane)

    def drop_waiting(self) -> None:
        """Forget the requests that wait: their connection is gone."""
        self._waiting.clear()
        self._ready.clear()
        self.waiting_bytes = 0

    def _name(self, lane: Lane) -> None:
        """Count a named lane; one that was used once counts for the life of the connection."""
        if lane is None or lane in self._named:
            return
        if len(self._named) >= MOST_NAMED:
            raise InvalidRequest(
                f"This connection has {MOST_NAMED} named streams already, which is the most. "
                "Use one of them again, or open another connection.",
                code="websocket_stream_limit_reached",
                param="stream_id",
            )
        self._named.add(lane)


class Remembered(NamedTuple):
    """A response that is not stored, and the whole conversation up to its end."""

    response_id: str
    items: tuple[JsonObject, ...]


Place: TypeAlias = tuple[Hashable, Lane]


class LaneMemory:
    """The latest response of each lane of each connection, if it is not stored.

    When there is too much, the client that holds most loses its oldest one.
    """

    def __init__(self, *, most: int = MOST_REMEMBERED, most_characters: int = MOST_REMEMBERED_CHARACTERS) -> None:
        self._shares: FairShares[Place] = FairShares(most=most, most_bytes=most_characters)
        self._latest: dict[Hashable, dict[Lane, Remembered]] = {}

    def __len__(self) -> int:
        return len(self._shares)

    def keep(self, client: str, place: Place, latest: Remembered, size: int) -> None:
        """Remember the latest response of a lane, instead of the one before."""
        connection, lane = place
        self._latest.setdefault(connection, {})[lane] = latest
        self._shares.add(client, place, size)
        while (excess := self._shares.excess()) is not None:
            self.drop(excess)

    def find(self, connection: Hashable, response_id: str) -> tuple[JsonObject, ...] | None:
        """Return the conversation up to a response that any lane of this connection remembers."""
        known = self._latest.get(connection, {}).values()
        return next((each.items for each in known if each.response_id == response_id), None)

    def drop(self, place: Place, response_id: str | None = None) -> None:
        """Forget the latest response of a lane; with an id, only if it is that one."""
        connection, lane = place
        latest = self._latest.get(connection, {})
        known = latest.get(lane)
        if known is None or response_id not in (None, known.response_id):
            return
        del latest[lane]
        if not latest:
            del self._latest[connection]
        self._shares.remove(place)

    def forget(self, connection: Hashable) -> None:
        """Forget all responses of a connection."""
        for lane in list(self._latest.get(connection, {})):
            self.drop((connection, lane))
