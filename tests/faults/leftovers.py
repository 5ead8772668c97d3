"""What a gateway in this very process holds: it must be the same after a fault as before it."""

import asyncio
import contextlib
import ctypes
import gc
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from tests.support.gateway import Bridge
from tests.support.processes import command, descendants, descriptors, resident_mb
from tests.support.waiting import LOOK_AGAIN_S, until
from turnbridge.codex.process.pool import Pool

SETTLED_LOOKS = 5
"""What looks the same so often is at rest."""

MOST_GROWTH_MB = 40
"""What Python may keep of a fault for later; a leak of one 50 MB line is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is held at one moment."""

    app_servers: int
    descriptors: int
    tasks: int
    running: int
    waiting: int
    loads: tuple[int, ...]


def held(bridge: Bridge) -> Held:
    """Return what is held now."""
    admission, pool = bridge.gateway.admission, bridge.gateway.pool
    return Held(
        # Not what they run themselves, for a moment, whenever they like.
        app_servers=sum(" app-server " in command(pid) for pid in descendants(os.getpid())),
        # Codex keeps its connections to the model, which is in this process too, for as long as it likes.
        descriptors=descriptors(os.getpid()) - len(bridge.model._state.connections),
        tasks=len(asyncio.all_tasks()),
        running=admission.running,
        waiting=admission.waiting,
        loads=tuple(worker.load for worker in pool.workers),
    )


def is_whole(pool: Pool) -> bool:
    """Tell whether every app-server that is to serve does."""
    return len(pool.workers) == pool.target


async def grow(pool: Pool, count: int) -> None:
    """Let a pool have so many app-servers, as if it were under load."""
    pool.target = count
    pool._check.set()
    await until(lambda: is_whole(pool))


async def settled(bridge: Bridge) -> Held:
    """Return what is held once everything has started and nothing runs."""
    await until(lambda: is_whole(bridge.gateway.pool) and bridge.gateway.admission.running == 0)
    same: list[Held] = []
    while len(same) < SETTLED_LOOKS:
        # A probe that is just under way is no leftover.
        await asyncio.sleep(LOOK_AGAIN_S)
        now = held(bridge)
        same = [*same, now] if not same or same[-1] == now else []
    return same[-1]


def _no_more(now: Held, before: Held) -> bool:
    """Tell whether the same is held; other gateways of this process may have closed connections and app-servers."""
    return before == replace(
        now,
        app_servers=max(now.app_servers, before.app_servers),
        descriptors=max(now.descriptors, before.descriptors),
        tasks=max(now.tasks, before.tasks),
    )


@contextlib.asynccontextmanager
async def nothing_left(bridge: Bridge) -> AsyncIterator[None]:
    """Assert that what is held afterwards is what was held before; the memory may grow a little."""
    before = await settled(bridge)
    memory = _held_mb()
    yield
    try:
        await until(lambda: _no_more(held(bridge), before))
    except TimeoutError:
        raise AssertionError(f"{held(bridge)} is held, and before it was {before}") from None
    grown = _held_mb() - memory
    assert grown < MOST_GROWTH_MB, f"{grown:.0f} MB are held"


def _held_mb() -> float:
    """Return the memory of this process without what the allocator keeps for later, where it can be told to let go."""
    gc.collect()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return resident_mb(os.getpid())
