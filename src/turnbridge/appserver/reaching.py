"""How long the provider of a turn may be out of reach: Codex itself would try for ever."""

import asyncio


class Reaching:
    """How long attempts to reach the provider may go on failing.

    The time is looked at only when one has failed: that one has succeeded is not told before the model says something,
    which may take it minutes.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._failing_since = 0.0

    def may_try_again(self, attempts: int) -> bool:
        """Tell whether there is time for another attempt, after so many in a row that failed."""
        now = asyncio.get_running_loop().time()
        if attempts == 1:
            self._failing_since = now
        return now - self._failing_since < self._timeout_s
