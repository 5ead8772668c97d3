"""Scripts that run twice, since the result of the first run did not come in time: nothing counts twice for that."""

from collections.abc import AsyncIterator

import pytest

from tests.replicas.stammering import Stammering
from tests.support.redis_server import RedisServer
from turnbridge.engine.sharing import Budget, Claim
from turnbridge.replicas.answers import RedisAnswers
from turnbridge.replicas.rates import SharedRates
from turnbridge.replicas.registry import Registry
from turnbridge.replicas.replica import Replica
from turnbridge.replicas.tokens import SharedTokens
from turnbridge.turn.rates import Rate

pytestmark = pytest.mark.anyio

RATE = Rate(3, 60)
BUDGET = Budget("day", 0, 60, 100, 0)


@pytest.fixture
async def replica(server: RedisServer) -> AsyncIterator[tuple[Replica, Stammering]]:
    """Return a replica of which every script runs twice."""
    shared = Stammering(server.url)
    shared.stammers = True
    yield Replica(Registry("replica", None), shared), shared
    await shared.aclose()


@pytest.mark.promise("replicas.rates")
async def test_the_last_request_of_a_rate_does_not_stand_in_its_own_way(replica: tuple[Replica, Stammering]) -> None:
    rates = SharedRates(replica[0])
    taken = [await rates.take("client", [RATE]) for _ in range(RATE.amount + 1)]
    assert [(each.allowed, each.windows[0].left) for each in taken] == [(True, 3), (True, 2), (True, 1), (False, 0)]


@pytest.mark.promise("replicas.tokens")
async def test_tokens_are_reserved_and_used_once(replica: tuple[Replica, Stammering]) -> None:
    tokens = SharedTokens(*replica)
    first, left = await tokens.reserve("client", [BUDGET], 60)
    second, left_then = await tokens.reserve("client", [BUDGET], 60)
    assert (left, left_then) == ([100], [40])
    tokens.settle("client", first, [BUDGET], 10)
    tokens.settle("client", second, [BUDGET], 10)
    # Without a reservation, as a background response.
    tokens.settle("client", None, [BUDGET], 10)
    assert (await tokens.reserve("client", [BUDGET], 60))[1] == [70]


@pytest.mark.promise("replicas.idempotency")
async def test_a_claim_does_not_wait_for_itself_and_a_renewal_revives_nothing(
    replica: tuple[Replica, Stammering],
) -> None:
    answers = RedisAnswers(*replica)
    assert await answers.claim("identity", "fingerprint") is Claim.MINE
    # Another request of this very replica waits like those of others.
    assert await answers.claim("identity", "fingerprint") is Claim.RUNNING
    # A renewal that is on its way as the answer ends.
    (renew,) = [each for each in replica[0].renewals if each.__self__ is answers]  # type: ignore[attr-defined]
    of_then = dict(answers._mine)
    await answers.finish("client", "identity", b"answer")
    answers._mine.update(of_then)
    kept_ms = await replica[1].client.pttl("turnbridge:once:identity")
    await renew()
    assert await answers.claim("identity", "fingerprint") is Claim.FINISHED
    assert await replica[1].client.pttl("turnbridge:once:identity") > kept_ms - 60_000
    await replica[1].client.delete("turnbridge:once:identity")
    await renew()
    assert await replica[1].client.exists("turnbridge:once:identity") == 0
