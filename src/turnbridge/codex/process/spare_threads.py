"""Threads that are started ahead of requests.

Starting a thread takes Codex some 8 ms, a quarter of the time to the first token. Clients repeat the same model, tools
and instructions, and until its first item a thread depends on nothing else. So for each kind that was requested twice,
one spare thread is kept while there is room. Clients share the room fairly: the spares of a client with fewer kinds are
not evicted for those of a client with more. A spare that is not used after all is released.
"""

import asyncio
import contextlib
import contextvars
import hashlib
from collections import Counter
from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias, get_args

import msgspec

from turnbridge.codex.process.connection import Connection, decode_answer
from turnbridge.codex.protocol import messages as schema
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.fair_shares import FairShares
from turnbridge.turn.items import JsonObject

START = "thread/start"
# How many kinds have a spare: each takes Codex a megabyte.
MOST_SPARES = 8
# The largest instructions and tools of a spare, as JSON: Codex keeps them in memory.
LARGEST_SPARE_BYTES = 256 * 1024
# How many kinds are counted, to know which of them are requested again.
MOST_KINDS = 256


Fate: TypeAlias = Literal["started", "used", "released"]


class ThreadKind:
    """What a thread is started with; any client may be given a thread of a kind."""

    def __init__(self, client: str, params: JsonObject) -> None:
        self.client = client
        self.params = params
        encoded = msgspec.json.encode(params)
        self.size = len(encoded)
        # A hash, since instructions may be megabytes.
        self.name = hashlib.sha256(encoded).digest()


class SpareThreads:
    """The spare threads of one app-server."""

    fates: ClassVar[Counter[Fate]] = Counter(dict.fromkeys(get_args(Fate), 0))
    """How many were started, used or released by all app-servers of this process."""

    # The instructions and tools of a kind change from time to time; the spare of one that nobody uses is released.
    max_age_s = 600.0

    def __init__(self, connection: Connection, release: Callable[[str], None], *, most: int = MOST_SPARES) -> None:
        """`release` takes the id of a thread that nobody uses; `most` is how many kinds have a spare."""
        self._connection = connection
        self._release = release
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._kinds: dict[bytes, int] = {}
        self._known: FairShares[bytes] = FairShares(most=MOST_KINDS)
        self._spares: dict[bytes, tuple[float, asyncio.Future[msgspec.Raw]]] = {}
        self._ready: FairShares[bytes] = FairShares(most=most)

    def __len__(self) -> int:
        return len(self._spares)

    async def take(self, kind: ThreadKind) -> str:
        """Return the id of an unused thread of this kind."""
        self._kinds[kind.name] = self._kinds.get(kind.name, 0) + 1
        self._known.add(kind.client, kind.name)
        if (evicted := self._known.excess()) is not None:
            self._known.remove(evicted)
            del self._kinds[evicted]
        if kind.name in self._spares and self._uses(kind.name) == 0:
            self._evict(kind.name)
        if (spare := self._remove(kind.name)) is not None:
            # If it could not be started, the next attempt raises the reason.
            with contextlib.suppress(GatewayError):
                thread_id = await self._id(spare)
                self.fates["used"] += 1
                return thread_id
        return await self._id(self._connection.send(START, kind.params))

    def refill_soon(self, kind: ThreadKind) -> None:
        """Refill after the event loop has sent the client what is ready for it."""
        # In an empty context: it does not belong to the request that happens to be served.
        self._loop.call_soon(self.refill, kind, context=contextvars.Context())

    def refill(self, kind: ThreadKind) -> None:
        """Start a spare of this kind if it was requested twice, has none, and there is room."""
        if kind.size > LARGEST_SPARE_BYTES or self._kinds.get(kind.name, 0) < 2 or kind.name in self._spares:
            return
        if not self._make_room(kind):
            return
        with contextlib.suppress(GatewayError):
            self._spares[kind.name] = (self._loop.time(), self._connection.send(START, kind.params))
            self._ready.add(kind.client, kind.name)
            self.fates["started"] += 1

    def _make_room(self, kind: ThreadKind) -> bool:
        """Evict the least used spare of the client with most spares, for a kind that is used twice as often.

        With a lower threshold, kinds that are used equally often would evict each other all the time. A client with
        fewer spares evicts in any case.
        """
        if len(self._spares) < self._most:
            return True
        if not self._spares:
            return False
        least = min(self._spares, key=self._uses)
        if self._uses(least) > 0:
            richest = self._ready.richest()
            least = min(self._ready.entries(richest), key=self._uses)
            poorer = self._ready.held(kind.client) + 1 < self._ready.held(richest)
            if not poorer and self._kinds[kind.name] < 2 * self._uses(least):
                return False
        self._evict(least)
        return True

    def _remove(self, name: bytes) -> "asyncio.Future[msgspec.Raw] | None":
        self._ready.remove(name)
        return self._spares.pop(name, (0.0, None))[1]

    def _evict(self, name: bytes) -> None:
        if (spare := self._remove(name)) is not None:
            spare.add_done_callback(self._release_started)

    def _release_started(self, answer: "asyncio.Future[msgspec.Raw]") -> None:
        with contextlib.suppress(GatewayError):  # What was never started needs no release.
            self._release(decode_answer(answer.result(), START, schema.ThreadStartResult).thread.id)
            self.fates["released"] += 1

    def _uses(self, name: bytes) -> int:
        """Return how often this kind was requested; 0 if its spare has expired."""
        started_at, _ = self._spares[name]
        return self._kinds.get(name, 0) if self._loop.time() - started_at < self.max_age_s else 0

    async def _id(self, answer: asyncio.Future[msgspec.Raw]) -> str:
        return (await self._connection.answered(answer, START, schema.ThreadStartResult)).thread.id
