"""Legs that replicas on one store share: what the model said up to calls that any of them may get the outputs of.

A leg is written in the background when its turn is parked, before the client hears of its calls. It costs the answer
no time. The replica that gets the outputs replays the leg, and tells the holder to interrupt its parked turn.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import structlog

from turnbridge.engine.kept_threads import Leg
from turnbridge.engine.sharing import LegLimits, LegRecord, Peers, SharedRunStore
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.items import Item, JsonObject, size

log = structlog.get_logger(__name__)

# Clients answer calls within seconds or minutes. Parked turns live for a quarter of this.
LIFETIME_S = 3600.0
# As many as a gateway remembers in memory.
LIMITS = LegLimits(legs=4096, size=64 * 2**20)
# Some models write whole files in their calls. A larger leg is replayed from the client's own history.
MOST_LEG_CHARACTERS = 4 * 2**20
# What may wait for a slow store.
MOST_WAITING_CHARACTERS = 16 * 2**20
# An owner's legs are counted once in so many that are written here, since that reads all of them.
LEGS_PER_TRIM = 64
# A client may bring the outputs to another replica sooner than the leg is written, which takes milliseconds. Longer
# than all of this waits only a client whose leg was lost, or is of another gateway.
LOOK_AGAIN_S = (0.01, 0.02, 0.04, 0.08, 0.15)

LET_GO = "let_go"


class SharedLegs:
    """Writes the legs of this replica, and finds those of others."""

    def __init__(
        self,
        store: SharedRunStore,
        peers: Peers,
        encode: Callable[[Sequence[Item]], Sequence[JsonObject]],
        alone: Callable[[], bool],
    ) -> None:
        """`alone` tells whether there is no other replica."""
        self._store = store
        self._alone = alone
        self._peers = peers
        self._encode = encode
        self._waiting: list[tuple[str, Leg]] = []
        self._waiting_characters = 0
        self._arrived = asyncio.Event()
        self._untrimmed: Counter[str] = Counter()
        self.counts: Counter[str] = Counter(kept=0, lost=0, found=0)
        """How many were written, could not be written, and were found for a request that another replica began."""

    def share(self, client: str, leg: Leg) -> None:
        """Write a leg soon."""
        characters = size(leg.items)
        if characters > MOST_LEG_CHARACTERS or self._waiting_characters + characters > MOST_WAITING_CHARACTERS:
            self.counts["lost"] += 1
            return
        self._waiting.append((client, leg))
        self._waiting_characters += characters
        self._arrived.set()

    async def write(self) -> None:
        """Write legs as they come, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch, self._waiting, self._waiting_characters = self._waiting, [], 0
            try:
                await self._write(batch)
                self.counts["kept"] += len(batch)
            except GatewayError as error:
                # The store's breaker has warned already, if it is the store. Replays do without.
                log.debug("legs_not_shared", reason=error.message)
                self.counts["lost"] += len(batch)

    async def _write(self, batch: Sequence[tuple[str, Leg]]) -> None:
        # Of two with the same call, the later one counts.
        legs = {
            (client, leg.shown[0]): LegRecord(
                owner=client,
                call_id=leg.shown[0],
                holder=self._peers.id,
                items=self._encode((*leg.items, *leg.presets)),
            )
            for client, leg in batch
        }
        await self._store.keep_legs(list(legs.values()), LIFETIME_S)
        self._untrimmed.update(client for client, _ in legs)
        for client in [client for client, _ in batch if self._untrimmed[client] >= LEGS_PER_TRIM]:
            del self._untrimmed[client]
            await self._store.trim_legs(client, LIMITS)

    async def find(self, client: str, call_ids: Sequence[str], awaited: str | None) -> Sequence[LegRecord]:
        """Return the legs of these calls that replicas have written.

        `awaited` is the call whose outputs have just come. Its leg may still be on its way into the store, so it is
        waited for, and its holder is told to interrupt the turn.
        """
        found = await self._store.parked_legs(client, call_ids)
        if awaited in call_ids and not self._alone():
            for pause in LOOK_AGAIN_S:
                if any(record.call_id == awaited for record in found):
                    break
                await asyncio.sleep(pause)
                found = await self._store.parked_legs(client, call_ids)
        self.counts["found"] += len(found)
        for record in found:
            if record.call_id == awaited and record.holder != self._peers.id:
                self._peers.tell(record.holder, (LET_GO, record.owner, record.call_id))
        return found
