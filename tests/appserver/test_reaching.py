"""How long a provider may be out of reach."""

import asyncio

import pytest

from turnbridge.appserver.reaching import Reaching

pytestmark = pytest.mark.anyio


async def test_the_time_counts_from_the_first_of_the_attempts_that_failed_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reaching = Reaching(10)

    def fails(at: float, attempt: int) -> bool:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: at)
        return reaching.may_try_again(attempt)

    # As Codex tries: after 5 seconds, after 10 more, and so on.
    attempts = ((100.0, 1), (105.0, 2), (200.0, 1), (205.0, 2), (215.0, 3))
    assert [fails(at, attempt) for at, attempt in attempts] == [True, True, True, True, False]


async def test_without_any_time_the_first_failure_is_the_last() -> None:
    assert not Reaching(0).may_try_again(1)
