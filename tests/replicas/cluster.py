"""Replicas of the gateway as an operator runs them: one Postgres, one Redis, HAProxy in front, a scripted model."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx2

from tests.replicas.balancer import Balancer, running_balancer
from tests.store.postgres_server import running_server
from tests.support.gateway_process import API_KEY, GatewayProcess, gateway_process
from tests.support.plain_http import TIMEOUT_S, client
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.relay import Relay, tcp_relay, unix_relay
from tests.support.waiting import until_told
from turnbridge.scripted_model.replies import Reply
from turnbridge.scripted_model.server import ScriptedModel, in_order
from turnbridge.turn.items import JsonObject

NAMES = ("one", "two", "three")
"""As in HAProxy's file."""
MODEL = "gpt-5.5"
POSTGRES_SOCKET = ".s.PGSQL.5432"
START_PATIENCE_S = 45.0
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
"""Of Debian's package `faketime`."""
DRAIN_S = 20.0
# Longer than Codex takes to let go of a turn.
REST_S = 25.0


class Replica:
    """One gateway of the fleet, at a port that stays the same when it is started again."""

    def __init__(self, name: str, directory: Path, provider: str, settings: dict[str, object]) -> None:
        self.name = name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._directory = directory
        self._provider = provider
        self._settings = {**settings, "PORT": self.port}
        self._stack = contextlib.AsyncExitStack()
        self.relays: list[Relay] = []
        """Between it and what replicas share, if it can be cut off."""
        self.process: GatewayProcess | None = None

    @property
    def runs(self) -> bool:
        """Tell whether its process is there."""
        return self.process is not None and self.process.process.returncode is None

    async def start(self, *, ahead_s: int = 0, **settings: object) -> None:
        """Start it, with a clock that is so many seconds ahead, and return once it can run turns."""
        await self._stack.aclose()
        chosen = {**self._settings, **settings}
        # The wall clock of the gateway and of its Codex, as the C library gives it to both.
        faked = ["env", f"LD_PRELOAD={FAKETIME}", f"FAKETIME=+{ahead_s}s", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
        self.process = await self._stack.enter_async_context(
            gateway_process(self._directory, self._provider, chosen, wrapper=faked if ahead_s else ())
        )
        await self.process.ready()

    async def stop(self) -> None:
        """Ask it to stop, as a service manager does, and return once it has."""
        assert self.process is not None
        self.process.send(signal.SIGTERM)
        await self.process.process.wait()
        await self._stack.aclose()

    async def kill(self) -> None:
        """Kill it, and return once it is gone."""
        assert self.process is not None
        self.process.send(signal.SIGKILL)
        await self.process.process.wait()
        await self._stack.aclose()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop it for a while, as a machine does that is suspended. Its Codex waits with it, for want of a reader."""
        assert self.process is not None
        self.process.send(signal.SIGSTOP)
        try:
            yield
        finally:
            if self.runs:
                self.process.send(signal.SIGCONT)

    async def join(self, stack: contextlib.AsyncExitStack, redis_port: int, postgres: Path, own: Path) -> None:
        """Reach Redis and Postgres through relays from its next start on."""
        redis, port = await stack.enter_async_context(tcp_relay(redis_port))
        await asyncio.to_thread(own.mkdir)
        database = await stack.enter_async_context(unix_relay(postgres / POSTGRES_SOCKET, own / POSTGRES_SOCKET))
        self.relays = [redis, database]
        self._settings |= {
            "PROXY_RATE_LIMIT_STORAGE": f"redis://127.0.0.1:{port}/0",
            "PROXY_DATABASE_URL": f"postgresql://postgres:@/postgres?host={own}",
        }

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Let nothing pass between it and what replicas share."""
        with contextlib.ExitStack() as stack:
            for relay in self.relays:
                stack.enter_context(relay.silent())
            yield

    def client(self, key: str = API_KEY, timeout_s: float = TIMEOUT_S) -> httpx2.AsyncClient:
        """Return a client of this replica alone."""
        return client(self.url, key, timeout_s=timeout_s)

    def log(self) -> str:
        """Return what it has logged since it was started."""
        assert self.process is not None
        return self.process.log()

    async def aclose(self) -> None:
        """End it, however it is."""
        if self.process is not None and self.runs:
            self.process.send(signal.SIGCONT)
        await self._stack.aclose()


class Fleet:
    """Everything together."""

    def __init__(self, directory: Path, learned: Path, model: ScriptedModel, redis: RedisServer, postgres: Any) -> None:
        """`learned` is what a gateway knows of its Codex after its first start."""
        self.model = model
        self.redis = redis
        self._postgres = postgres
        self.database_url = str(postgres.get_uri())
        shared: dict[str, object] = {
            "PROXY_DATABASE_URL": self.database_url,
            "PROXY_RATE_LIMIT_STORAGE": redis.url,
            "PROXY_DRAIN_S": DRAIN_S,
            "WORKER_COUNT": 1,
        }
        self.replicas: dict[str, Replica] = {}
        for name in NAMES:
            place = directory / name
            shutil.copytree(learned, place / "data" / "binaries")
            self.replicas[name] = Replica(name, place, model.base_url, shared)
        self.balancer: Balancer
        self._gates: list[asyncio.Event] = []

    @property
    def one(self) -> Replica:
        """Return the first replica."""
        return self.replicas["one"]

    @property
    def two(self) -> Replica:
        """Return the second replica."""
        return self.replicas["two"]

    @property
    def three(self) -> Replica:
        """Return the third replica."""
        return self.replicas["three"]

    def script(self, *replies: Reply) -> None:
        """Let the model answer the next requests so, whoever asks, and forget what it was asked before."""
        self.model.requests.clear()
        self.model.respond = in_order(*replies)

    def gate(self) -> asyncio.Event:
        """Return a gate for the model to wait at; the end of the test opens it, however that comes."""
        self._gates.append(asyncio.Event())
        return self._gates[-1]

    async def rest(self) -> None:
        """Let the model end what it is still asked for, and return once it is at rest."""
        for gate in self._gates:
            gate.set()
        self._gates.clear()
        async with asyncio.timeout(REST_S):
            await self.model.until(lambda model: model.active == 0)

    def asked(self) -> list[JsonObject]:
        """Return what the model was asked since it was scripted."""
        return [request.body for request in self.model.requests]

    async def mend(self) -> None:
        """Start whatever is not there."""
        if not self.redis.runs:
            await self.redis.start()
        missing = [replica for replica in self.replicas.values() if not replica.runs]
        async with asyncio.timeout(START_PATIENCE_S):
            await asyncio.gather(*(replica.start() for replica in missing))
        # A Redis that is back is used after a moment.
        await until_told(self._none_degraded)

    async def _none_degraded(self) -> bool:
        for replica in self.replicas.values():
            async with replica.client() as http:
                if "degraded" in (await http.get("/readyz")).json():
                    return False
        return True

    async def balanced(self) -> None:
        """Return once HAProxy sees every replica ready."""
        for name in NAMES:
            await self.balancer.set_state(name, "ready")
        await until_told(self._all_up, within_s=START_PATIENCE_S)

    async def _all_up(self) -> bool:
        return set((await self.balancer.states()).values()) == {"UP"}

    async def query(self, sql: str, *values: object) -> Any:
        """Return the first value that the database gives."""
        connection = await asyncpg.connect(self.database_url)
        try:
            return await connection.fetchval(sql, *values)
        finally:
            await connection.close()

    async def cut_database(self) -> None:
        """End every connection to the database but our own."""
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        await self.query(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {others}")

    @contextlib.asynccontextmanager
    async def without_database(self) -> AsyncIterator[None]:
        """Stop Postgres at once, without a word to anybody, and start it again at the end."""
        pid = self._postgres.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)
        try:
            yield
        finally:
            await asyncio.to_thread(self._postgres.start)


@contextlib.asynccontextmanager
async def running_fleet(
    directory: Path, learned: Path, model: ScriptedModel, *, relays: bool = False
) -> AsyncIterator[Fleet]:
    """Run all of it; all replicas start at once, on an empty database. With `relays`, each can be cut off."""
    async with contextlib.AsyncExitStack() as stack:
        # As the compose file has it; tests of single parts have Redis.
        redis = RedisServer(directory, valkey=True)
        await stack.enter_async_context(redis.running())
        postgres = stack.enter_context(running_server())
        fleet = Fleet(directory, learned, model, redis, postgres)
        # Not below the directory of the test: the path of a socket must be short.
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet")))
        for replica in fleet.replicas.values() if relays else ():
            await replica.join(stack, redis.port, Path(postgres.pgdata), sockets / replica.name)
        ports = [replica.port for replica in fleet.replicas.values()]
        fleet.balancer = await stack.enter_async_context(running_balancer(directory, ports))
        for replica in fleet.replicas.values():
            stack.push_async_callback(replica.aclose)
        await fleet.mend()
        yield fleet
