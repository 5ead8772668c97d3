"""The state of the plan behind Codex, in the headers of answers to the operator's keys.

Others are not told: the plan is the operator's, and says how much all clients together use.
"""

from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnbridge.engine.ports import PlanWindow
from turnbridge.turn.errors import GatewayError
from turnbridge.web.middleware.auth import caller
from turnbridge.web.middleware.observability import context_of

PLAN_WINDOWS = ("primary", "secondary")
PREFIX = "x-turnbridge-plan-"
PLAN_HEADERS = tuple(
    f"{PREFIX}{window}-{field}" for window in PLAN_WINDOWS for field in ("used-percent", "window-minutes", "reset-at")
)


class ShowPlan:
    """Adds the headers when the answer begins, or when it is an error: by then Codex has told how the plan stands."""

    def __init__(self, app: ASGIApp, *, plan: Callable[[], Mapping[str, PlanWindow]]) -> None:
        self._app = app
        self._plan = plan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        if not caller(scope).admin:
            await self._app(scope, receive, send)
            return
        context = context_of(scope)

        async def send_with_plan(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.response_headers.extend(plan_headers(self._plan()))
            await send(message)

        try:
            await self._app(scope, receive, send_with_plan)
        except GatewayError:
            if context.status is None:
                context.response_headers.extend(plan_headers(self._plan()))
            raise


def plan_headers(windows: Mapping[str, PlanWindow]) -> list[tuple[bytes, bytes]]:
    """Return what is known of the two windows of the plan."""
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
