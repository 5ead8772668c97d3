"""How many turns run at once, who waits for their turn, and who is told to come back."""

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass

from turnbridge.turn.errors import BackendUnavailable, RateLimited

# A place in the queue comes free as soon as any turn ends; nobody knows when, so soon is the best guess.
COME_BACK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRules:
    """The operator's bounds."""

    turns: int
    waiting: int
    patience_s: float
    turns_per_client: int | None = None
    """How many turns one client may have, running or waiting."""


@dataclass(eq=False, slots=True)
class _Waiting:
    turns: int
    admitted: asyncio.Future[None]


class Admission:
    """Lets turns in up to a number, and then in a queue that serves every client in rotation."""

    def __init__(self, rules: AdmissionRules) -> None:
        self._rules = rules
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._shares: Counter[str] = Counter()
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
        return min(turns, self._rules.turns, self._rules.turns_per_client or turns)

    def admitted(self, client: str, turns: int = 1) -> "Place":
        """Return a context in which `turns` may run."""
        return Place(self, client, turns)

    async def enter(self, client: str, turns: int) -> float:
        """Start these turns as soon as they may run; return the seconds that it took."""
        self._take_share(client, turns)
        try:
            return await self._start_when_possible(client, min(turns, self._rules.turns))
        except BaseException:
            self._give_share_back(client, turns)
            raise

    def leave(self, client: str, turns: int) -> None:
        """Make room: these turns are over."""
        self._end(min(turns, self._rules.turns))
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

    async def _start_when_possible(self, client: str, turns: int) -> float:
        if self.closed:
            raise _closing()
        if not self._queues and self.running + turns <= self._rules.turns:
            self._start(turns)
            return 0.0
        if self.waiting >= self._rules.waiting:
            raise RateLimited(
                f"{self.running} turns are running and {self.waiting} requests wait already. Try again later.",
                code="queue_full",
                retry_after=COME_BACK_S,
            )
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting = _Waiting(turns, loop.create_future())
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
            self._end(waiting.turns)

    def _admit_next(self) -> None:
        while self._queues:
            client, queue = next(iter(self._queues.items()))
            waiting = queue[0]
            gone = waiting.admitted.done()
            if not gone and self.running + waiting.turns > self._rules.turns:
                return
            queue.popleft()
            if not queue:
                del self._queues[client]
            elif not gone:
                self._queues.move_to_end(client)
            if not gone:
                self._start(waiting.turns)
                waiting.admitted.set_result(None)

    def _start(self, turns: int) -> None:
        self.running += turns
        self._idle.clear()

    def _end(self, turns: int) -> None:
        self.running -= turns
        self._admit_next()
        if self.running == 0:
            self._idle.set()


class Place:
    """A place among the turns that run, for as long as the context lasts.

    A class, since a generator in its place took each request 4 µs more.
    """

    def __init__(self, admission: Admission, client: str, turns: int) -> None:
        self._admission = admission
        self._client = client
        self._turns = turns

    async def __aenter__(self) -> float:
        """Wait for the place; return the seconds that it took."""
        return await self._admission.enter(self._client, self._turns)

    async def __aexit__(self, *_: object) -> None:
        """Make room."""
        self._admission.leave(self._client, self._turns)


def _closing() -> BackendUnavailable:
    return BackendUnavailable("The gateway is shutting down.", code="shutting_down", retry_after=COME_BACK_S)
