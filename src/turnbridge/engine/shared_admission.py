"""The admission queue of one of several replicas.

Each replica has its queue, with the rules of `admission`; a turn is started once Redis has a slot for it, which all
replicas share. Replicas that wait for a slot get one in turn. While Redis is away, each replica runs its share.
"""

import asyncio
import contextlib
from collections.abc import Callable

from turnbridge.engine.admission import Admission, Place, subtract, too_many
from turnbridge.engine.sharing import SlotLease, TurnSlots, Verdict

# How often the replica asks for a slot while requests wait, unless another replica says that one is free.
POLL_S = 0.1


class SharedAdmission(Admission):
    """Admits turns that all replicas count together."""

    def __init__(
        self,
        slots: TurnSlots,
        *,
        turns: int,
        waiting: int,
        patience_s: float,
        turns_per_client: int | None = None,
        clients: Callable[[], int] = lambda: 1,
        on_wait: Callable[[float], None] = lambda _: None,
    ) -> None:
        super().__init__(
            turns=turns,
            waiting=waiting,
            patience_s=patience_s,
            turns_per_client=turns_per_client,
            clients=clients,
            on_wait=on_wait,
        )
        self._slots = slots
        self._total = turns
        self._leases: dict[Place, SlotLease] = {}
        self._asking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        """Set when something has changed that a waiting request may profit from."""
        slots.on_free.append(self._news.set)

    async def enter(self, place: Place) -> float:
        """Start the turns of a place as soon as they may run; return the seconds that it took."""
        self._follow()
        self._check(place)
        self._shares[place.client] += place.share
        lease = self._leases[place] = self._slots.lease(place.client, place.turns, place.share, place.most)
        try:
            return await self._enter(place, lease)
        except BaseException:
            self._slots.give_back(self._leases.pop(place))
            subtract(self._shares, place.client, place.share)
            raise

    async def _enter(self, place: Place, lease: SlotLease) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        start = self._may_start(place) and not self._overtakes(place)
        verdict = Verdict.QUEUED
        if start or place.most is not None:
            verdict, held = await self._slots.take(
                lease, total=self._turns, of_client=self._client_running, start=start
            )
            if verdict is Verdict.TOO_MANY:
                raise too_many(place.most or 0, held)
            if place.client in self.barred or self.closed:
                super()._check(place)
        if verdict is Verdict.AWAY:
            self._follow()
            self._check_share(place, self._shares[place.client] - place.share)
            start = self._may_start(place) and not self._overtakes(place)
            self._slots.take_alone(lease, started=start)
            verdict = Verdict.STARTED if start else Verdict.QUEUED
        if verdict is Verdict.STARTED:
            self._start(place)
            self._on_wait(waited_s := loop.time() - began)
            return waited_s
        # Once it is in the queue.
        loop.call_soon(self._admit_next)
        return await self._wait(place)

    def leave(self, place: Place) -> None:
        """End the turns of a place."""
        # First, so that the next request for a slot brings the news.
        self._slots.give_back(self._leases.pop(place))
        super().leave(place)

    def _check(self, place: Place) -> None:
        super()._check(place)
        self._check_share(place, self._shares.get(place.client, 0))

    def _check_share(self, place: Place, held: int) -> None:
        """Raise `RateLimited` if a place exceeds this replica's share of its client's turns, of which some are held."""
        if place.most is not None and not self._slots.counted:
            most = self._slots.share(place.most)
            if held + min(place.share, most) > most:
                raise too_many(most, held)

    def _follow(self) -> None:
        """Follow what counts now: all replicas' turns, or this one's share."""
        self._turns = self._total if self._slots.counted else self._slots.share(self._total)

    def _may_start(self, place: Place) -> bool:
        # A share may be smaller than what a request was admitted with.
        room = max(self._turns, place.turns) - self.running
        return place.turns <= room and not self._is_at_limit(place)

    def _admit(self, place: Place) -> None:
        # Called by the rules of one gateway, while nothing counts for all replicas.
        self._slots.take_alone(self._leases[place], started=True)
        super()._admit(place)

    def _admit_next(self) -> None:
        self._follow()
        self._news.set()
        if not self._slots.counted:
            super()._admit_next()
        if self._queues and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        """Ask for slots while requests wait."""
        while self._queues:
            self._news.clear()
            if self._slots.counted:
                await self._ask_for_each()
            else:
                super()._admit_next()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), POLL_S)
            self._follow()

    async def _ask_for_each(self) -> None:
        """Ask for the clients in rotation, until all slots are taken or each client has what it may have."""
        full: set[str] = set()
        while True:
            firsts = (queue[0] for queue in self._queues.values())
            place = next((each for each in firsts if each.client not in full and not self._is_at_limit(each)), None)
            if place is None or not self._may_start(place):
                return
            verdict, _ = await self._slots.take(
                self._leases[place], total=self._turns, of_client=self._client_running, start=True
            )
            if verdict is Verdict.STARTED:
                self._begin(place)
            elif verdict is Verdict.CLIENT_FULL:
                full.add(place.client)
            else:
                return

    def _begin(self, place: Place) -> None:
        """Start a waiting place for which there is a slot, unless it gave up meanwhile."""
        if place in self._queues.get(place.client, ()) and not place.admitted.done():
            self._queues[place.client].remove(place)
            self._queues[place.client].appendleft(place)
            super()._admit(place)
