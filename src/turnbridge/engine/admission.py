"""The admission queue: how many turns run at once, which requests wait, and which are rejected.

No client starves another: requests are admitted in rotation of their clients, a full queue rejects the client that
holds most of it, and of several clients none may run all turns at once (docs/decisions/0018-fair-shares.md).
"""

import asyncio
import contextlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from turnbridge.turn.errors import BackendUnavailable, GatewayError, InvalidApiKey, RateLimited

# Any turn that ends frees a place in the queue, at an unknown time: retrying soon is the best advice.
COME_BACK_S = 2.0
# How many characters all waiting requests may hold, with histories, tools and images: they are in memory.
MOST_WAITING_CHARACTERS = 256 * 2**20
# How long clients with open connections have to send one more request, whose answer says `connection: close`.
HAND_OVER_S = 2.0
# A balancer asks each second whether this gateway is ready, and believes the second no; then it sends nothing more.
LEFT_ALONE_S = 3.0
# Of several clients, none may run the last of so many turns: a turn may last for an hour, a queue does not.
KEPT_FREE_OF = 8


@dataclass(eq=False, slots=True)
class Place:
    """A request's place, first in the queue and then among the running turns; it is held while the context lasts.

    A class, since a generator in its place took each request 4 µs more.
    """

    admission: "Admission"
    client: str
    turns: int
    """How many running turns it counts as."""
    most: int | None
    """How many turns its client may have, running or waiting."""
    measure: Callable[[], int]
    """Returns how many characters the request holds; called if it has to wait."""
    size: int = 0
    share: int = 0
    """How much of that limit it takes."""
    admitted: asyncio.Future[None] = field(init=False)

    async def __aenter__(self) -> float:
        """Wait until the turns may run; return the seconds that it took."""
        return await self.admission.enter(self)

    async def __aexit__(self, *_: object) -> None:
        """Free the place."""
        self.admission.leave(self)


class Admission:
    """Admits `turns`, and then up to `waiting` requests into a queue that serves the clients in rotation."""

    most_waiting_characters = MOST_WAITING_CHARACTERS

    def __init__(
        self,
        *,
        turns: int,
        waiting: int,
        patience_s: float,
        turns_per_client: int | None = None,
        clients: Callable[[], int] = lambda: 1,
        on_wait: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`clients` tells how many there are now; `on_wait` is told how many seconds each request has waited."""
        self._turns = turns
        self._most_waiting = waiting
        self._patience_s = patience_s
        self._on_wait = on_wait
        # How many turns a client without a limit of its own may have, running or waiting.
        self._client_turns = turns_per_client
        self._clients = clients
        self._queues: OrderedDict[str, deque[Place]] = OrderedDict()
        self._shares: defaultdict[str, int] = defaultdict(int)
        self._running: defaultdict[str, int] = defaultdict(int)
        self._idle = asyncio.Event()
        self._idle.set()
        self.barred: frozenset[str] = frozenset()
        """Clients whose requests are rejected, even if they came before that was known."""
        self.leaving = False
        """Whether the gateway is about to stop, even if requests are still admitted."""
        self.closed = False
        """Whether all further requests are rejected."""
        self._last_asked = 0.0
        """When a request came last to a gateway that leaves, by the loop's clock."""
        self.running = 0

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return sum(map(len, self._queues.values()))

    @property
    def _client_running(self) -> int:
        """Return how many turns of one client may run."""
        return self._turns - (self._turns // KEPT_FREE_OF if self._clients() > 1 else 0)

    def at_once(self, turns: int, most: int | None = None) -> int:
        """Return how many turns of one request may run at the same time; see `admitted` for `most`."""
        return turns if turns == 1 else min(turns, self._client_running, most or self._client_turns or turns)

    def admitted(self, client: str, turns: int = 1, size: Callable[[], int] = int, most: int | None = None) -> Place:
        """Return a context in which `turns` may run; `size` returns how many characters the request holds.

        `most` is how many turns this client may have, if it has a limit of its own.
        """
        if self.leaving:
            self._last_asked = asyncio.get_running_loop().time()
        most = most or self._client_turns
        turns_at_once = turns if turns == 1 else min(turns, self._client_running)
        return Place(self, client, turns_at_once, most, size, share=min(turns, most or 0))

    async def enter(self, place: Place) -> float:
        """Start the turns of a place as soon as they may run; return the seconds that it took."""
        self._check(place)
        self._shares[place.client] += place.share
        if self._may_start(place) and not self._overtakes(place):
            self._start(place)
            self._on_wait(0.0)
            return 0.0
        try:
            return await self._wait(place)
        except BaseException:
            subtract(self._shares, place.client, place.share)
            raise

    def _check(self, place: Place) -> None:
        """Raise the reason why a place may not even wait, if there is one."""
        held = self._shares.get(place.client, 0)
        if place.client in self.barred:
            raise key_ended()
        if place.most is not None and held + place.share > place.most:
            raise too_many(place.most, held)
        if self.closed:
            raise _closing()

    def leave(self, place: Place) -> None:
        """End the turns of a place."""
        self._end(place)
        subtract(self._shares, place.client, place.share)

    def close(self) -> None:
        """Reject all requests, also those that wait."""
        self.leaving = self.closed = True
        self._empty(list(self._queues), _closing)

    def bar(self, clients: frozenset[str]) -> None:
        """Reject all requests of these clients, also those that wait; and of no others that were barred before."""
        self.barred = clients
        self._empty([client for client in self._queues if client in clients], key_ended)

    def _empty(self, clients: list[str], error: Callable[[], GatewayError]) -> None:
        for client in clients:
            for place in self._queues.pop(client):
                if not place.admitted.done():
                    place.admitted.set_exception(error())

    async def handed_over(self, within_s: float) -> bool:
        """Admit on what comes over open connections, until no turn runs; tell whether that happened in time.

        Answers tell their clients meanwhile to open another connection, which is the successor's.
        """
        self.leaving = True
        try:
            async with asyncio.timeout(within_s):
                await asyncio.sleep(min(HAND_OVER_S, within_s / 2))
                await self._idle.wait()
        except TimeoutError:
            return False
        return self.running == 0

    async def left_alone(self, within_s: float) -> None:
        """Admit on until the balancer sends requests elsewhere, for so long at most."""
        loop = asyncio.get_running_loop()
        self.leaving = True
        self._last_asked = loop.time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while (rest_s := self._last_asked + LEFT_ALONE_S - loop.time()) > 0:  # noqa: ASYNC110
                    await asyncio.sleep(rest_s)

    async def drained(self, within_s: float) -> bool:
        """Wait until no turn runs; tell whether that happened in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        return self.running == 0

    async def _wait(self, place: Place) -> float:
        """Wait in the queue until the turns of a place are started; return the seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        place.size, place.admitted = place.measure(), loop.create_future()
        self._make_room(place)
        self._queues.setdefault(place.client, deque()).append(place)
        try:
            async with asyncio.timeout(self._patience_s):
                await place.admitted
        except BaseException as error:
            self._give_up(place)
            if isinstance(error, TimeoutError):
                raise BackendUnavailable(
                    f"No turn came free within {self._patience_s:g} seconds. Try again later.",
                    code="queue_timeout",
                    retry_after=COME_BACK_S,
                ) from None
            raise
        finally:
            waited_s = loop.time() - began
            self._on_wait(waited_s)
        return waited_s

    def _give_up(self, place: Place) -> None:
        """Free a place in the queue, or among the running turns if it was admitted at the same moment."""
        if place in self._queues.get(place.client, ()):
            self._queues[place.client].remove(place)
            self._forget_if_empty(place.client)
            # Requests behind it may be small enough for the turns that it waited for.
            self._admit_next()
        elif place.admitted.done() and not place.admitted.cancelled() and not place.admitted.exception():
            self._end(place)

    def _make_room(self, place: Place) -> None:
        while self.waiting >= self._most_waiting:
            self._reject_newest(self._held, place, 1)
        while self._queues and sum(map(self._characters, self._queues)) + place.size > self.most_waiting_characters:
            self._reject_newest(self._characters, place, place.size)

    def _reject_newest(self, held: Callable[[str], int], place: Place, added: int) -> None:
        """Reject a request of the client that holds most of a full queue; raises if that is the one of this place."""
        most = max(self._queues, key=held, default=place.client)
        if held(most) <= held(place.client) + added:
            raise self._full()
        rejected = self._queues[most].pop().admitted
        if not rejected.done():
            rejected.set_exception(self._full())
        self._forget_if_empty(most)

    def _held(self, client: str) -> int:
        """Return how many turns of a client run, and how many of its requests wait."""
        return self._running.get(client, 0) + len(self._queues.get(client, ()))

    def _characters(self, client: str) -> int:
        return sum(place.size for place in self._queues.get(client, ()))

    def _forget_if_empty(self, client: str) -> None:
        if not self._queues[client]:
            del self._queues[client]

    def _full(self) -> RateLimited:
        return RateLimited(
            f"{self.running} turns are running and {self.waiting} requests wait already. Try again later.",
            code="queue_full",
            retry_after=COME_BACK_S,
        )

    def _is_at_limit(self, place: Place) -> bool:
        """Tell whether the place's client runs so many turns that it waits for its own to end."""
        # When the second client came, the limit fell, perhaps below what a waiting request asks for.
        running = self._running.get(place.client, 0)
        return running > max(self._client_running - place.turns, 0)

    def _overtakes(self, place: Place) -> bool:
        """Tell whether a request waits for the turns that the place would take."""
        return place.client in self._queues or not all(self._is_at_limit(queue[0]) for queue in self._queues.values())

    def _may_start(self, place: Place) -> bool:
        return self.running + place.turns <= self._turns and not self._is_at_limit(place)

    def _admit_next(self) -> None:
        """Admit requests in rotation; a client at its limit does not hold up those behind it."""
        while True:
            firsts = (queue[0] for queue in self._queues.values())
            place = next((place for place in firsts if not self._is_at_limit(place)), None)
            if place is None or not self._may_start(place):
                return
            self._admit(place)

    def _admit(self, place: Place) -> None:
        """Admit the first request of a client."""
        self._queues[place.client].popleft()
        if not place.admitted.done():
            self._queues.move_to_end(place.client)
            self._start(place)
            place.admitted.set_result(None)
        self._forget_if_empty(place.client)

    def _start(self, place: Place) -> None:
        self.running += place.turns
        self._running[place.client] += place.turns
        self._idle.clear()

    def _end(self, place: Place) -> None:
        self.running -= place.turns
        subtract(self._running, place.client, place.turns)
        self._admit_next()
        if self.running == 0:
            self._idle.set()


def subtract(counts: defaultdict[str, int], client: str, count: int) -> None:
    """Count less for a client, and forget it if nothing is left."""
    if count == counts[client]:
        del counts[client]
    else:
        counts[client] -= count


def too_many(most: int, held: int) -> RateLimited:
    """Return the error of a client that has all the turns that it may have."""
    return RateLimited(
        f"This key may have at most {most} turns running or queued; it has {held}. Try again when one has ended.",
        retry_after=COME_BACK_S,
    )


def key_ended() -> InvalidApiKey:
    """Return the error of what was under way when its key ended."""
    return InvalidApiKey("The API key of this request is not accepted any more: it was revoked or has expired.")


def _closing() -> BackendUnavailable:
    return BackendUnavailable("The gateway is shutting down.", code="shutting_down", retry_after=COME_BACK_S)
