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


def tapped_write(tap: Tap, write: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return `write`, overheard."""

    def overheard(data: bytes) -> None:
        tap.sent(data)
        write(data)

    return overheard


def tapped_receive(tap: Tap, receive: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return `receive`, overheard."""

    def overheard(data: bytes) -> None:
        tap.received(data)
        receive(data)

    return overheard
