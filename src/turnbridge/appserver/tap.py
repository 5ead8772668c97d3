"""Listening in on an app-server's pipe: whoever taps it sees every byte before anybody acts on it."""

from collections.abc import Callable
from typing import Protocol


class Tap(Protocol):
    """Somebody who listens in on one pipe; it must not raise."""

    def sent(self, data: bytes) -> None:
        """Take a line to Codex."""
        ...

    def received(self, data: bytes) -> None:
        """Take what the pipe brought, in whatever pieces."""
        ...


def overheard(listen: Callable[[bytes], None], take: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return `take` with somebody who listens in."""

    def both(data: bytes) -> None:
        listen(data)
        take(data)

    return both
