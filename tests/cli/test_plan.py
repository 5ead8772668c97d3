"""The account and the windows of its plan, in words."""

import time
from datetime import datetime, timedelta

import pytest

from turnbridge.cli.plan import described_account, described_limits
from turnbridge.codex.account import Account, Credits, Identity, PlanLimit
from turnbridge.codex.protocol.messages import RateLimitWindow


@pytest.mark.parametrize(
    ("account", "problem", "offline", "needed", "words"),
    [
        (Account(type="chatgpt", email=None, plan_type="unknown"), None, False, True, "an unnamed account, ChatGPT"),
        (Account(type="chatgpt", email="a@b.test", plan_type="pro"), None, False, True, "a@b.test, ChatGPT Pro"),
        (None, "no route", True, True, "Somebody is logged in, but Codex cannot reach the account's server: no route"),
        (None, "expired", False, True, "The stored login cannot be used: expired"),
        (None, None, False, False, "No login is needed: the configured provider is `own`."),
        (None, None, False, True, "Nobody is logged in."),
    ],
)
def test_who_is_logged_in(
    account: Account | None, problem: str | None, offline: bool, needed: bool, words: str
) -> None:
    identity = Identity(account=account, login_needed=needed, provider="own", problem=problem, offline=offline)
    assert described_account(identity) == words


def test_a_reset_is_told_in_local_time_with_the_day_unless_it_is_today(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = datetime(2026, 11, 18, 12, 0).astimezone()
    monkeypatch.setattr(time, "time", noon.timestamp)
    resets = [noon + timedelta(hours=2, minutes=5), noon + timedelta(days=2)]
    windows = [RateLimitWindow(used_percent=5, resets_at=int(moment.timestamp())) for moment in resets]
    assert list(described_limits([PlanLimit(primary=windows[0], secondary=windows[1])])) == [
        "  window    5 % used, resets at 14:05",
        "  window    5 % used, resets on Fri 20 Nov 2026, 12:00",
    ]


@pytest.mark.parametrize(
    ("held", "lines"),
    [
        (Credits(has_credits=False, unlimited=False), []),
        (Credits(has_credits=True, unlimited=False), ["  credits: some"]),
        (Credits(has_credits=False, unlimited=True), ["  credits: unlimited"]),
    ],
)
def test_credits_are_told_where_there_are_some(held: Credits, lines: list[str]) -> None:
    assert list(described_limits([PlanLimit(credits=held)])) == lines
