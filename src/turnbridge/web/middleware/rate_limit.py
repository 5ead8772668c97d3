"""Rate limits per key, such as `60/minute`, with moving windows.

The counts are kept in this process, or in a Redis that replicas share. While Redis cannot be reached, each replica
counts for itself.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import structlog
from limits import RateLimitItem, parse_many
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.storage.redis.redispy import RedispyBridge
from limits.aio.strategies import MovingWindowRateLimiter
from limits.errors import StorageError
from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.turn.clients import Client
from turnbridge.turn.errors import RateLimited
from turnbridge.web.middleware.auth import caller
from turnbridge.web.middleware.observability import context_of

IN_MEMORY = "memory"
# As many as keys are likely to have between them.
CACHED_LIMITS = 1024

RATE_HEADERS = ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of one limit of a client."""

    limit: RateLimitItem
    remaining: int
    frees_in_s: float
    """Until the next request is allowed."""
    refused: bool = False

    def headers(self) -> list[tuple[bytes, bytes]]:
        values = (str(self.limit.amount), str(self.remaining), duration(self.frees_in_s))
        return [(name.encode(), value.encode()) for name, value in zip(RATE_HEADERS, values, strict=True)]


class RequestRates:
    """The limit of clients that have none of their own, and the counts of all clients."""

    def __init__(self, usual: str | None, storage: str = IN_MEMORY, *, timeout_s: float = 1.0) -> None:
        """`timeout_s` is for Redis, which answers within milliseconds: requests must not wait for one that is down."""
        self._usual = parsed_limits(usual)
        self._own = MovingWindowRateLimiter(MemoryStorage())
        self._redis = (
            None
            if storage == IN_MEMORY
            else RedisStorage(
                f"async+{storage}", implementation="redispy", key_prefix="turnbridge", wrap_exceptions=True
            )
        )
        self._shared = None if self._redis is None else MovingWindowRateLimiter(self._redis)
        self._timeout_s = timeout_s
        self._reachable = True
        self._log = structlog.get_logger()

    def of(self, client: Client) -> Sequence[RateLimitItem]:
        """Return the limits of a client."""
        own = client.limits.rate
        return self._usual if own is None else parsed_limits(own)

    async def take(self, client: str, limits: Sequence[RateLimitItem] | None = None) -> Standing:
        """Count a request, unless a limit is exceeded, and return the state of the tightest limit.

        `limits` are the usual ones unless given, and not empty.
        """
        limits = self._usual if limits is None else limits
        if self._shared is None:
            return await _take(self._own, client, limits)
        try:
            async with asyncio.timeout(self._timeout_s):
                standing = await _take(self._shared, client, limits)
        except (StorageError, TimeoutError) as error:
            if self._reachable:
                self._log.warning("rate_limit_storage_unreachable", consequence="counting alone", exc_info=error)
            self._reachable = False
            return await _take(self._own, client, limits)
        if not self._reachable:
            self._log.info("rate_limit_storage_reachable")
        self._reachable = True
        return standing

    async def aclose(self) -> None:
        if self._redis is not None and isinstance(self._redis.bridge, RedispyBridge):
            await self._redis.bridge.storage.aclose()


async def _take(windows: MovingWindowRateLimiter, client: str, limits: Sequence[RateLimitItem]) -> Standing:
    standings = await _standings(windows, client, limits)
    # All limits are checked before any is hit, so that a refused request counts for none.
    if all(standing.remaining for standing in standings):
        if await _count(windows, client, limits):
            tightest = min(standings, key=lambda standing: (standing.remaining, -standing.frees_in_s))
            return replace(tightest, remaining=tightest.remaining - 1)
        # A concurrent request was counted in between.
        standings = await _standings(windows, client, limits)
    return replace(max(standings, key=lambda standing: (not standing.remaining, standing.frees_in_s)), refused=True)


async def _count(windows: MovingWindowRateLimiter, client: str, limits: Sequence[RateLimitItem]) -> bool:
    for limit in limits:
        if not await windows.hit(limit, client):
            return False
    return True


async def _standings(windows: MovingWindowRateLimiter, client: str, limits: Sequence[RateLimitItem]) -> list[Standing]:
    standings = []
    for limit in limits:
        resets_at, remaining = await windows.get_window_stats(limit, client)
        window_s = limit.get_expiry()
        # The window of an unused limit starts with this request.
        left_s = resets_at - time.time() if remaining < limit.amount else window_s
        frees_in_s = min(max(left_s, 0), window_s)
        standings.append(Standing(limit=limit, remaining=max(remaining, 0), frees_in_s=frees_in_s))
    return standings


@lru_cache(maxsize=CACHED_LIMITS)
def parsed_limits(limits: str | None) -> Sequence[RateLimitItem]:
    """Return the limits that a text such as `60/minute;1000/day` has."""
    return parse_many(limits) if limits else ()


class LimitRate:
    """Rejects requests beyond the rate limit, and adds the rate limit headers to responses."""

    def __init__(self, app: ASGIApp, *, rates: RequestRates) -> None:
        self._app = app
        self._rates = rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or raise `RateLimited`."""
        client = caller(scope)
        limits = self._rates.of(client)
        if not limits:
            await self._app(scope, receive, send)
            return
        # The client's id, so that Redis does not contain keys.
        standing = await self._rates.take(client.id, limits)
        context_of(scope).response_headers.extend(standing.headers())
        if standing.refused:
            raise RateLimited(
                f"Rate limit reached for this key: {_in_words(standing.limit)}. "
                f"Try again in {duration(standing.frees_in_s)}.",
                retry_after=standing.frees_in_s,
            )
        await self._app(scope, receive, send)


def duration(seconds: float) -> str:
    """Return a duration in OpenAI's format: `20ms`, `1.5s`, `6m0s`, `1h0m0s`."""
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
