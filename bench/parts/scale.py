"""Replicas on one machine: what a request costs the gateway, HAProxy, Redis and Postgres, and what it asks of each."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import asyncpg
import redis.asyncio

from bench.client import ASK, CHAT, DELTAS, RESPONSES, Client
from bench.processes import cpu_seconds, gateway_alone
from bench.report import Goal, Section, at_most, table
from bench.scale_model import Costs, forecast
from tests.replicas.balancer import Balancer, running_balancer
from tests.store.postgres_server import running_server
from tests.support.processes import descendants
from tests.support.redis_server import RedisServer
from tests.support.waiting import until_told

TITLE = "Replicas behind HAProxy"
REPLICAS = (1, 2, 4)
REQUESTS, QUICK_REQUESTS = 600, 24
AT_ONCE = 16
# As many conversations as the ring is asked about.
AFFINITIES = 64
# Nobody reaches it: it is counted all the same.
RATE = "1000000/minute"
MOST_COMMANDS = 4.0
"""Of a request that is not stored, to Redis."""
HEAD = (
    "",
    "requests/s",
    "gateway CPU ms",
    "HAProxy CPU ms",
    "Redis CPU ms",
    "Postgres CPU ms",
    "Redis round trips",
    "Postgres transactions",
)
INTRODUCTION = (
    f"Each replica on an app-server of recorded shapes; turns of {DELTAS} deltas, {AT_ONCE} at once, through HAProxy "
    "with the file of `deploy/`, and a rate limit that nobody reaches. CPU, round trips and transactions are for one "
    "request. All processes share this machine's cores, so requests a second cannot grow with replicas here; what "
    "counts is what a request costs."
)


@dataclass(frozen=True, slots=True)
class Counts:
    """What was used and asked up to a moment."""

    at: float
    gateway_s: float
    haproxy_s: float
    redis_s: float
    postgres_s: float
    commands: float
    transactions: float

    def since(self, before: "Counts") -> list[float]:
        """Return the differences."""
        return [now - then for now, then in zip(astuple(self), astuple(before), strict=True)]


# An idle connection of Postgres tells its statistics after ten seconds.
TOLD_S = 11.0


class Setup:
    """The running parts, and how to look at them."""

    def __init__(self, gateways: Sequence[int], balancer: Balancer, server: RedisServer, postgres: Any) -> None:  # noqa: ANN401 - It has no types.
        self._gateways = gateways
        self.balancer = balancer
        self._redis = server
        self._postgres = postgres

    async def counts(self) -> Counts:
        """Return what was used and asked up to now; what is asked for this is the same each time, and counts little."""
        postmaster, at = self._postgres.get_pid(), time.perf_counter()
        cpu = [cpu_seconds(pids) for pids in self._pids(postmaster)]
        async with redis.asyncio.Redis.from_url(self._redis.url) as client:
            told = await client.info("stats")
        connection = await asyncpg.connect(self._postgres.get_uri())
        await asyncio.sleep(TOLD_S)
        sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        transactions = await connection.fetchval(sql)
        await connection.close()
        gateway, haproxy, shared, stored = cpu
        return Counts(at, gateway, haproxy, shared, stored, told["total_reads_processed"], transactions)

    def _pids(self, postmaster: int) -> list[list[int]]:
        """Return the processes of the gateways, HAProxy, Redis and Postgres."""
        return [[*self._gateways], [self.balancer.pid], [self._redis.pid], [postmaster, *descendants(postmaster)]]


@contextlib.asynccontextmanager
async def running(directory: Path, count: int) -> AsyncIterator[Setup]:
    """Run so many replicas and all that they share."""
    await asyncio.to_thread(directory.mkdir)
    async with contextlib.AsyncExitStack() as stack:
        server = RedisServer(directory)
        await stack.enter_async_context(server.running())
        postgres = stack.enter_context(running_server())
        settings = {
            "PROXY_DATABASE_URL": postgres.get_uri(),
            "PROXY_RATE_LIMIT_STORAGE": server.url,
            "PROXY_RATE_LIMIT": RATE,
        }
        gateways = [
            await stack.enter_async_context(gateway_alone(directory / str(number), **settings))
            for number in range(count)
        ]
        ports = [int(gateway.url.rpartition(":")[2]) for gateway in gateways]
        # HAProxy's file has two places at least; the second one stays down.
        balancer = await stack.enter_async_context(running_balancer(directory, ports if count > 1 else [*ports, 9]))

        async def all_up() -> bool:
            return list((await balancer.states()).values()).count("UP") == count

        await until_told(all_up)
        yield Setup([gateway.pid for gateway in gateways], balancer, server, postgres)


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure one, two and four replicas, with answers that are stored and that are not."""
    rows: list[list[object]] = []
    rest: list[str] = []
    goals: list[Goal] = []
    costs: Costs | None = None
    for count in REPLICAS:
        async with running(directory / f"of-{count}", count) as setup:
            for path, name in ((CHAT, "not stored"), (RESPONSES, "stored")):
                used = await _load(setup, path, QUICK_REQUESTS if quick else REQUESTS)
                rows.append([f"{count}, {name}", *(f"{value:.2f}" for value in used)])
                if path == CHAT:
                    goals.append(
                        at_most(f"scale: Redis round trips of a request, {count} replicas", used[5], MOST_COMMANDS)
                    )
                elif count == REPLICAS[-1]:
                    costs = Costs(*(value / 1000 for value in used[1:5]), *used[5:])
            before = await setup.counts()
            seconds, *_, commands, transactions = (await setup.counts()).since(before)
            per_replica = [f"{value / seconds / count:.1f}" for value in (commands, transactions)]
            rest.append(f"{count}: {per_replica[0]} and {per_replica[1]}")
    what = "At rest, each replica sends so many requests to Redis and transactions to Postgres a second"
    at_rest = f"{what}: {'; '.join(rest)}."
    assert costs is not None
    lines = [INTRODUCTION, "", *table(HEAD, rows), "", at_rest, "", *forecast(costs)]
    return Section(title=TITLE, lines=lines, goals=goals)


async def _load(setup: Setup, path: str, requests: int) -> list[float]:
    """Return requests a second, and what one request costs of each kind."""
    client = Client(setup.balancer.url, path)
    encoded = [_with_affinity(client.says(ASK), number) for number in range(AFFINITIES)]

    async def ask(first: int) -> None:
        for number in range(first, requests, AT_ONCE):
            await client.ask(encoded[number % AFFINITIES], deltas=DELTAS)

    await asyncio.gather(*(client.ask(each, deltas=DELTAS) for each in encoded[:AT_ONCE]))
    before = await setup.counts()
    await asyncio.gather(*(ask(first) for first in range(AT_ONCE)))
    seconds, *used = (await setup.counts()).since(before)
    client.close()
    cpu, asked = used[:4], used[4:]
    return [requests / seconds, *(each / requests * 1000 for each in cpu), *(each / requests for each in asked)]


def _with_affinity(request: bytes, number: int) -> bytes:
    head, _, rest = request.partition(b"\r\n")
    return head + f"\r\nx-turnbridge-affinity: conversation {number}\r\n".encode() + rest
