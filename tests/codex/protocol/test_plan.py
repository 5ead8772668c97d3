"""What is known of the plan, from notifications that leave much out."""

import pytest

from turnbridge.codex.protocol.messages import RateLimits, RateLimitWindow
from turnbridge.codex.protocol.plan import MOST_WINDOWS, Plan
from turnbridge.engine.ports import PlanWindow

NOW = 1_000_000


def window(used: int, *, resets_at: int | None = None, minutes: int | None = None) -> RateLimitWindow:
    return RateLimitWindow(used_percent=used, resets_at=resets_at, window_duration_mins=minutes)


def test_null_is_no_news() -> None:
    plan = Plan()
    plan.update(RateLimits(primary=window(40, resets_at=NOW + 60, minutes=300), secondary=window(3)))
    plan.update(RateLimits())
    plan.update(RateLimits(limit_id="codex", primary=window(41)))

    assert plan.windows(NOW) == {
        "primary": PlanWindow(used_percent=41, minutes=300, resets_at=NOW + 60),
        "secondary": PlanWindow(used_percent=3, minutes=None, resets_at=None),
    }


def test_a_window_that_has_ended_is_empty_again() -> None:
    plan = Plan()
    plan.update(RateLimits(primary=window(100, resets_at=NOW, minutes=300)))

    assert plan.windows(NOW) == {"primary": PlanWindow(used_percent=0, minutes=300, resets_at=None)}
    assert plan.spent_until(NOW) is None
    assert plan.spent_until(NOW - 1) == NOW


@pytest.mark.parametrize(
    ("primary", "secondary", "until"),
    [
        (window(100, resets_at=NOW + 5), window(100, resets_at=NOW + 9), NOW + 9),
        (window(100, resets_at=NOW + 5), window(99, resets_at=NOW + 9), NOW + 5),
        (window(100), window(20, resets_at=NOW + 9), None),
    ],
)
def test_a_plan_is_spent_until_the_last_full_window_ends(
    primary: RateLimitWindow, secondary: RateLimitWindow, until: int | None
) -> None:
    plan = Plan()
    plan.update(RateLimits(primary=primary, secondary=secondary))

    assert plan.spent_until(NOW) == until


def test_names_of_other_limits_are_safe_and_bounded() -> None:
    plan = Plan()
    plan.update(RateLimits(primary=window(1)))
    for number in range(100):
        plan.update(RateLimits(limit_id=f'codex_"{number}\n', primary=window(number)))
    plan.update(RateLimits(primary=window(2)))

    names = plan.windows(NOW)
    assert len(names) == MOST_WINDOWS
    assert names["primary"].used_percent == 2
    assert "codex__0_-primary" in names
