"""The last requests, in memory, and those who watch them arrive. Of a request there is what its log line has."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator

from turnbridge.turn.items import Json, JsonObject
from turnbridge.web.middleware.observability import MODEL_NAME_LIMIT, Outcome, RequestContext

MOST_REQUESTS = 50
# A watcher that is this far behind is sent all of them anew.
MOST_UNREAD = 200


class Watcher:
    """Someone who is told of each request that ends."""

    def __init__(self) -> None:
        self._unread: deque[JsonObject] = deque()
        self._wake = asyncio.Event()
        self.lost = False
        """Whether requests were dropped since the last call."""

    def tell(self, entry: JsonObject) -> None:
        """Keep a request until it is asked for."""
        if len(self._unread) >= MOST_UNREAD:
            self._unread.clear()
            self.lost = True
        self._unread.append(entry)
        self._wake.set()

    async def next(self, within_s: float) -> list[JsonObject]:
        """Return the requests that ended since the last call; waits for one, but not for longer than this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        self._wake.clear()
        told = list(self._unread)
        self._unread.clear()
        return told


class RecentRequests:
    """The last requests of clients; those of the page itself are left out, but for its turns."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._last: deque[JsonObject] = deque(maxlen=MOST_REQUESTS)
        self._watchers: set[Watcher] = set()

    def note(self, context: RequestContext, outcome: Outcome, ended_at: float) -> None:
        """Add a request that has ended."""
        entry = _entry(context, outcome, ended_at, self._now())
        self._last.append(entry)
        for watcher in self._watchers:
            watcher.tell(entry)

    def seen_by(self, client: str | None) -> list[JsonObject]:
        """Return the last requests, newest last: of one client, or of all."""
        return [entry for entry in self._last if client in (None, entry["client"])]

    @property
    def watchers(self) -> int:
        """Return how many watch."""
        return len(self._watchers)

    @contextlib.contextmanager
    def watched(self) -> Iterator[Watcher]:
        """Tell a watcher of all requests while the context lasts."""
        watcher = Watcher()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)


def _entry(context: RequestContext, outcome: Outcome, ended_at: float, now: float) -> JsonObject:
    usage, started = context.usage, context.started_at
    first = None if context.first_output_at is None else round((context.first_output_at - started) * 1000, 1)
    tokens: Json = (
        None
        if usage is None
        else {"input": usage.input, "cached": usage.cached, "output": usage.output, "reasoning": usage.reasoning}
    )
    return {
        "id": context.request_id,
        "time": round(now, 3),
        "client": None if context.client is None else context.client.name,
        "agent": context.agent,
        "page": context.from_page,
        "route": f"{context.method} {context.route}",
        "model": None if context.model is None else context.model[:MODEL_NAME_LIMIT],
        "served": context.served_by,
        "stream": context.stream,
        "status": context.status,
        "outcome": outcome,
        "error": context.error_code,
        "tokens": tokens,
        "first_output_ms": first,
        "total_ms": round((ended_at - started) * 1000, 1),
    }
