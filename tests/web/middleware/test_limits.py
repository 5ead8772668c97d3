"""Which limits hold for a request, and what its headers say of them and of the plan."""

from collections.abc import Mapping, Sequence

import pytest
from starlette.types import Receive, Scope, Send

from turnbridge.engine.ports import PlanWindow
from turnbridge.engine.sharing import Budget, Reservation
from turnbridge.turn.clients import Client, ClientLimits
from turnbridge.turn.errors import RateLimited
from turnbridge.turn.usage import TokenLimit
from turnbridge.web.middleware.limits import MOST_RESERVED, Limits
from turnbridge.web.middleware.meter import TOKEN_HEADERS, Meter
from turnbridge.web.middleware.observability import CONTEXT_KEY, RequestContext
from turnbridge.web.middleware.rate_limit import RequestRates

pytestmark = pytest.mark.anyio

ACCOUNTS: Mapping[str | None, Mapping[str, PlanWindow]] = {
    None: {"primary": PlanWindow(10, 300, None)},
    "work": {"primary": PlanWindow(90, 300, None)},
}


class Budgets:
    """Budgets that have all that is asked of them, and note it."""

    share = staticmethod(lambda left: left)

    def __init__(self) -> None:
        self.reserved: list[int] = []

    async def reserve(
        self, client: str, budgets: Sequence[Budget], tokens: int
    ) -> tuple[Reservation | None, list[int]]:
        del client
        self.reserved.append(tokens)
        return None, [budget.limit for budget in budgets]

    def settle(self, client: str, reservation: Reservation | None, budgets: Sequence[Budget], tokens: int) -> None:
        """Need nothing."""


async def served(
    limits: ClientLimits, *, admin: bool = False, usual: str | None = None, meter: Meter | None = None, size: int = 0
) -> RequestContext:
    """Serve a request of a client with these limits."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer nothing."""

    context = RequestContext(request_id="r", method="POST", route="/", clock=lambda: 0.0, started_at=0.0)
    context.client = Client(id="a", name="alice", admin=admin, limits=limits)
    context.headers = {b"content-length": str(size).encode()}
    layer = Limits(app, rates=RequestRates(usual), meter=meter or Meter(None), plan=lambda account: ACCOUNTS[account])
    await layer({CONTEXT_KEY: context}, None, None)  # type: ignore[arg-type]  # Nobody asks for them.
    return context


@pytest.mark.parametrize(
    ("admin", "account", "percent"),
    [(True, None, [b"10"]), (True, "work", [b"90"]), (False, None, []), (False, "work", [])],
)
async def test_an_operators_key_is_shown_the_plan_of_its_own_account(
    admin: bool, account: str | None, percent: list[bytes]
) -> None:
    context = await served(ClientLimits(account=account), admin=admin)
    assert [value for name, value in context.late_headers() if name.endswith(b"used-percent")] == percent


@pytest.mark.parametrize(
    ("own", "limit"), [(None, [b"5"]), ("7/minute", [b"7"]), ("", [])], ids=["the usual", "its own", "none"]
)
async def test_a_client_has_the_usual_rate_its_own_or_none(own: str | None, limit: list[bytes]) -> None:
    context = await served(ClientLimits(rate=own), usual="5/minute")
    assert [value for name, value in context.response_headers if name == b"x-ratelimit-limit-requests"] == limit


async def test_what_is_left_of_a_token_limit_is_told_also_when_nothing_is() -> None:
    meter = Meter(None)
    context = await served(ClientLimits(tokens=(TokenLimit(5, "day"),)), meter=meter)
    assert (TOKEN_HEADERS[1].encode(), b"5") in context.response_headers
    with pytest.raises(RateLimited):
        await served(ClientLimits(tokens=(TokenLimit(0, "day"),)), meter=meter)


@pytest.mark.parametrize(("size", "tokens"), [(0, 1), (400, 100), (10**9, MOST_RESERVED)])
async def test_a_request_reserves_as_many_tokens_as_its_body_is_likely_to_have(size: int, tokens: int) -> None:
    budgets = Budgets()
    await served(ClientLimits(tokens=(TokenLimit(10**9, "day"),)), meter=Meter(None, budgets=budgets), size=size)
    assert budgets.reserved == [tokens]
