"""A clock for the event loop that the test itself moves on, so that nobody waits for minutes to pass."""

import asyncio

import pytest


class PassingTime:
    """Time as the event loop knows it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        real, self._passed = loop.time, 0.0
        monkeypatch.setattr(loop, "time", lambda: real() + self._passed)

    async def go_on(self, seconds: int) -> None:
        """Let seconds pass one by one, each with whatever is due in it."""
        for _ in range(seconds):
            self._passed += 1
            # A timer, the task that it wakes, what that task starts or closes.
            for _ in range(5):
                await asyncio.sleep(0)
