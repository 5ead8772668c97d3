"""What the gateway's own process holds, and how soon it listens."""

import asyncio
import compileall
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from bench.client import ASK, CHAT, DELTAS, HOLD, RESPONSES, Client
from bench.processes import NOBODY, ROOT, gateway_alone
from bench.report import Section, at_most, table
from tests.support.gateway_process import gateway_process
from tests.support.processes import resident_mb

TITLE = "Memory and start"
STARTS = 7
REQUESTS, QUICK_REQUESTS = 10_000, 200
STREAMS, QUICK_STREAMS = 1000, 50
AT_ONCE = 8
# Enough for everything that is loaded at its first use.
FIRST_REQUESTS = 200


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure an idle gateway, one that has served many requests, and one with many open streams."""
    # As after a user's first start. Where Python may not write bytecode, each start would compile what has changed.
    compileall.compile_dir(ROOT / "src", quiet=1)
    homes = [directory / f"start-{number}" for number in range(2 if quick else STARTS)]
    first, second = [await _start(home) for home in homes], [await _start(home) for home in homes]
    listening = [start.listens_s for start in (*first, *second)]
    requests, streams = (QUICK_REQUESTS, QUICK_STREAMS) if quick else (REQUESTS, STREAMS)
    async with gateway_alone(directory / "served") as running:
        idle = resident_mb(running.pid)
        await _serve(running.url, requests)
        served = resident_mb(running.pid)
    async with gateway_alone(directory / "open") as running:
        await _serve(running.url, FIRST_REQUESTS)
        before = resident_mb(running.pid)
        client = Client(running.url)
        opened = [await client.open(client.says(HOLD)) for _ in range(streams)]
        per_stream = (resident_mb(running.pid) - before) / streams * 1000
        for stream in opened:
            stream.close()
    return Section(
        title=TITLE,
        lines=table(
            ("", "seen"),
            [
                ("from the command to the first answer of `/healthz`, median", f"{statistics.median(listening):.2f} s"),
                ("the slowest of them", f"{max(listening):.2f} s"),
                ("from the command until turns can run, at a first start, median", _ready(first)),
                ("the same at a second start", _ready(second)),
                ("idle", f"{idle:.0f} MB"),
                (f"after {requests:,} requests of {DELTAS} deltas", f"{served:.0f} MB"),
                (f"for each of {streams:,} open streams", f"{per_stream:.0f} KB"),
            ],
        ),
        goals=[
            at_most("start: listening before Codex is up", statistics.median(listening), 0.7, " s"),
            at_most("start: a second one can run turns, the slowest", max(start.ready_s for start in second), 3, " s"),
            at_most("memory, idle", idle, 80, " MB"),
            at_most(f"memory after {requests:,} requests", served, 120, " MB"),
            at_most("memory for each open stream", per_stream, 100, " KB"),
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How long a gateway took from its command on."""

    listens_s: float
    ready_s: float


async def _start(directory: Path) -> Start:
    """Start a gateway; its Codex is the real one, and starts meanwhile."""
    began = time.perf_counter()
    async with gateway_process(directory, NOBODY, {}) as running, running.client() as http:
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
