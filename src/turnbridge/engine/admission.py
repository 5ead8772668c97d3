"""How many turns run at once, who waits for their turn, and who is told to come back.

No client keeps another from its turns. Those that wait are served in rotation, a full queue refuses the client that
holds most, and of several clients none may run all turns at once (docs/decisions/0018-fair-shares.md).
"""

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from turnbridge.turn.errors import BackendUnavailable, RateLimited

# A place in the queue comes free as soon as any turn ends; nobody knows when, so soon is the best guess.
COME_BACK_S = 2.0
# How many characters all requests that wait may hold, histories, tools and images: a request that waits is in memory.
MOST_WAITING_CHARACTERS = 256 * 2**20
# Of several clients, none may run the last of so many turns: a turn may last for an hour, a queue does not.
KEPT_FREE_OF = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRules:
    """The operator's bounds."""

    turns: int
    waiting: int
    patience_s: float
    turns_per_client: int | None = None
    """How many turns one client may have, running or waiting."""
    clients: int = 1
    """How many clients there are."""

    @property
    def turns_at_once(self) -> int:
        """Return how many turns one client may run."""
        return self.turns - (self.turns // KEPT_FREE_OF if self.clients > 1 else 0)


@dataclass(eq=False, slots=True)
class _Waiting:
    turns: int
    size: int
    admitted: asyncio.Future[None]


def _nothing() -> int:
    return 0


class Admission:
    """Lets turns in up to a number, and then in a queue that serves every client in rotation."""

    def __init__(self, rules: AdmissionRules) -> None:
        self._rules = rules
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._shares: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()
        self.closed = False
        """Whether nobody is let in any more."""
        self.running = 0
        self.waited_s = 0.0
        """How long requests have waited, all together, whether they were let in or not."""

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return sum(map(len, self._queues.values()))

    def at_once(self, turns: int) -> int:
        """Return how many turns of one request may run at the same time."""
        return min(turns, self._rules.turns_at_once, self._rules.turns_per_client or turns)

    def admitted(self, client: str, turns: int = 1, size: Callable[[], int] = _nothing) -> "Place":
        """Return a context in which `turns` may run; `size` is asked for what the request holds if it has to wait."""
        return Place(self, client, turns, size)

    async def enter(self, client: str, turns: int, size: Callable[[], int] = _nothing) -> float:
        """Start these turns as soon as they may run; return the seconds that it took."""
        self._take_share(client, turns)
        try:
            return await self._start_when_possible(client, min(turns, self._rules.turns_at_once), size)
        except BaseException:
            self._give_share_back(client, turns)
            raise

    def leave(self, client: str, turns: int) -> None:
        """Make room: these turns are over."""
        self._end(client, min(turns, self._rules.turns_at_once))
        self._give_share_back(client, turns)

    def close(self) -> None:
        """Let nobody in any more; those who wait are told so."""
        self.closed = True
        for queue in self._queues.values():
            for waiting in queue:
                if not waiting.admitted.done():
                    waiting.admitted.set_exception(_closing())
        self._queues.clear()

    async def drained(self, within_s: float) -> bool:
        """Wait until no turn runs; tell whether that happened in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        return self.running == 0

    def _take_share(self, client: str, turns: int) -> None:
        """Take a part of what the client may have at once."""
        bound = self._rules.turns_per_client
        if bound is None:
            return
        size = min(turns, bound)
        held = self._shares[client]
        if held + size > bound:
            raise RateLimited(
                f"The turns that this key may have at once, running or waiting, are {bound}; it has {held}. "
                "Try again when one has ended.",
                retry_after=COME_BACK_S,
            )
        self._shares[client] += size

    def _give_share_back(self, client: str, turns: int) -> None:
        bound = self._rules.turns_per_client
        if bound is None:
            return
        self._shares[client] -= min(turns, bound)
        if not self._shares[client]:
            del self._shares[client]

    async def _start_when_possible(self, client: str, turns: int, size: Callable[[], int]) -> float:
        if self.closed:
            raise _closing()
        if self._may_start(client, turns) and not self._keeps_waiting(client):
            self._start(client, turns)
            return 0.0
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting = _Waiting(turns, size(), loop.create_future())
        self._make_room(client, waiting.size)
        self._queues.setdefault(client, deque()).append(waiting)
        try:
            async with asyncio.timeout(self._rules.patience_s):
                await waiting.admitted
        except BaseException as error:
            self._leave(client, waiting)
            if isinstance(error, TimeoutError):
                raise BackendUnavailable(
                    f"No turn came free within {self._rules.patience_s:g} seconds. Try again later.",
                    code="queue_timeout",
                    retry_after=COME_BACK_S,
                ) from None
            raise
        finally:
            waited_s = loop.time() - began
            self.waited_s += waited_s
        return waited_s

    def _leave(self, client: str, waiting: _Waiting) -> None:
        """Give up a place: in the queue, or among the running if it was let in at the very moment that it left."""
        queue = self._queues.get(client)
        if queue is not None and waiting in queue:
            queue.remove(waiting)
            if not queue:
                del self._queues[client]
            # Those behind it may be small enough for the room that it waited for.
            self._admit_next()
        elif waiting.admitted.done() and not waiting.admitted.cancelled() and not waiting.admitted.exception():
            self._end(client, waiting.turns)

    def _make_room(self, client: str, size: int) -> None:
        """Refuse whoever holds most of a full queue: others for this client, or this client itself."""
        while self.waiting >= self._rules.waiting:
            most = max(self._queues, key=self._held, default=client)
            if self._held(most) <= self._held(client) + 1:
                raise self._full()
            self._refuse_newest(most)
        while self._queues and sum(map(self._characters, self._queues)) + size > MOST_WAITING_CHARACTERS:
            most = max(self._queues, key=self._characters)
            if self._characters(most) <= self._characters(client) + size:
                raise self._full()
            self._refuse_newest(most)

    def _held(self, client: str) -> int:
        """Return how much a client has, running or waiting."""
        return self._running[client] + len(self._queues.get(client, ()))

    def _characters(self, client: str) -> int:
        """Return how much the requests hold that wait for a client."""
        return sum(waiting.size for waiting in self._queues.get(client, ()))

    def _refuse_newest(self, client: str) -> None:
        refused = self._queues[client].pop()
        if not refused.admitted.done():
            refused.admitted.set_exception(self._full())
        if not self._queues[client]:
            del self._queues[client]

    def _full(self) -> RateLimited:
        return RateLimited(
            f"{self.running} turns are running and {self.waiting} requests wait already. Try again later.",
            code="queue_full",
            retry_after=COME_BACK_S,
        )

    def _keeps_waiting(self, client: str) -> bool:
        """Tell whether somebody waits for the turns that come free, before this client."""
        return client in self._queues or not all(self._has_enough(*first) for first in self._firsts())

    def _firsts(self) -> Iterator[tuple[str, int]]:
        """Yield who waits, in rotation, and for how many turns."""
        return ((client, queue[0].turns) for client, queue in self._queues.items())

    def _has_enough(self, client: str, turns: int) -> bool:
        """Tell whether a client runs so much that it waits for turns of its own to end."""
        return self._running[client] + turns > self._rules.turns_at_once

    def _may_start(self, client: str, turns: int) -> bool:
        return self.running + turns <= self._rules.turns and not self._has_enough(client, turns)

    def _admit_next(self) -> None:
        """Let in whoever is next in rotation; a client that has enough does not hold up those behind it."""
        while True:
            first = next((first for first in self._firsts() if not self._has_enough(*first)), None)
            if first is None or not self._may_start(*first):
                return
            client, turns = first
            queue = self._queues[client]
            admitted = queue.popleft().admitted
            if not queue:
                del self._queues[client]
            elif not admitted.done():
                self._queues.move_to_end(client)
            if not admitted.done():
                self._start(client, turns)
                admitted.set_result(None)

    def _start(self, client: str, turns: int) -> None:
        self.running += turns
        self._running[client] += turns
        self._idle.clear()

    def _end(self, client: str, turns: int) -> None:
        self.running -= turns
        self._running[client] -= turns
        if not self._running[client]:
            del self._running[client]
        self._admit_next()
        if self.running == 0:
            self._idle.set()


class Place:
    """A place among the turns that run, for as long as the context lasts.

    A class, since a generator in its place took each request 4 µs more.
    """

    def __init__(self, admission: Admission, client: str, turns: int, size: Callable[[], int]) -> None:
        self._admission = admission
        self._client = client
        self._turns = turns
        self._size = size

    async def __aenter__(self) -> float:
        """Wait for the place; return the seconds that it took."""
        return await self._admission.enter(self._client, self._turns, self._size)

    async def __aexit__(self, *_: object) -> None:
        """Make room."""
        self._admission.leave(self._client, self._turns)


def _closing() -> BackendUnavailable:
    return BackendUnavailable("The gateway is shutting down.", code="shutting_down", retry_after=COME_BACK_S)
