"""A model of the turn slots: what all replicas hold, in the memory of one process."""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from turnbridge.engine.sharing import SlotLease, Verdict


@dataclass(slots=True)
class Ledger:
    """What the replicas hold together."""

    running: Counter[str] = field(default_factory=Counter)
    """Turns of each client."""
    held: Counter[str] = field(default_factory=Counter)
    """Turns of each client that has a limit, running or waiting."""

    def decide(self, lease: SlotLease, *, total: int, of_client: int, start: bool, is_held: bool) -> Verdict:
        """Return what becomes of a request for turns, and count it."""
        if lease.most is not None and not is_held:
            if self.held[lease.client] + lease.share > lease.most:
                return Verdict.TOO_MANY
            self.held[lease.client] += lease.share
        if not start:
            return Verdict.QUEUED
        if self.running[lease.client] > max(of_client - lease.turns, 0):
            return Verdict.CLIENT_FULL
        if self.running.total() + lease.turns > total:
            return Verdict.FULL
        self.running[lease.client] += lease.turns
        return Verdict.STARTED

    def release(self, lease: SlotLease, *, is_held: bool) -> None:
        """Count what a lease held no more."""
        if lease.most is not None and is_held:
            self.held[lease.client] -= lease.share
        if lease.started:
            self.running[lease.client] -= lease.turns


class MemorySlots:
    """The `TurnSlots` of one replica."""

    def __init__(self, ledger: Ledger | None = None, *, counted: bool = True, replicas: int = 1) -> None:
        self.ledger = ledger or Ledger()
        self.counted = counted
        self.on_free: list[Callable[[], None]] = []
        self._replicas = replicas
        self._numbers = itertools.count()
        self._held: set[SlotLease] = set()

    def share(self, limit: int) -> int:
        return max(limit // self._replicas, 1)

    def lease(self, client: str, turns: int, share: int, most: int | None) -> SlotLease:
        return SlotLease(next(self._numbers), client, turns, share, most)

    async def take(self, lease: SlotLease, *, total: int, of_client: int, start: bool) -> tuple[Verdict, int]:
        if not self.counted:
            return Verdict.AWAY, 0
        had = self.ledger.held[lease.client]
        is_held = lease in self._held
        verdict = self.ledger.decide(lease, total=total, of_client=of_client, start=start, is_held=is_held)
        if verdict is not Verdict.TOO_MANY:
            self._held.add(lease)
        lease.started = lease.started or verdict is Verdict.STARTED
        return verdict, had

    def take_alone(self, lease: SlotLease, *, started: bool) -> None:
        if lease not in self._held and lease.most is not None:
            self.ledger.held[lease.client] += lease.share
        self._held.add(lease)
        if started and not lease.started:
            self.ledger.running[lease.client] += lease.turns
        lease.started = lease.started or started

    def give_back(self, lease: SlotLease) -> None:
        self.ledger.release(lease, is_held=lease in self._held)
        self._held.discard(lease)
