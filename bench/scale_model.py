"""A model on paper for a hundred replicas: what a second of 10,000 requests asks of each part, and how even a ring is.

`python -m bench.scale_model` simulates the ring alone. Costs come from the measurement of one machine (`bench scale`).
"""

import bisect
import hashlib
import math
import random
from dataclasses import dataclass

from bench.report import table

REPLICAS, RATE = 100, 10_000
# What one turn takes, mostly waiting for the model: it sets how many run at once.
TURN_S = 8.0
CORES = 1.0
"""Of a gateway, HAProxy thread or Redis: each runs on one. Postgres has as many processes as connections."""
POSTGRES_CORES = 16
FULL = 0.7
"""How much of a core may be used before waiting times grow."""
# As in HAProxy: points of a server on the ring, and the bound of its load.
POINTS = 100
FACTOR = 1.5
# Conversations, and how unequal they are: the second one has half the requests of the first, and so on (Zipf).
CONVERSATIONS, SKEW, SEED = 200_000, 0.8, 7
DRAWS = 80_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of processor time of one request that is stored, and what it asks for."""

    gateway_s: float
    haproxy_s: float
    redis_s: float
    postgres_s: float
    commands: float
    transactions: float


def forecast(costs: Costs) -> list[str]:
    """Return what saturates first, as text."""
    parts = [
        ("gateway", costs.gateway_s, REPLICAS * CORES, "more replicas"),
        (
            "HAProxy",
            costs.haproxy_s,
            CORES,
            "several behind one address: each has the same ring",
        ),
        (
            "Redis",
            costs.redis_s,
            CORES,
            "by client: nothing there is shared by two of them but the total",
        ),
        ("Postgres", costs.postgres_s, POSTGRES_CORES, "by client, one database for each shard; or `store: false`"),
    ]
    rows = [
        [name, f"{RATE * seconds:.1f}", f"{cores:g}", f"{FULL * cores / seconds:,.0f}", how]
        for name, seconds, cores, how in parts
    ]
    first = min(parts, key=lambda part: part[2] / part[1])
    moved, worst, unbounded = simulate()
    head = ("part", "cores for 10,000 requests/s", "cores that it has", "requests/s at 70 %", "then shard")
    asked = (
        f"{first[0]} saturates first. Postgres gets {RATE * costs.transactions:,.0f} transactions and Redis "
        f"{RATE * costs.commands:,.0f} requests a second. At {TURN_S:g} s a turn, {RATE * TURN_S:,.0f} turns run at "
        f"once, {RATE * TURN_S / REPLICAS:,.0f} for each replica: PROXY_MAX_TURNS and the memory of Codex bound it "
        "before the processor does."
    )
    ring = (
        f"Simulated ring of {REPLICAS} replicas and {CONVERSATIONS:,} conversations: the busiest replica has "
        f"{unbounded:.2f} times the average without a bound and {worst:.2f} times with it. {moved:.1%} of the requests "
        "are then served by another replica than the first of their conversation, and replayed there."
    )
    title = f"Forecast for {REPLICAS} replicas and {RATE:,} stored requests a second, from the costs of the last row:"
    return [title, "", *table(head, rows), "", asked, "", ring]


def simulate() -> tuple[float, float, float]:
    """Return the share of requests that the bound moves, and the busiest replica's load with and without it."""
    chance = random.Random(SEED)
    ring = sorted((_place(f"{replica}.{point}"), replica) for replica in range(REPLICAS) for point in range(POINTS))
    places = [place for place, _ in ring]
    weights = [1 / (rank + 1) ** SKEW for rank in range(CONVERSATIONS)]
    asked = chance.choices(range(CONVERSATIONS), weights, k=DRAWS)
    bounded, free = [0] * REPLICAS, [0] * REPLICAS
    moved = 0
    for number, conversation in enumerate(asked):
        at = bisect.bisect(places, _place(f"conversation {conversation}")) % len(ring)
        own = ring[at][1]
        free[own] += 1
        # As HAProxy counts: what runs and the one that comes, times the factor, shared by all and rounded up.
        most = math.ceil(math.ceil((number + 1) * FACTOR) / REPLICAS)
        while bounded[ring[at][1]] >= most:
            at = (at + 1) % len(ring)
        bounded[ring[at][1]] += 1
        moved += ring[at][1] != own
    average = DRAWS / REPLICAS
    return moved / DRAWS, max(bounded) / average, max(free) / average


def _place(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


if __name__ == "__main__":
    share, with_bound, without = simulate()
    print(f"moved {share:.1%}, busiest {with_bound:.2f} with the bound, {without:.2f} without")
