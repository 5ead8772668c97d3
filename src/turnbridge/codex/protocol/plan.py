"""The windows of the plan behind Codex, as `account/rateLimits/updated` tells them while turns run.

Over HTTP every turn brings such a notification, with nulls for all that the provider did not say, and of several limits
only the last one is told: what is missing is not news, so nothing is forgotten for it.
"""

from collections.abc import Mapping

from turnbridge.codex.protocol.messages import RateLimits, RateLimitWindow
from turnbridge.engine.ports import PlanWindow

UPDATED = "account/rateLimits/updated"
MAIN_LIMIT = "codex"
# A plan has two windows; the names of further limits are the provider's words.
MOST_WINDOWS = 16
LONGEST_NAME = 64
FULL_PERCENT = 100


class Plan:
    """What is known of the plan's windows."""

    def __init__(self) -> None:
        self._windows: dict[str, PlanWindow] = {}

    def update(self, limits: RateLimits) -> None:
        """Note what a notification tells."""
        limit = limits.limit_id or MAIN_LIMIT
        prefix = "" if limit == MAIN_LIMIT else f"{''.join(c if c.isalnum() else '_' for c in limit[:LONGEST_NAME])}-"
        for name, told in (("primary", limits.primary), ("secondary", limits.secondary)):
            key = prefix + name
            if told is not None and (key in self._windows or len(self._windows) < MOST_WINDOWS):
                self._windows[key] = _merged(self._windows.get(key), told)

    def windows(self, now: float) -> Mapping[str, PlanWindow]:
        """Return the windows by name, `primary` and `secondary`; those that have ended are empty again."""
        return {
            name: window._replace(used_percent=0, resets_at=None)
            if window.resets_at is not None and window.resets_at <= now
            else window
            for name, window in self._windows.items()
        }

    def spent_until(self, now: float) -> int | None:
        """Return when the last of the windows that are used up starts anew."""
        full = (window for window in self.windows(now).values() if window.used_percent >= FULL_PERCENT)
        return max((window.resets_at for window in full if window.resets_at is not None), default=None)


def _merged(known: PlanWindow | None, told: RateLimitWindow) -> PlanWindow:
    if known is None:
        return PlanWindow(told.used_percent, told.window_duration_mins, told.resets_at)
    minutes = known.minutes if told.window_duration_mins is None else told.window_duration_mins
    return PlanWindow(told.used_percent, minutes, known.resets_at if told.resets_at is None else told.resets_at)
