"""What the gateway's own process holds, and how soon it listens."""

import asyncio
import compileall
import contextlib
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from websockets.asyncio.client import connect

from bench.client import API_KEY, ASK, CHAT, DELTAS, HOLD, RESPONSES, Client
from bench.environments import as_users_have_it
from bench.processes import NOBODY, ROOT, gateway_alone
from bench.report import Section, at_most, table
from tests.support.gateway_process import gateway_process
from tests.support.processes import resident_mb
from turnbridge.cli.main import app

TITLE = "Memory and start"
STARTS = 7
HELPS = 5
REQUESTS, QUICK_REQUESTS = 10_000, 200
STREAMS, QUICK_STREAMS = 10_000, 50
SOCKETS, QUICK_SOCKETS = 1000, 20
# Requests beside open connections, of which the median first text is taken.
BESIDE = 100
AT_ONCE = 8
# Enough for everything that is loaded at its first use.
FIRST_REQUESTS = 200


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure an idle gateway, one that has served many requests, and one with many open streams."""
    # As after a user's first start. Where Python may not write bytecode, each start would compile what has changed.
    compileall.compile_dir(ROOT / "src", quiet=1)
    python = as_users_have_it()
    helps = {name: _help_s(python, name) for name in sorted(app.commands)}
    slowest = max(helps, key=lambda name: helps[name])
    homes = [directory / f"start-{number}" for number in range(2 if quick else STARTS)]
    first, second = [await _start(home, python) for home in homes], [await _start(home, python) for home in homes]
    listening = [start.listens_s for start in (*first, *second)]
    requests, streams = (QUICK_REQUESTS, QUICK_STREAMS) if quick else (REQUESTS, STREAMS)
    async with gateway_alone(directory / "served") as running:
        idle = resident_mb(running.pid)
        await _serve(running.url, requests)
        served = resident_mb(running.pid)
    open_streams = await _open(directory / "streams", streams, _streams)
    sockets = await _open(directory / "sockets", QUICK_SOCKETS if quick else SOCKETS, _sockets)
    return Section(
        title=TITLE,
        lines=table(
            ("", "seen"),
            [
                (f"`-h` of the slowest command, `{slowest}`", f"{helps[slowest]:.3f} s"),
                ("from the command to the first answer of `/healthz`, median", f"{statistics.median(listening):.2f} s"),
                ("the slowest of them", f"{max(listening):.2f} s"),
                ("from the command until turns can run, at a first start, median", _ready(first)),
                ("the same at a second start", _ready(second)),
                ("idle", f"{idle:.0f} MB"),
                (f"after {requests:,} requests of {DELTAS} deltas", f"{served:.0f} MB"),
                *open_streams.rows(f"{streams:,} open streams, each with a turn"),
                *sockets.rows(f"{SOCKETS:,} WebSockets"),
            ],
        ),
        goals=[
            at_most(f"start: the slowest `-h`, `{slowest}`", helps[slowest], 0.12, " s"),
            at_most("start: listening before Codex is up", statistics.median(listening), 0.35, " s"),
            at_most(
                "start: a second one can run turns, median",
                statistics.median(start.ready_s for start in second),
                0.5,
                " s",
            ),
            at_most("memory, idle", idle, 80, " MB"),
            at_most(f"memory after {requests:,} requests", served, 120, " MB"),
            at_most("memory for each open stream", open_streams.each_kb, 30, " KB"),
            at_most("memory for each WebSocket", sockets.each_kb, 30, " KB"),
            at_most("first text beside open streams : without them", open_streams.slower, 1.1),
            at_most("first text beside WebSockets : without them", sockets.slower, 1.1),
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How long a gateway took from its command on."""

    listens_s: float
    ready_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Open connections: the memory of each, and the first text of others before and beside them."""

    each_kb: float
    before_ms: float
    beside_ms: float

    @property
    def slower(self) -> float:
        """Return how much longer the first text takes beside them."""
        return self.beside_ms / self.before_ms

    def rows(self, what: str) -> list[tuple[str, str]]:
        """Return what was seen."""
        return [
            (f"for each of {what}", f"{self.each_kb:.0f} KB"),
            ("first text of others, without and beside them", f"{self.before_ms:.2f} and {self.beside_ms:.2f} ms"),
        ]


async def _open(
    directory: Path, count: int, opening: Callable[[str, int], contextlib.AbstractAsyncContextManager[None]]
) -> Crowd:
    async with gateway_alone(directory, PROXY_MAX_TURNS=2 * STREAMS) as running:
        await _serve(running.url, FIRST_REQUESTS)
        before_ms, before_mb = await _first_text_ms(running.url), resident_mb(running.pid)
        async with opening(running.url, count):
            each_kb = (resident_mb(running.pid) - before_mb) / count * 1000
            return Crowd(each_kb=each_kb, before_ms=before_ms, beside_ms=await _first_text_ms(running.url))


@contextlib.asynccontextmanager
async def _streams(url: str, count: int) -> AsyncIterator[None]:
    client = Client(url)
    opened = [await client.open(client.says(HOLD)) for _ in range(count)]
    yield
    for stream in opened:
        stream.close()


@contextlib.asynccontextmanager
async def _sockets(url: str, count: int) -> AsyncIterator[None]:
    address, key = url.replace("http", "ws", 1) + RESPONSES, {"authorization": f"Bearer {API_KEY}"}
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(connect(address, additional_headers=key, compression=None))
        yield


async def _first_text_ms(url: str) -> float:
    client = Client(url)
    timed = [await client.ask(client.says(ASK), deltas=DELTAS) for _ in range(BESIDE)]
    client.close()
    return statistics.median(one.first for one in timed) * 1000


def _help_s(python: str, command: str) -> float:
    """Return how long a command takes to describe itself, the median of several times."""
    took = []
    for _ in range(HELPS):
        began = time.perf_counter()
        subprocess.run([python, "-m", "turnbridge", command, "-h"], check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


async def _start(directory: Path, python: str) -> Start:
    """Start a gateway; its Codex is the real one, and starts meanwhile."""
    began = time.perf_counter()
    async with gateway_process(directory, NOBODY, {}, python=python) as running, running.client() as http:
        (await http.get("/healthz")).raise_for_status()
        listens_s = time.perf_counter() - began
        await running.ready()
        return Start(listens_s=listens_s, ready_s=time.perf_counter() - began)


def _ready(starts: Sequence[Start]) -> str:
    return f"{statistics.median(start.ready_s for start in starts):.2f} s"


async def _serve(url: str, requests: int) -> None:
    """Run requests of both APIs."""
    clients = [Client(url, path) for path in (CHAT, RESPONSES)]
    left = iter(zip(range(requests), cycle((client, client.says(ASK)) for client in clients), strict=False))

    async def ask_on() -> None:
        for _, (client, request) in left:
            await client.ask(request, deltas=DELTAS)

    await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))
    for client in clients:
        client.close()
