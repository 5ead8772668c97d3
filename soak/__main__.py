"""Runs a soak, and ends with 0 if nothing was unexplained, nothing leaked, and every bound was kept."""

import argparse
import asyncio
import contextlib
import random
import re
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import codex_cli_bin

from soak import noisy_codex
from soak.faults import Faults
from soak.hostile import HOSTILE_KEY, HostileClients
from soak.load import KINDS, REQUEST_TIMEOUT_S, Clients
from soak.model import respond
from soak.report import Bounds, Report
from soak.watch import Sample, Watcher
from tests.support.gateway_process import API_KEY, GatewayProcess, gateway_process
from tests.support.latency import LatencyWatch
from turnbridge.scripted_model.server import ScriptedModel

WORKERS = 2
# Little, so that every app-server is recycled several times.
GROWTH_MB_MIXED = 60
GROWTH_MB_TURNS = 96
# A short soak has its share of faults too.
FAULT_INTERVAL_S, FAULTS_AT_LEAST = 3.0, 8
# What is abandoned must be given up before the end.
PARKED_TTL_S = 5
# How long the gateway has to come to rest when nobody asks any more.
REST_S = 40.0
# A connection that is just being closed is no leak.
SPARE_DESCRIPTORS = 3
# Of one app-server: its pipes, and its guard.
DESCRIPTORS_OF_ONE = 4

# What may be resident. An app-server begins with 130 MB, and is recycled when it has grown; that is measured every few
# threads. As many as serve may wait for clients, one is on its way out, and one replaces it.
GATEWAY_MB = 200.0
FRESH_MB = 300.0
# A fault can freeze the very app-server that would replace another. That is noticed after this time, in which the other
# one goes on and takes up to 55 MB a second.
STARTUP_TIMEOUT_MS, HELD_UP_MB = 5000, 400.0
# What hostile clients may add to the gateway: the vocabulary of the tokenizer, and for each of them a body of 10 MB and
# all the small values that it is read into.
VOCABULARY_MB, HOSTILE_MB = 50.0, 150.0

# How long `/healthz` may take beside all this. The promise is a quarter of a second; here more processes want to run
# than there are cores.
HEALTHZ_P99_MS, HEALTHZ_LONGEST_MS = 250.0, 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done."""

    seconds: float
    turns: int
    clients: int
    hostile: int
    seed: int

    @property
    def mode(self) -> str:
        """Return what to call it."""
        return f"{self.turns} turns in a row" if self.turns else f"mixed load for {self.seconds:.0f} s"

    @property
    def is_attacked(self) -> bool:
        """Tell whether there are hostile clients."""
        return self.hostile > 0 and not self.turns

    @property
    def growth_mb(self) -> int:
        """Return after how much growth an app-server is recycled."""
        return GROWTH_MB_TURNS if self.turns else GROWTH_MB_MIXED

    @property
    def app_servers(self) -> int:
        """Return how many processes there are at most at rest; the program in between, of a mixed load, counts too."""
        return WORKERS * (1 if self.turns else 2)

    def bounds(self) -> Bounds:
        """Return what may be held."""
        one = FRESH_MB + self.growth_mb
        held_up = 0.0 if self.turns else HELD_UP_MB
        return Bounds(
            gateway_mb=GATEWAY_MB + (VOCABULARY_MB + HOSTILE_MB * self.hostile if self.is_attacked else 0.0),
            app_server_mb=one + held_up,
            app_servers_mb=one * (2 * WORKERS + 2) + held_up,
            healthz_p99_ms=HEALTHZ_P99_MS,
            healthz_longest_ms=HEALTHZ_LONGEST_MS,
        )


async def soak(plan: Plan, directory: Path) -> Report:
    """Run the plan against a gateway of its own."""
    async with (
        ScriptedModel(respond) as model,
        gateway_process(directory, model.base_url, _settings(plan, directory), program="soak.serve") as gateway,
        gateway.client(REQUEST_TIMEOUT_S) as http,
    ):
        await gateway.ready()
        chance = random.Random(plan.seed)
        clients = Clients(gateway=gateway, http=http, chance=chance)
        faults = Faults(gateway, chance, interval_s=min(FAULT_INTERVAL_S, plan.seconds / FAULTS_AT_LEAST))
        hostile = HostileClients(gateway, chance)
        watcher = Watcher(gateway, clients.outcomes)
        # The first of each kind loads what stays loaded.
        for kind in KINDS:
            await clients.once(kind)
        for kind in hostile.kinds() if plan.is_attacked else ():
            await hostile.once(kind)
        first = await _at_rest(gateway, watcher, plan.app_servers)
        watching = asyncio.ensure_future(watcher.run())
        latency = await LatencyWatch.start(gateway.url)
        await (_turns(plan, clients) if plan.turns else _mixed(plan, clients, hostile, faults))
        measured = await latency.read()
        last = await _at_rest(gateway, watcher, plan.app_servers, first)
        watching.cancel()
        return Report(
            mode=plan.mode,
            seed=plan.seed,
            outcomes=clients.outcomes,
            unexplained=[outcome for outcome in clients.outcomes if not faults.explain(outcome)],
            faults=faults.counts(),
            samples=[*watcher.samples, last],
            bounds=plan.bounds(),
            leaks=_leaks(first, last, plan.app_servers),
            attacks=hostile.attacks,
            latency=measured,
        )


def _settings(plan: Plan, directory: Path) -> dict[str, object]:
    settings: dict[str, object] = {
        "WORKER_COUNT": WORKERS,
        "WORKER_MAX_GROWTH_MB": plan.growth_mb,
        # One place less than clients, so that some of them have to wait.
        "PROXY_MAX_TURNS": max(1, plan.clients - 1),
        "PROXY_API_KEY": f"{API_KEY},{HOSTILE_KEY}",
        "PROXY_PARKED_TURN_TTL_S": PARKED_TTL_S,
        "WORKER_STARTUP_TIMEOUT_MS": STARTUP_TIMEOUT_MS,
    }
    return settings if plan.turns else {**settings, "CODEX_BIN": _noisy(directory)}


async def _mixed(plan: Plan, clients: Clients, hostile: HostileClients, faults: Faults) -> None:
    """Let many clients ask for all kinds of things, hostile ones among them, while app-servers are harmed."""
    until = time.monotonic() + plan.seconds
    harming = asyncio.ensure_future(faults.run(until))
    honest = (clients.run(until) for _ in range(plan.clients))
    await asyncio.gather(*honest, *(hostile.run(until) for _ in range(plan.hostile)))
    harming.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await harming


async def _turns(plan: Plan, clients: Clients) -> None:
    """Let a few clients ask for short answers, one after another."""
    left = iter(range(plan.turns))

    async def ask_on() -> None:
        for number in left:
            await clients.once(("chat", "responses stream")[number % 2])

    await asyncio.gather(*(ask_on() for _ in range(plan.clients)))


async def _at_rest(gateway: GatewayProcess, watcher: Watcher, servers: int, like: Sample | None = None) -> Sample:
    """Return what is held when nobody asks any more, or in the end when it has not come to rest."""
    end = time.monotonic() + REST_S
    async with gateway.client() as http:
        while time.monotonic() < end:
            active = re.findall(r"^turnbridge_active_requests (\S+)$", (await http.get("/metrics")).text, re.MULTILINE)
            seen = watcher.look()
            if active == ["1.0"] and not _leaks(like or seen, seen, servers):
                return seen
            await asyncio.sleep(0.2)
    return watcher.look()


def _leaks(first: Sample, last: Sample, servers: int) -> list[str]:
    found = []
    if not 0 < last.app_servers <= servers:
        found.append(f"{last.app_servers} app-servers instead of {servers}")
    pipes = DESCRIPTORS_OF_ONE * max(last.app_servers - first.app_servers, 0)
    # The look itself has one connection open, in both cases.
    if last.descriptors > first.descriptors + pipes + SPARE_DESCRIPTORS:
        found.append(f"{last.descriptors} descriptors instead of {first.descriptors}")
    return found


def _noisy(directory: Path) -> Path:
    """Return a program that stands between the gateway and Codex."""
    program = directory / "codex"
    words = (sys.executable, "-I", "-S", noisy_codex.__file__, codex_cli_bin.bundled_codex_path())
    command = " ".join(shlex.quote(str(word)) for word in words)
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="how long the mixed load lasts (default: 5)")
    parser.add_argument(
        "--turns", type=int, default=0, help="instead: so many short turns, no faults; 10000 takes minutes"
    )
    parser.add_argument("--clients", type=int, default=8, help="clients that ask at once (default: 8)")
    parser.add_argument("--hostile", type=int, default=2, help="hostile clients among them (default: 2)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="for the same chances again")
    parser.add_argument(
        "--report", type=Path, default=Path(tempfile.gettempdir()) / "turnbridge-soak.json", help="the JSON file"
    )
    return parser.parse_args()


def main() -> int:
    """Run a soak from the command line."""
    chosen = _arguments()
    plan = Plan(
        seconds=chosen.minutes * 60,
        turns=chosen.turns,
        clients=chosen.clients,
        hostile=chosen.hostile,
        seed=chosen.seed,
    )
    with tempfile.TemporaryDirectory(prefix="turnbridge-soak-") as directory:
        report = asyncio.run(soak(plan, Path(directory)))
        log = shutil.copy(Path(directory) / "gateway.log", chosen.report.with_suffix(".log"))
    report.write(chosen.report)
    print("\n".join(report.lines()))
    print(f"report: {chosen.report}, log of the gateway: {log}")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
