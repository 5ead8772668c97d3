"""How long Codex may go on retrying a provider that fails, and what its failed attempts mean for the client."""

import math
from collections.abc import Callable

from turnbridge.codex.protocol.errors import TIMED_OUT, UNREACHABLE, attempt_error
from turnbridge.codex.protocol.messages import TurnError
from turnbridge.turn.errors import GatewayError

# The longest gap between two failed attempts: Codex gives up opening a WebSocket after 15 seconds. After a longer
# silence the attempt has most likely succeeded, and the model thinks.
LONGEST_ATTEMPT_S = 16.0


class Retries:
    """The failed attempts of one model call, as Codex reports them: it does not report that an attempt succeeded."""

    def __init__(self, timeout_s: float = math.inf, now: Callable[[], float] = lambda: 0.0) -> None:
        """Attempts may go on failing for `timeout_s`."""
        self._timeout_s = timeout_s
        self._now = now
        self._asked_at = now()
        self._failing_since: float | None = None
        self._failed_at: float | None = None

    @property
    def pending(self) -> bool:
        """Tell whether an attempt has just failed, and Codex makes another one."""
        return self._failed_at is not None and self._now() - self._failed_at < LONGEST_ATTEMPT_S

    def succeeded(self) -> None:
        """Note that the provider has said something."""
        self._asked_at = self._now()
        self._failing_since = self._failed_at = None

    def failed(self, error: TurnError) -> GatewayError | None:
        """Note a failed attempt; return the error for the client if there must not be another one.

        The clock is checked only here: a model may think for minutes once an attempt has succeeded.
        """
        now = self._failed_at = self._now()
        reason = error.additional_details or error.message
        if not reason.startswith((UNREACHABLE, TIMED_OUT)):
            # The provider was reached, so the time until now may have been the model's.
            self._asked_at = now
        if self._failing_since is None:
            # A connection that nobody accepts or refuses takes minutes to fail: that time counts.
            self._failing_since = self._asked_at
        return attempt_error(error) if now - self._failing_since >= self._timeout_s else None
