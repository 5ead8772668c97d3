"""Counts what clients use, and how much of their token limits is left.

Usage is counted in memory and written to the store in batches beside the requests: a gateway that is killed loses the
last seconds (docs/decisions/0029-usage.md). With each batch, the sums of clients with limits are read again, since
other gateways on the same store count them, too.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from turnbridge.engine.records import UsageStore
from turnbridge.engine.sharing import Budget, Reservation, SharedStateAway, TokenBudgets
from turnbridge.turn.clients import Client
from turnbridge.turn.errors import GatewayError
from turnbridge.turn.events import Usage
from turnbridge.turn.usage import (
    HOUR_S,
    WINDOW_SECONDS,
    Counts,
    TokenLimit,
    UsageKey,
    Window,
    window_start,
)
from turnbridge.web.middleware.observability import Outcome, RequestContext
from turnbridge.web.middleware.rate_limit import duration

FLUSH_S = 2.0
# Clients that have not asked for a while may have used tokens elsewhere: all sums are read again this often.
RELOAD_S = 60.0
TOKEN_HEADERS = ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens")
FAILED = ("client_error", "server_error", "failed_mid_stream")

log = structlog.get_logger(__name__)


class TokenStanding(NamedTuple):
    """The state of one token limit of a client."""

    limit: TokenLimit
    remaining: int
    resets_in_s: float

    def headers(self) -> list[tuple[bytes, bytes]]:
        values = (str(self.limit.amount), str(self.remaining), duration(self.resets_in_s))
        return [(name.encode(), value.encode()) for name, value in zip(TOKEN_HEADERS, values, strict=True)]


class Meter:
    """The usage that is not stored yet, and the tokens of clients with limits."""

    # Entries that wait for a store that is away: clients times models times hours. Further ones are lost.
    most_waiting = 20_000

    def __init__(
        self,
        store: UsageStore | None,
        clients: Callable[[], Iterable[Client]] = tuple,
        *,
        budgets: TokenBudgets | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`clients` returns all that there are now; `budgets` are those of all replicas."""
        self._store = store
        self.budgets = budgets
        self._clients = clients
        self._now = now
        self._waiting: dict[UsageKey, Counts] = {}
        self._names: dict[str, str] = {}
        self._spent: dict[tuple[str, Window], tuple[int, int]] = {}
        """The beginning of a window, and what a client has used in it."""
        self._asked: set[str] = set()
        self._reload_at = 0.0

    def request_ended(self, context: RequestContext, outcome: Outcome, reservation: Reservation | None = None) -> None:
        """Count a request that asked for an answer."""
        if context.client is not None:
            counts = _counted(context.usage)
            counts.requests, counts.errors = 1, int(outcome in FAILED)
            self._add(context.client, context.codex_model, counts, reservation)

    def turn_ended(self, usage: Usage, model: str | None, client: Client | None) -> None:
        """Count the tokens of a background response, whose request was counted before."""
        if client is not None:
            self._add(client, model, _counted(usage))

    async def reserve(self, client: Client, context: RequestContext, tokens: int) -> TokenStanding | None:
        """Reserve tokens for a request on all replicas, until it ends; return the tightest of its client's limits."""
        standing = self.standing(client)
        if standing is None or self.budgets is None:
            return standing
        budgets = self._budgets(client)
        try:
            reservation, left = await self.budgets.reserve(client.id, budgets, tokens)
        except SharedStateAway:
            left_here = min(self.budgets.share(standing.remaining), standing.remaining)
            return standing._replace(remaining=left_here)

        def ended(context: RequestContext, outcome: Outcome) -> None:
            self.request_ended(context, outcome, reservation)

        context.on_end = ended
        pairs = zip(client.limits.tokens, budgets, left, strict=True)
        return min(
            (TokenStanding(limit, max(rest, 0), budget.ends_in_s) for limit, budget, rest in pairs),
            key=lambda each: (each.remaining, -each.resets_in_s),
        )

    def _budgets(self, client: Client) -> list[Budget]:
        now = self._now()
        found = []
        for limit in client.limits.tokens:
            start, used = self._window(client.id, limit.window, now)
            ends_in_s = math.ceil(start + WINDOW_SECONDS[limit.window] - now)
            found.append(Budget(limit.window, start, ends_in_s, limit.amount, used))
        return found

    def standing(self, client: Client) -> TokenStanding | None:
        """Return the tightest of a client's token limits."""
        if not client.limits.tokens:
            return None
        self._asked.add(client.id)
        now = self._now()
        return min(
            (self._left(client.id, limit, now) for limit in client.limits.tokens),
            key=lambda left: (left.remaining, -left.resets_in_s),
        )

    async def flush(self) -> None:
        """Store what was counted, and read the sums again; raises `GatewayError` if the store cannot be used."""
        if self._store is None:
            return
        batch, names = self._waiting, self._names
        self._waiting, self._names = {}, {}
        if batch:
            try:
                await self._store.add_usage(batch, names)
            except GatewayError:
                self._keep(batch, names)
                raise
        await self._read_sums(self._store)

    async def load(self) -> None:
        """Read what was used before this gateway was started; a store that fails is only logged."""
        try:
            await self.flush()
        except GatewayError as error:
            log.warning("usage_not_read", reason=error.message, consequence="token limits count from now on")

    async def run(self) -> None:
        """Flush from time to time, until cancelled."""
        failing = False
        while self._store is not None:
            try:
                await self.flush()
            except GatewayError as error:
                if not failing:
                    log.warning("usage_not_stored", reason=error.message, consequence="it waits in memory")
                failing = True
            else:
                failing = False
            await asyncio.sleep(FLUSH_S)

    async def aclose(self) -> None:
        """Store what is left."""
        try:
            await self.flush()
        except GatewayError as error:
            log.error("usage_lost", reason=error.message, entries=len(self._waiting))

    def _add(self, client: Client, model: str | None, counts: Counts, reservation: Reservation | None = None) -> None:
        now = self._now()
        key = UsageKey(client.id, int(now) // HOUR_S * HOUR_S, model or "")
        known = self._waiting.get(key)
        if known is not None:
            known.add(counts)
        elif self._store is not None and len(self._waiting) < self.most_waiting:
            self._waiting[key] = counts
        self._names[client.id] = client.name
        for limit in client.limits.tokens:
            start, spent = self._window(client.id, limit.window, now)
            self._spent[client.id, limit.window] = start, spent + counts.input + counts.output
        if self.budgets is not None and client.limits.tokens:
            self.budgets.settle(client.id, reservation, self._budgets(client), counts.input + counts.output)

    def _window(self, client: str, window: Window, now: float) -> tuple[int, int]:
        start = window_start(window, now)
        known, spent = self._spent.get((client, window), (start, 0))
        return start, spent if known == start else 0

    def _left(self, client: str, limit: TokenLimit, now: float) -> TokenStanding:
        start, spent = self._window(client, limit.window, now)
        return TokenStanding(limit, max(limit.amount - spent, 0), start + WINDOW_SECONDS[limit.window] - now)

    def _keep(self, batch: dict[UsageKey, Counts], names: dict[str, str]) -> None:
        """Take back what could not be stored."""
        for key, counts in self._waiting.items():
            if key in batch:
                batch[key].add(counts)
            elif len(batch) < self.most_waiting:
                batch[key] = counts
        self._waiting, self._names = batch, {**names, **self._names}

    async def _read_sums(self, store: UsageStore) -> None:
        """Read what clients with limits have used on all gateways: those that have asked, and at times all."""
        now = self._now()
        everybody = now >= self._reload_at
        wanted: dict[Window, list[str]] = {}
        for client in self._clients():
            for limit in client.limits.tokens:
                if everybody or client.id in self._asked or (client.id, limit.window) not in self._spent:
                    wanted.setdefault(limit.window, []).append(client.id)
        self._asked.clear()
        for window, ids in wanted.items():
            start = window_start(window, now)
            stored = await store.tokens_since(ids, start)
            for each in ids:
                self._spent[each, window] = start, stored.get(each, 0) + self._unstored(each, start)
        if everybody:
            self._reload_at = now + RELOAD_S

    def _unstored(self, client: str, since: int) -> int:
        return sum(
            counts.input + counts.output
            for key, counts in self._waiting.items()
            if key.client == client and key.hour >= since
        )


def _counted(usage: Usage | None) -> Counts:
    if usage is None:
        return Counts()
    return Counts(input=usage.input, cached=usage.cached, output=usage.output, reasoning=usage.reasoning)
