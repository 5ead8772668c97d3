"""How long a turn may be silent, and how long it may take; and the end of all turns at once."""

import asyncio
from dataclasses import dataclass

from turnbridge.engine.ports import Thread
from turnbridge.turn.errors import GatewayError, TurnTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a turn may be silent, and how long it may take."""

    silence_s: float
    whole_s: float

    @property
    def first_sign_s(self) -> float:
        """Return how long the provider may take before its first sign.

        A model that thinks has begun to answer. One that has not may be loading, or its provider hangs: Codex tells
        neither. At the default of 15 minutes for silence this is 5, which is less than SDKs wait for an answer (10).
        """
        return self.silence_s / 3


class Watch:
    """Watches the time of every turn that runs, and can end them all."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.stopped: GatewayError | None = None
        """Why no turn may run any more."""
        self.turns: set[TurnClock] = set()

    def stop(self, error: GatewayError) -> None:
        """End every turn that runs, now, with this error."""
        self.stopped = error
        for turn in self.turns:
            turn.fail(error)


class TurnClock:
    """The time of one turn, from now until it is stopped. A turn whose time is up ends as failed.

    It has one timer, which looks only when it fires whether something was heard meanwhile: to set and cancel one for
    every batch took a fifth of what a delta costs.
    """

    def __init__(self, watch: Watch, thread: Thread) -> None:
        self._watch = watch
        self._thread = thread
        # Held, because to ask for it takes a system call.
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + watch.patience.whole_s
        self._waiting_since: float | None = None
        """Since when the model is waited for; None while its client is."""
        self._timer: asyncio.TimerHandle | None = None
        watch.turns.add(self)

    def wait(self) -> None:
        """Begin to wait for the model."""
        now = self._waiting_since = self._loop.time()
        if self._watch.stopped is not None:
            self.fail(self._watch.stopped)
        elif self._timer is None or now >= self._end:
            self._look()

    def heard(self) -> None:
        """Wait for the client instead, who has something to read."""
        self._waiting_since = None

    def fail(self, error: GatewayError) -> None:
        """End the turn with this error."""
        self._thread.fail(error)

    def stop(self) -> None:
        """Watch the turn no more."""
        self._watch.turns.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """End a turn whose time is up; else come back when it could be."""
        now = self._loop.time()
        waiting_since = self._waiting_since
        patience, begun = self._watch.patience, self._thread.heard
        allowed = patience.silence_s if begun else patience.first_sign_s
        silence = (now if waiting_since is None else waiting_since) + allowed
        if waiting_since is not None and now >= min(silence, self._end):
            self.fail(self._too_late(silent=silence < self._end, begun=begun))
            return
        # A client that is waited for has no time to keep: once the turn's end is past, `wait` looks at it.
        due = silence if now >= self._end else min(silence, self._end)
        self._timer = self._loop.call_at(due, self._look)

    def _too_late(self, *, silent: bool, begun: bool) -> TurnTimeout:
        patience = self._watch.patience
        if silent and not begun:
            return TurnTimeout(
                f"The provider sent nothing for {patience.first_sign_s:.3g} seconds; the turn was interrupted. "
                "Check that the provider is up, or raise PROXY_IDLE_TIMEOUT_MS if its models need longer to begin."
            )
        if silent:
            return TurnTimeout(f"The model was silent for {patience.silence_s:g} seconds; the turn was interrupted.")
        return TurnTimeout(f"The turn took longer than {patience.whole_s:g} seconds and was interrupted.")
