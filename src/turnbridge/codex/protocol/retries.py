"""How long the failed attempts of one model call may be retried by Codex."""

import math
from collections.abc import Callable

from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.errors import TIMED_OUT, UNREACHABLE, attempt_error
from turnbridge.turn import errors

# The longest gap between two failed attempts: Codex gives up opening a WebSocket after 15 seconds. After a longer
# silence the attempt has most likely succeeded, and the model is thinking.
LONGEST_ATTEMPT_S = 16.0


class Retries:
    """The failed attempts of one model call, which may go on for `timeout_s`; Codex does not report a success."""

    def __init__(self, timeout_s: float = math.inf, now: Callable[[], float] = lambda: 0.0) -> None:
        self._timeout_s = timeout_s
        self._now = now
        self._started_at = now()
        self._failing_since: float | None = None
        self._failed_at: float | None = None

    @property
    def pending(self) -> bool:
        """Tell whether an attempt has just failed and Codex makes another one."""
        return self._failed_at is not None and self._now() - self._failed_at < LONGEST_ATTEMPT_S

    def succeeded(self) -> None:
        """Record output of the provider."""
        self._started_at = self._now()
        self._failing_since = self._failed_at = None

    def failed(self, error: schema.TurnError) -> errors.GatewayError | None:
        """Record a failed attempt; return the client's error if it must be the last one.

        The clock is checked only here: a model may think for minutes once an attempt has succeeded.
        """
        now = self._failed_at = self._now()
        reason = error.additional_details or error.message
        if not reason.startswith((UNREACHABLE, TIMED_OUT)):
            # The provider was reached, so the model may have used the time until now.
            self._started_at = now
        if self._failing_since is None:
            # A connection that nobody accepts or refuses takes minutes to fail: that time counts.
            self._failing_since = self._started_at
        return attempt_error(error) if now - self._failing_since >= self._timeout_s else None
