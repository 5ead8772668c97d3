"""The gateway with a whole Codex behind it, against LiteLLM's proxy with the scripted model right behind it."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.client import API_KEY, CHAT, RESPONSES, Client
from bench.environments import environment
from bench.plots import bars
from bench.processes import LOG_CHARACTERS, gateway, gateway_alone, module
from bench.report import Section, at_least, table
from bench.rounds import Measured, Side, interleaved, warm_up
from tests.support.gateway_process import end
from tests.support.processes import descendants, resident_mb

TITLE = "LiteLLM's proxy"
VERSION = "1.106.2"
# Importing it takes ten seconds on a busy machine.
START_TIMEOUT_S = 90.0
LOOK_AGAIN_S = 0.2
CONFIG = """\
model_list:
  - model_name: gpt-5.5
    litellm_params: {{model: openai/gpt-5.5, api_base: "{model}/v1", api_key: sk-scripted}}
general_settings: {{master_key: {key}}}
"""
# Nothing is sent to anybody, and the prices of models come with the package.
ENVIRONMENT = {"LITELLM_TELEMETRY": "False", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
INTRODUCTION = (
    f"LiteLLM {VERSION}, one worker, with the scripted model right behind it; the gateway with the same model behind "
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
CHAT_SIDES = ("LiteLLM, no Codex", "gateway, 2 Codex", "gateway, scripted Codex", "least gateway, 1 Codex")
"""What is compared; the last one knows no other API."""
QUICK = tuple(replace(case, requests=8, rounds=1) for case in CASES)


def prepare() -> Path:
    """Return an environment with LiteLLM, which is made if it is not there."""
    return environment("litellm", f"litellm-{VERSION}", [f"litellm[proxy]=={VERSION}"])


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure what clients feel, and what each event costs."""
    async with (
        module("bench.model") as (model, _),
        proxy(directory, model) as (url, pids),
        gateway(directory / "whole", f"{model}/v1", WORKER_COUNT=2) as whole,
        gateway_alone(directory / "alone") as alone,
        module("bench.least", f"{model}/v1", str(directory / "least")) as (least, least_pid),
    ):
        servers = [(url, pids), (whole.url, [whole.pid]), (alone.url, [alone.pid]), (least, [least_pid])]
        lines: list[str] = []
        measured: list[list[Measured]] = []
        for case in QUICK if quick else CASES:
            sides = [
                _side(name, url, case, pids)
                for name, (url, pids) in zip(CHAT_SIDES, servers, strict=True)
                if case.path == CHAT or name != CHAT_SIDES[-1]
            ]
            await warm_up(sides, requests=8)
            found = await interleaved(sides, at_once=case.at_once, requests=case.requests, rounds=case.rounds)
            measured.append(found)
            rows = [_row(side, one) for side, one in zip(sides, found, strict=True)]
            lines += [f"{case.name}:", "", *table(HEAD, rows), ""]
        memory = _memory(pids) / _memory([whole.pid])
    return _section(lines, measured, memory)


@contextlib.asynccontextmanager
async def proxy(directory: Path, model: str) -> AsyncIterator[tuple[str, list[int]]]:
    """Run LiteLLM's proxy with one worker; yield where it is, and its processes."""
    config = directory / "litellm.yaml"
    config.write_text(CONFIG.format(model=model, key=API_KEY), encoding="utf-8")
    port = _free_port()
    words = ("--config", config, "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1")
    with (directory / "litellm.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            prepare() / "bin/litellm",
            *words,
            env={**os.environ, **ENVIRONMENT},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await _listening(process, port, directory / "litellm.log")
        yield f"http://127.0.0.1:{port}", [process.pid, *descendants(process.pid)]
    finally:
        await end(process)


async def _listening(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    while True:
        if process.returncode is not None:
            raise AssertionError(f"LiteLLM ended: {_last_words(log)}")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(LOOK_AGAIN_S)


def _last_words(log: Path) -> str:
    return log.read_text(encoding="utf-8")[-LOG_CHARACTERS:]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _side(name: str, url: str, case: Case, pids: list[int]) -> Side:
    client = Client(url, case.path)
    request = client.says(json.dumps({"deltas": case.deltas}))
    return Side(name=name, ask=lambda: client.ask(request, deltas=case.deltas), own=pids)


def _memory(pids: list[int]) -> float:
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
