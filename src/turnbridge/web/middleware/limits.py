"""Middleware of the routes that generate: token limits, rate limits, and the state of the plan behind Codex."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial

from starlette.types import ASGIApp, Receive, Scope, Send

from turnbridge.engine.ports import PlanWindow
from turnbridge.turn.errors import RateLimited
from turnbridge.turn.rates import Rate, parse_rates
from turnbridge.turn.usage import described_tokens
from turnbridge.web.middleware.auth import caller
from turnbridge.web.middleware.meter import Meter, TokenStanding
from turnbridge.web.middleware.observability import RequestContext, context_of
from turnbridge.web.middleware.rate_limit import RequestRates, duration

# Of JSON with a text in English; images are longer than their tokens, so they are not taken at their word.
BYTES_PER_TOKEN = 4
MOST_RESERVED = 100_000
PLAN_WINDOWS = ("primary", "secondary")
PREFIX = "x-turnbridge-plan-"
PLAN_HEADERS = tuple(
    f"{PREFIX}{window}-{field}" for window in PLAN_WINDOWS for field in ("used-percent", "window-minutes", "reset-at")
)

# As many as keys are likely to have between them.
CACHED_LIMITS = 1024


@lru_cache(maxsize=CACHED_LIMITS)
def _rates_of(text: str) -> Sequence[Rate]:
    return parse_rates(text) if text else ()


class Limits:
    """Rejects requests beyond a limit, and adds headers about limits and plan to responses.

    What is refused for its tokens does not count for the rate. The plan is shown to the operator's keys only: it says
    how much all clients use together. Its headers are made when the answer begins, after Codex has told how it stands.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        rates: RequestRates,
        meter: Meter,
        plan: Callable[[str | None], Mapping[str, PlanWindow]] = lambda _: {},
    ) -> None:
        self._app = app
        self._rates = rates
        self._meter = meter
        self._plan = plan

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve the request, or raise `RateLimited`; without limits, nothing is put around it."""
        context, client = context_of(scope), caller(scope)
        context.on_end = self._meter.request_ended
        if client.admin:
            context.late_headers = partial(self._plan_headers, client.limits.account)
        own = client.limits.rate
        limits = self._rates.usual if own is None else _rates_of(own)
        if client.limits.tokens:
            if self._meter.budgets is not None:
                return self._budgeted(limits, scope, receive, send)
            self._check_tokens(context, self._meter.standing(client))
        return self._limited(limits, scope, receive, send) if limits else self._app(scope, receive, send)

    async def _budgeted(self, limits: Sequence[Rate], scope: Scope, receive: Receive, send: Send) -> None:
        """Reserve tokens on all replicas before anything else."""
        context = context_of(scope)
        length = context.headers.get(b"content-length", b"")
        tokens = max(int(length) // BYTES_PER_TOKEN, 1) if length.isdigit() else 1
        self._check_tokens(context, await self._meter.reserve(caller(scope), context, min(tokens, MOST_RESERVED)))
        await (self._limited(limits, scope, receive, send) if limits else self._app(scope, receive, send))

    def _check_tokens(self, context: RequestContext, standing: TokenStanding | None) -> None:
        if standing is not None:
            context.response_headers.extend(standing.headers())
            if not standing.remaining:
                raise RateLimited(
                    f"This key has used its tokens: {described_tokens(standing.limit)}. "
                    f"Try again in {duration(standing.resets_in_s)}.",
                    retry_after=standing.resets_in_s,
                )

    async def _limited(self, limits: Sequence[Rate], scope: Scope, receive: Receive, send: Send) -> None:
        # The client's id, so that Redis does not contain keys.
        standing = await self._rates.take(caller(scope).id, limits)
        context_of(scope).response_headers.extend(standing.headers())
        if standing.refused:
            raise RateLimited(
                f"Rate limit reached for this key: {standing.limit.described()}. "
                f"Try again in {duration(standing.frees_in_s)}.",
                retry_after=standing.frees_in_s,
            )
        await self._app(scope, receive, send)

    def _plan_headers(self, account: str | None) -> list[tuple[bytes, bytes]]:
        """Return what is known of the two windows of an account's plan."""
        windows = self._plan(account)
        values = {
            f"{PREFIX}{name}-{field}": value
            for name in PLAN_WINDOWS
            if (window := windows.get(name)) is not None
            for field, value in (
                ("used-percent", window.used_percent),
                ("window-minutes", window.minutes),
                ("reset-at", window.resets_at),
            )
        }
        return [(name.encode(), str(value).encode()) for name, value in values.items() if value is not None]
