"""Threads that are started before anybody asks for them.

To start a thread takes Codex some 8 ms, a quarter of the time to a model's first word. Clients ask with the same model,
tools and instructions again and again, and until its first item a thread depends on nothing else. So for what has been
asked for twice, one thread is kept ready, as long as there is room. Clients share that room fairly: nobody's kinds
drive out those of a client that has fewer.
"""

import asyncio
import contextlib
import contextvars
import hashlib

import msgspec

from turnbridge.codex.process.connection import Connection
from turnbridge.codex.protocol import messages as schema
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.fair_shares import FairShares
from turnbridge.turn.items import JsonObject

START = "thread/start"
# How many different kinds of threads are kept ready: each takes Codex a megabyte.
MOST_SPARES = 8
# How large the instructions and tools of a thread that is kept ready may be, as JSON: Codex holds them all the time.
LARGEST_SPARE_BYTES = 256 * 1024
# How many kinds are remembered, to know which of them come again.
MOST_KINDS = 256
# Codex lets go of a thread that nobody has used for half an hour.
OLDEST_S = 600.0


class ThreadKind:
    """What a thread is started with."""

    def __init__(self, client: str, params: JsonObject) -> None:
        self.client = client
        """For whom; any client may be given a thread of this kind."""
        self.params = params
        written = msgspec.json.encode(params)
        self.size = len(written)
        self.name = hashlib.sha256(written).digest()
        """Two kinds are the same if this is. It is short, since it is remembered: instructions may be megabytes."""


class SpareThreads:
    """The spare threads of one app-server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._kinds: dict[bytes, int] = {}
        self._known: FairShares[bytes] = FairShares(most=MOST_KINDS)
        self._spares: dict[bytes, tuple[float, asyncio.Future[msgspec.Raw]]] = {}
        self._ready: FairShares[bytes] = FairShares(most=MOST_SPARES)
        self.unused = 0
        """Threads that were started ahead and given to nobody, also those that are kept no more."""

    def __len__(self) -> int:
        return len(self._spares)

    async def take(self, kind: ThreadKind) -> str:
        """Return the id of a thread of this kind that nobody else has."""
        self._kinds[kind.name] = self._kinds.get(kind.name, 0) + 1
        self._known.add(kind.client, kind.name)
        if (unknown := self._known.excess()) is not None:
            self._known.remove(unknown)
            del self._kinds[unknown]
        started_at, spare = self._forget(kind.name)
        if spare is not None and self._loop.time() - started_at < OLDEST_S:
            self.unused -= 1
            # If it could not be started, the next attempt tells why.
            with contextlib.suppress(GatewayError):
                return await self._started(spare)
        return await self._started(self._start(kind))

    def refill_soon(self, kind: ThreadKind) -> None:
        """Refill once the client has what is ready for it now."""
        # In a context of its own: it is not the doing of the request that happens to be served.
        self._loop.call_soon(self.refill, kind, context=contextvars.Context())

    def refill(self, kind: ThreadKind) -> None:
        """Start a thread of this kind if it is asked for again and again, none is ready, and there is room for it."""
        if kind.size > LARGEST_SPARE_BYTES or self._kinds.get(kind.name, 0) < 2 or kind.name in self._spares:
            return
        if not self._make_room(kind):
            return
        with contextlib.suppress(GatewayError):
            self._spares[kind.name] = (self._loop.time(), self._start(kind))
            self._ready.add(kind.client, kind.name)
            self.unused += 1

    def _make_room(self, kind: ThreadKind) -> bool:
        """Tell whether there is room for one more; of a full stock, the least worth gives way to what is worth twice.

        If less were enough, kinds that come equally often would drive out each other's spares all the time. It is the
        client with most spares that gives way, to one that has fewer in any case.
        """
        if len(self._spares) < MOST_SPARES:
            return True
        least = min(self._spares, key=self._worth)
        if self._worth(least) > 0:
            richest = self._ready.richest()
            least = min(self._ready.entries(richest), key=self._worth)
            poorer = self._ready.held(kind.client) + 1 < self._ready.held(richest)
            if not poorer and self._kinds[kind.name] < 2 * self._worth(least):
                return False
        self._forget(least)
        return True

    def _forget(self, name: bytes) -> "tuple[float, asyncio.Future[msgspec.Raw] | None]":
        self._ready.remove(name)
        return self._spares.pop(name, (0.0, None))

    def _worth(self, name: bytes) -> int:
        """Return how often this kind was asked for; nothing if its spare has grown too old to be used."""
        started_at, _ = self._spares[name]
        return self._kinds.get(name, 0) if self._loop.time() - started_at < OLDEST_S else 0

    def _start(self, kind: ThreadKind) -> asyncio.Future[msgspec.Raw]:
        return self._connection.send(START, kind.params)

    async def _started(self, answer: asyncio.Future[msgspec.Raw]) -> str:
        return (await self._connection.answered(answer, START, schema.ThreadStartResult)).thread.id
