"""The last requests, in memory, and those who watch them arrive. Of a request there is what its log line has.

Of more of them there are the figures: errors by code, and how long the model and the whole answer took.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from turnbridge.turn.events import Usage
from turnbridge.turn.items import Json, JsonObject
from turnbridge.web.middleware.observability import MODEL_NAME_LIMIT, Outcome, RequestContext

MOST_REQUESTS = 50
# A watcher that is this far behind is sent all of them anew.
MOST_UNREAD = 200
# Requests that end within this time are told together: one by one, each cost a turn 50 µs.
TOGETHER_S = 0.2
# Requests in the figures. To sort so many numbers takes half a millisecond.
MOST_COUNTED = 2000
PERCENTILES = (50, 90, 99)


class Seen(NamedTuple):
    """What is kept of a request that has ended. What is shown of it is made when somebody looks."""

    at: float
    """When it ended, by the clock of the system; all other times are by the request's own."""
    id: str
    client: str | None
    agent: str
    page: bool
    method: str
    route: str
    model: str | None
    """As the client names it, or the beginning of that: it may be as long as a body."""
    codex_model: str | None
    served: str | None
    stream: bool
    status: int | None
    outcome: Outcome
    error: str | None
    usage: Usage | None
    started_at: float
    queued_at: float | None
    admitted_at: float | None
    served_at: float | None
    first_output_at: float | None
    ended_at: float

    def entry(self) -> JsonObject:
        """Return it as the page shows it."""
        usage = self.usage
        tokens: Json = (
            None
            if usage is None
            else {"input": usage.input, "cached": usage.cached, "output": usage.output, "reasoning": usage.reasoning}
        )
        return {
            "id": self.id,
            "time": round(self.at, 3),
            "client": self.client,
            "agent": self.agent,
            "page": self.page,
            "route": f"{self.method} {self.route}",
            "model": self.model,
            "served": self.served,
            "stream": self.stream,
            "status": self.status,
            "outcome": self.outcome,
            "error": self.error,
            "tokens": tokens,
            "first_output_ms": self.first_ms,
            "total_ms": _ms(self.started_at, self.ended_at),
            "waits": dict[str, Json](self._waits()),
        }

    def _waits(self) -> Iterator[tuple[str, float]]:
        """Yield what a request waited for, one after another, and how long; the last one until its end."""
        names = ("read", "queue", "thread", "provider", "stream")
        ends = (self.queued_at, self.admitted_at, self.served_at, self.first_output_at)
        began = self.started_at
        for name, at in zip(names, ends, strict=False):
            if at is None:
                yield name, _ms(began, self.ended_at)
                return
            yield name, _ms(began, at)
            began = at
        yield names[-1], _ms(began, self.ended_at)

    @property
    def first_ms(self) -> float | None:
        """Return how long the first output took."""
        return None if self.first_output_at is None else _ms(self.started_at, self.first_output_at)

    @property
    def whole_ms(self) -> float | None:
        """Return how long an answer took that came to its end."""
        whole = self.outcome == "ok" and self.served is not None
        return _ms(self.started_at, self.ended_at) if whole else None

    @property
    def failure(self) -> str | None:
        """Return the code of its error, or how it ended, unless that was well."""
        return None if self.outcome in ("ok", "client_gone") else self.error or self.outcome


class Watcher:
    """Someone who is told of each request that ends."""

    def __init__(self) -> None:
        self._unread: deque[Seen] = deque()
        self._wake = asyncio.Event()
        self.lost = False
        """Whether requests were dropped since the last call."""

    def tell(self, seen: Seen) -> None:
        """Keep a request until it is asked for."""
        if len(self._unread) >= MOST_UNREAD:
            self._unread.clear()
            self.lost = True
        self._unread.append(seen)
        self._wake.set()

    async def next(self, within_s: float) -> list[JsonObject]:
        """Return the requests that ended since the last call; waits for one, but not for longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        if self._unread:
            await asyncio.sleep(TOGETHER_S)
        self._wake.clear()
        told = [seen.entry() for seen in self._unread]
        self._unread.clear()
        return told


class RecentRequests:
    """The last requests of clients; those of the page itself are left out, but for its turns."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._since = now()
        self._seen: deque[Seen] = deque(maxlen=MOST_COUNTED)
        self._watchers: set[Watcher] = set()

    def note(self, context: RequestContext, outcome: Outcome, ended_at: float) -> None:
        """Add a request that has ended."""
        seen = Seen(
            self._now(),
            context.request_id,
            None if context.client is None else context.client.name,
            context.agent,
            context.from_page,
            context.method,
            context.route,
            None if context.model is None else context.model[:MODEL_NAME_LIMIT],
            context.codex_model,
            context.served_by,
            context.stream,
            context.status,
            outcome,
            context.error_code,
            context.usage,
            context.started_at,
            context.queued_at,
            context.admitted_at,
            context.served_at,
            context.first_output_at,
            ended_at,
        )
        self._seen.append(seen)
        for watcher in self._watchers:
            watcher.tell(seen)

    def seen_by(self, client: str | None) -> list[JsonObject]:
        """Return the last requests, newest last: of one client, or of all."""
        newest = (seen for seen in reversed(self._seen) if client in (None, seen.client))
        return [seen.entry() for seen in islice(newest, MOST_REQUESTS)][::-1]

    def figures(self, client: str | None) -> JsonObject:
        """Return errors by code and latencies by model: of one client, or of all."""
        counted = [each for each in self._seen if client in (None, each.client)]
        errors = Counter(each.failure for each in counted if each.failure is not None)
        by_model: dict[str, list[Seen]] = {}
        for each in counted:
            if each.whole_ms is not None or each.first_ms is not None:
                by_model.setdefault(each.codex_model or "", []).append(each)
        return {
            "since": round(self._since),
            "requests": len(counted),
            "most_requests": MOST_COUNTED,
            "errors": [{"code": code, "count": count} for code, count in errors.most_common()],
            "latencies": [
                {
                    "model": model,
                    "requests": len(found),
                    "first_output_ms": _percentiles([each.first_ms for each in found if each.first_ms is not None]),
                    "total_ms": _percentiles([each.whole_ms for each in found if each.whole_ms is not None]),
                }
                for model, found in sorted(by_model.items(), key=lambda each: -len(each[1]))
            ],
        }

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


def _percentiles(values: Sequence[float]) -> Json:
    """Return the value that so many per cent of the values are not above."""
    if not values:
        return None
    ranked = sorted(values)
    return {f"p{percent}": ranked[-(-len(ranked) * percent // 100) - 1] for percent in PERCENTILES}


def _ms(start: float, end: float) -> float:
    return round((end - start) * 1000, 1)
