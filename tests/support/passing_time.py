"""A clock for the event loop that the test itself moves on, so that nobody waits for minutes to pass."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


class _Loop(asyncio.SelectorEventLoop):
    passed_s = 0.0

    def time(self) -> float:
        return super().time() + self.passed_s


class PassingTime:
    """Time as the event loop of a test knows it."""

    async def go_on(self, seconds: int) -> None:
        """Let seconds pass one by one, each with whatever is due in it."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop), "The test needs `on_a_loop_of_its_own`."
        for _ in range(seconds):
            loop.passed_s += 1
            # A timer, the task that it wakes, what that task starts or closes.
            for _ in range(5):
                await asyncio.sleep(0)


def on_a_loop_of_its_own(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on its own event loop.

    On the usual one are gateways that live as long as the session. To them, Codex would not start in time; and when the
    time went back, their next try would be minutes away.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(test(*args, **kwargs))

    return run
