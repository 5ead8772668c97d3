"""What the gateway and its Codex hold together, as a user runs it: the real Codex, default settings."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from bench.client import ASK, CHAT, DELTAS, Client
from bench.plots import Plot
from bench.processes import ROOT, module
from bench.report import Goal, Section, at_most, table
from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.processes import descendants, own_share_mb
from turnbridge.codex.versions import RECOMMENDED, install
from turnbridge.turn.errors import BackendUnavailable

TITLE = "Memory of all processes together"
INTRODUCTION = (
    "The gateway, its app-servers and their guards, with default settings. Pages that processes share (the Codex "
    "binary, for one) count once (PSS), and less if others run the same file meanwhile. Each turn is a conversation of "
    "its own, the worst case for Codex, which keeps every recent thread in memory."
)
TURNS, QUICK_TURNS = 10_000, 200
AT_ONCE = 16
SAMPLE_S = 0.25
# So many samples are drawn.
PLOTTED = 200
# What the first start and the first turns leave to be done.
SETTLE_S = 3.0


@dataclass(slots=True)
class Footprint:
    """Memory in MB."""

    idle: float
    most: float
    after: float
    app_servers: int
    samples: list[tuple[float, float]]
    """Seconds, and the memory then."""


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure the pinned Codex, and the one that we recommend if npm has it."""
    binaries: dict[str, Path | None] = {"pinned Codex": None}
    try:
        binaries[f"Codex {RECOMMENDED}"] = await asyncio.to_thread(install, ROOT / ".venv" / "bench-codex", RECOMMENDED)
    except BackendUnavailable as error:
        print(f"Codex {RECOMMENDED} is left out: {error.message}")
    turns = QUICK_TURNS if quick else TURNS
    seen = {name: await _measure(directory / name, binary, turns) for name, binary in binaries.items()}
    rows = [
        (name, f"{one.idle:.0f} MB", f"{one.most:.0f} MB", f"{one.after:.0f} MB", str(one.app_servers))
        for name, one in seen.items()
    ]
    head = ("", "idle", f"most during {turns:,} turns, {AT_ONCE} at once", "after them", "app-servers after them")
    goals: list[Goal] = []
    for name, one in seen.items():
        goals += [
            at_most(f"footprint, {name}: idle", one.idle, 300, " MB"),
            at_most(f"footprint, {name}: most with {AT_ONCE} at once", one.most, 700, " MB"),
            at_most(f"footprint, {name}: after {turns:,} turns", one.after, 700, " MB"),
        ]
    plot = Plot(
        name="memory-of-all-processes",
        title=f"All processes together, {AT_ONCE} turns at once",
        unit="MB",
        kind="curves",
        series={name: one.samples for name, one in seen.items()},
        across="seconds",
    )
    return Section(title=TITLE, lines=[INTRODUCTION, "", *table(head, rows)], goals=goals, plots=[plot])


async def _measure(directory: Path, binary: Path | None, turns: int) -> Footprint:
    chosen = {"PROXY_API_KEY": "sk-bench", **({"CODEX_BIN": binary} if binary else {})}
    async with (
        module("bench.model") as (model, _),
        gateway_process(directory, f"{model}/v1", chosen) as gateway,
    ):
        await gateway.ready()
        await asyncio.sleep(SETTLE_S)
        idle = _held(gateway)
        samples = [(0.0, idle)]
        watching = asyncio.ensure_future(_watch(gateway, samples))
        await _serve(gateway.url, turns)
        watching.cancel()
        await asyncio.sleep(SETTLE_S)
        return Footprint(
            idle=idle,
            most=max(held for _, held in samples),
            after=_held(gateway),
            app_servers=len(gateway.app_servers()),
            samples=samples[:: len(samples) // PLOTTED + 1],
        )


async def _watch(gateway: GatewayProcess, samples: list[tuple[float, float]]) -> None:
    began = time.monotonic()
    while True:
        samples.append((round(time.monotonic() - began, 1), round(_held(gateway), 1)))
        await asyncio.sleep(SAMPLE_S)


def _held(gateway: GatewayProcess) -> float:
    return sum(map(own_share_mb, (gateway.pid, *descendants(gateway.pid))))


async def _serve(url: str, turns: int) -> None:
    client = Client(url, CHAT)
    left = iter(range(turns))

    async def ask_on() -> None:
        for _ in left:
            await client.ask(client.says(ASK), deltas=DELTAS)

    await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))
    client.close()
