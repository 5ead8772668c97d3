"""The last requests, in memory, and those who watch them arrive. Of a request there is what its log line has.

Of more of them there are the figures: errors by code, and how long the model and the whole answer took.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, overload

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


class Figures(NamedTuple):
    """What is counted of a request."""

    client: str | None
    model: str
    error: str | None
    """The code of its error, or how it ended, unless that was well."""
    first_ms: float | None
    total_ms: float | None
    """Of answers that came to their end."""


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
        """Return the requests that ended since the last call; waits for one, but not for longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        if self._unread:
            await asyncio.sleep(TOGETHER_S)
        self._wake.clear()
        told = list(self._unread)
        self._unread.clear()
        return told


class RecentRequests:
    """The last requests of clients; those of the page itself are left out, but for its turns."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._since = now()
        self._last: deque[JsonObject] = deque(maxlen=MOST_REQUESTS)
        self._counted: deque[Figures] = deque(maxlen=MOST_COUNTED)
        self._watchers: set[Watcher] = set()

    def note(self, context: RequestContext, outcome: Outcome, ended_at: float) -> None:
        """Add a request that has ended."""
        entry = _entry(context, outcome, ended_at, self._now())
        self._last.append(entry)
        self._counted.append(_figures(context, outcome, ended_at))
        for watcher in self._watchers:
            watcher.tell(entry)

    def seen_by(self, client: str | None) -> list[JsonObject]:
        """Return the last requests, newest last: of one client, or of all."""
        return [entry for entry in self._last if client in (None, entry["client"])]

    def figures(self, client: str | None) -> JsonObject:
        """Return errors by code and latencies by model: of one client, or of all."""
        counted = [each for each in self._counted if client in (None, each.client)]
        errors = Counter(each.error for each in counted if each.error is not None)
        by_model: dict[str, list[Figures]] = {}
        for each in counted:
            if each.total_ms is not None or each.first_ms is not None:
                by_model.setdefault(each.model, []).append(each)
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
                    "total_ms": _percentiles([each.total_ms for each in found if each.total_ms is not None]),
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


def _entry(context: RequestContext, outcome: Outcome, ended_at: float, now: float) -> JsonObject:
    usage, started = context.usage, context.started_at
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
        "first_output_ms": _ms(started, context.first_output_at),
        "total_ms": _ms(started, ended_at),
        "waits": dict[str, Json](_waits(context, ended_at)),
    }


def _waits(context: RequestContext, ended_at: float) -> Iterator[tuple[str, float]]:
    """Yield what a request waited for, one after another, and how long; the last one until its end."""
    names = ("read", "queue", "thread", "provider", "stream")
    ends = (context.queued_at, context.admitted_at, context.served_at, context.first_output_at)
    began = context.started_at
    for name, at in zip(names, ends, strict=False):
        if at is None:
            yield name, _ms(began, ended_at)
            return
        yield name, _ms(began, at)
        began = at
    yield names[-1], _ms(began, ended_at)


def _figures(context: RequestContext, outcome: Outcome, ended_at: float) -> Figures:
    well = outcome in ("ok", "client_gone")
    return Figures(
        client=None if context.client is None else context.client.name,
        model=context.codex_model or "",
        error=None if well else context.error_code or outcome,
        first_ms=_ms(context.started_at, context.first_output_at),
        total_ms=_ms(context.started_at, ended_at) if outcome == "ok" and context.served_by is not None else None,
    )


def _percentiles(values: Sequence[float]) -> Json:
    """Return the value that so many per cent of the values are not above."""
    if not values:
        return None
    ranked = sorted(values)
    return {f"p{percent}": ranked[-(-len(ranked) * percent // 100) - 1] for percent in PERCENTILES}


@overload
def _ms(start: float, end: float) -> float: ...
@overload
def _ms(start: float, end: float | None) -> float | None: ...
def _ms(start: float, end: float | None) -> float | None:
    return None if end is None else round((end - start) * 1000, 1)
