"""The account and the windows of its plan, in words."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from turnbridge.codex.account import Identity, PlanLimit
from turnbridge.codex.protocol.messages import RateLimitWindow

MINUTES_PER_HOUR = 60
MINUTES_PER_DAY = 24 * 60


def described_account(identity: Identity) -> str:
    """Return who is logged in."""
    account = identity.account
    match None if account is None else account.type:
        case "chatgpt" if account is not None:
            plan = (
                "" if account.plan_type in (None, "unknown") else f" {str(account.plan_type).replace('_', ' ').title()}"
            )
            return f"{account.email or 'an unnamed account'}, ChatGPT{plan}"
        case "apiKey":
            return "OpenAI API key"
        case str(other):
            return other
        case None if identity.offline:
            return f"Somebody is logged in, but Codex cannot reach the account's server: {identity.problem}"
        case None if identity.problem is not None:
            return f"The stored login cannot be used: {identity.problem}"
        case None if not identity.login_needed:
            return f"No login is needed: the configured provider is `{identity.provider}`."
        case _:
            return "Nobody is logged in."


def described_limits(limits: Sequence[PlanLimit]) -> Iterator[str]:
    """Yield a line for each window of the plan."""
    rows = [
        (f"{_named(limit)}{_length(window)}", f"{window.used_percent:3} % used", _reset(window))
        for limit in limits
        for window in limit.windows
    ]
    width = max((len(name) for name, _, _ in rows), default=0)
    yield from (f"  {name:{width}}  {used}{reset}" for name, used, reset in rows)
    for limit in limits:
        if limit.credits is not None and (limit.credits.unlimited or limit.credits.has_credits):
            yield f"  credits: {'unlimited' if limit.credits.unlimited else limit.credits.balance or 'some'}"


def _named(limit: PlanLimit) -> str:
    return f"{limit.limit_name}, " if limit.limit_name else ""


def _length(window: RateLimitWindow) -> str:
    minutes = window.window_duration_mins
    match minutes:
        case None:
            return "window"
        case 10_080:
            return "week"
        case _ if minutes % MINUTES_PER_DAY == 0:
            return f"{minutes // MINUTES_PER_DAY} days"
        case _ if minutes % MINUTES_PER_HOUR == 0:
            return f"{minutes // MINUTES_PER_HOUR} hours"
        case _:
            return f"{minutes} minutes"


def _reset(window: RateLimitWindow) -> str:
    """Return when a window starts anew, in local time, with the day if it is not today."""
    if window.resets_at is None:
        return ""
    moment = datetime.fromtimestamp(window.resets_at).astimezone()
    today = datetime.fromtimestamp(time.time()).astimezone().date()
    shown = f"{moment:%H:%M}" if moment.date() == today else f"{moment:%a %d %b %Y, %H:%M}"
    return f", resets {'at' if moment.date() == today else 'on'} {shown}"
