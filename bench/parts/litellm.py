"""The gateway with a whole Codex behind it, against other proxies with the scripted model right behind them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.client import CHAT, RESPONSES, Client
from bench.plots import bars
from bench.processes import gateway, gateway_alone, module
from bench.proxies import LITELLM, VIA_CODEX, litellm, via_codex
from bench.report import Section, at_least, table
from bench.rounds import Measured, Side, interleaved, warm_up
from tests.support.processes import resident_mb

TITLE = "Other proxies"
INTRODUCTION = (
    f"LiteLLM {LITELLM}, one worker, and openai-api-server-via-codex {VIA_CODEX}, which is written in Go and uses a "
    "ChatGPT login without Codex, with the scripted model right behind them; the gateway with the same model behind "
    "two real app-servers, and once more with an app-server of recorded shapes. The least gateway, which passes chat "
    "messages and deltas on and does nothing else (`bench/least.py`), has one real app-server."
)
HEAD = (
    "",
    "first text ms",
    "p99 ms",
    "requests/s",
    "deltas/s",
    "own CPU ms per request",
    "own CPU us per delta",
    "own memory MB",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Requests of one kind."""

    name: str
    path: str
    deltas: int
    at_once: int
    requests: int
    rounds: int


CASES = (
    Case(name="chat, 20 deltas, 1 at once", path=CHAT, deltas=20, at_once=1, requests=20, rounds=5),
    Case(name="chat, 20 deltas, 8 at once", path=CHAT, deltas=20, at_once=8, requests=64, rounds=5),
    Case(name="responses, 20 deltas, 8 at once", path=RESPONSES, deltas=20, at_once=8, requests=64, rounds=3),
    Case(name="chat, 500 deltas, 8 at once", path=CHAT, deltas=500, at_once=8, requests=16, rounds=3),
)
LEAST = "least gateway, 1 Codex"
"""It knows chat only."""
CHAT_SIDES = ("LiteLLM, no Codex", "gateway, 2 Codex", "gateway, scripted Codex", LEAST, "via-codex, no Codex")
QUICK = tuple(replace(case, requests=8, rounds=1) for case in CASES)


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure what clients feel, and what each event costs."""
    async with (
        module("bench.model") as (model, _),
        litellm(directory, model) as lite,
        via_codex(directory, model) as go,
        gateway(directory / "whole", f"{model}/v1", WORKER_COUNT=2) as whole,
        gateway_alone(directory / "alone") as alone,
        module("bench.least", f"{model}/v1", str(directory / "least")) as (least, least_pid),
    ):
        servers: list[tuple[str, Sequence[int]]] = [
            (lite.url, lite.pids),
            (whole.url, [whole.pid]),
            (alone.url, [alone.pid]),
            (least, [least_pid]),
            (go.url, go.pids),
        ]
        lines: list[str] = []
        measured: list[list[Measured]] = []
        for case in QUICK if quick else CASES:
            sides = [
                _side(name, url, case, pids)
                for name, (url, pids) in zip(CHAT_SIDES, servers, strict=True)
                if case.path == CHAT or name != LEAST
            ]
            await warm_up(sides, requests=8)
            found = await interleaved(sides, at_once=case.at_once, requests=case.requests, rounds=case.rounds)
            measured.append(found)
            rows = [_row(side, one) for side, one in zip(sides, found, strict=True)]
            lines += [f"{case.name}:", "", *table(HEAD, rows), ""]
        memory = _memory(lite.pids) / _memory([whole.pid])
    started = (
        f"From the command until it listens, LiteLLM takes {lite.started_s:.2f} s and via-codex {go.started_s:.2f}."
    )
    return _section([*lines, started, ""], measured, memory)


def _side(name: str, url: str, case: Case, pids: Sequence[int]) -> Side:
    client = Client(url, case.path)
    request = client.says(json.dumps({"deltas": case.deltas}))
    return Side(name=name, ask=lambda: client.ask(request, deltas=case.deltas), own=pids)


def _memory(pids: Sequence[int]) -> float:
    return sum(map(resident_mb, pids))


def _row(side: Side, one: Measured) -> list[str]:
    times = [f"{figure:.1f}" for figure in (one.median_ms, one.p99_ms, one.rate)]
    costs = [f"{one.deltas / one.wall:,.0f}", f"{one.own_ms:.2f}", f"{one.delta_us:.1f}"]
    return [side.name, *times, *costs, f"{_memory(list(side.own)):.0f}"]


def _times(case: list[Measured], side: int) -> float:
    """Return how many times the processor time of a side LiteLLM takes for a delta."""
    return case[0].delta_us / case[side].delta_us


def _section(lines: list[str], cases: list[list[Measured]], memory: float) -> Section:
    _, short, _, long = cases
    return Section(
        title=TITLE,
        lines=[INTRODUCTION, "", *lines[:-1]],
        goals=[
            at_least("litellm: requests/s with a whole Codex : its with none", short[1].rate / short[0].rate, 1),
            at_least("litellm: its CPU per delta : ours, 500 deltas, 2 Codex behind us", _times(long, 1), 50),
            at_least("litellm: the same, 20 deltas, no Codex behind us either", _times(short, 2), 50),
            at_least(
                f"litellm: the same, 20 deltas, 2 Codex behind us (the least gateway: {_times(short, 3):.3g})",
                _times(short, 1),
                50,
            ),
            at_least("litellm: its memory : ours", memory, 5),
        ],
        plots=[
            bars(
                "cpu-beside-litellm",
                "Own processor time for a chat of 500 deltas, 8 at once",
                "ms",
                {name: one.own_ms for name, one in zip(CHAT_SIDES, long, strict=True)},
            )
        ],
    )
