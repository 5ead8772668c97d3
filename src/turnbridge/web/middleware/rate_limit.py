"""How many requests a key may make in a time, such as `60/minute`, or several such limits at once.

The counts of the moving windows live in this process, or in a Redis that replicas share. While that Redis cannot be
reached, each replica counts for itself.
"""

import asyncio
import math
import time
from dataclasses import dataclass, replace

import structlog
from limits import RateLimitItem, parse_many
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.storage.redis.redispy import RedispyBridge
from limits.aio.strategies import MovingWindowRateLimiter
from limits.errors import StorageError
from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.turn.errors import RateLimited
from turnbridge.web.middleware.access_log import context_of
from turnbridge.web.middleware.auth import client_of

IN_MEMORY = "memory"

RATE_HEADERS = ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")

STORAGE_PATIENCE_S = 1.0
"""A Redis in the same network answers within milliseconds; a request must not wait long for one that does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a client stands with one limit."""

    limit: RateLimitItem
    remaining: int
    frees_in_s: float
    """When the next place comes free."""
    refused: bool = False

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return OpenAI's headers about it."""
        values = (str(self.limit.amount), str(self.remaining), duration(self.frees_in_s))
        return [(name.encode(), value.encode()) for name, value in zip(RATE_HEADERS, values, strict=True)]


class RequestRates:
    """The limits, and what every client has used of them."""

    def __init__(self, limits: str, storage: str = IN_MEMORY) -> None:
        self._limits = parse_many(limits)
        self._own = MovingWindowRateLimiter(MemoryStorage())
        self._redis = None if storage == IN_MEMORY else _redis_storage(storage)
        self._shared = None if self._redis is None else MovingWindowRateLimiter(self._redis)
        self._reachable = True
        self._log = structlog.get_logger()

    async def take(self, client: str) -> Standing:
        """Count a request, unless a limit refuses it, and return how the client stands with its tightest limit."""
        if self._shared is None:
            return await self._take(self._own, client)
        try:
            async with asyncio.timeout(STORAGE_PATIENCE_S):
                standing = await self._take(self._shared, client)
        except (StorageError, TimeoutError) as error:
            if self._reachable:
                self._log.warning("rate_limit_storage_unreachable", consequence="counting alone", exc_info=error)
            self._reachable = False
            return await self._take(self._own, client)
        if not self._reachable:
            self._log.info("rate_limit_storage_reachable")
        self._reachable = True
        return standing

    async def aclose(self) -> None:
        """Close the connections to Redis."""
        if self._redis is not None and isinstance(self._redis.bridge, RedispyBridge):
            await self._redis.bridge.storage.aclose()

    async def _take(self, windows: MovingWindowRateLimiter, client: str) -> Standing:
        standings = await self._standings(windows, client)
        # All are looked at before any counts, so that what one limit refuses is not charged to another.
        if all(standing.remaining for standing in standings):
            if await self._count(windows, client):
                tightest = min(standings, key=lambda standing: (standing.remaining, -standing.frees_in_s))
                return replace(tightest, remaining=tightest.remaining - 1)
            # Somebody else took the last place in between.
            standings = await self._standings(windows, client)
        return replace(max(standings, key=lambda standing: (not standing.remaining, standing.frees_in_s)), refused=True)

    async def _count(self, windows: MovingWindowRateLimiter, client: str) -> bool:
        for limit in self._limits:
            if not await windows.hit(limit, client):
                return False
        return True

    async def _standings(self, windows: MovingWindowRateLimiter, client: str) -> list[Standing]:
        standings = []
        for limit in self._limits:
            resets_at, remaining = await windows.get_window_stats(limit, client)
            window_s = limit.get_expiry()
            # The window of a client that has used nothing begins with this request.
            left_s = resets_at - time.time() if remaining < limit.amount else window_s
            frees_in_s = min(max(left_s, 0), window_s)
            standings.append(Standing(limit=limit, remaining=max(remaining, 0), frees_in_s=frees_in_s))
        return standings


class LimitRate:
    """Lets a request pass while its key is within the limits, and tells every client how it stands."""

    def __init__(self, app: ASGIApp, *, rates: RequestRates) -> None:
        self._app = app
        self._rates = rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or raise `RateLimited`."""
        # Redis need not know the keys themselves.
        client = client_of(scope)
        standing = await self._rates.take(client)
        context_of(scope).response_headers.extend(standing.headers())
        if standing.refused:
            raise RateLimited(
                f"Rate limit reached for this key: {_in_words(standing.limit)}. "
                f"Try again in {duration(standing.frees_in_s)}.",
                retry_after=standing.frees_in_s,
            )
        await self._app(scope, receive, send)


def duration(seconds: float) -> str:
    """Return a time as OpenAI writes it: `20ms`, `1.5s`, `6m0s`, `1h0m0s`."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{larger}{rest / 1000:g}s"


def _in_words(limit: RateLimitItem) -> str:
    unit = limit.GRANULARITY.name
    window = unit if limit.multiples == 1 else f"{limit.multiples} {unit}s"
    return f"{limit.amount} {'request' if limit.amount == 1 else 'requests'} per {window}"


def _redis_storage(url: str) -> RedisStorage:
    return RedisStorage(f"async+{url}", implementation="redispy", key_prefix="turnbridge", wrap_exceptions=True)
