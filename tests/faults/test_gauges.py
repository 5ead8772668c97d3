"""What an operator sees in `/metrics` of turns, threads and app-servers, while they come and go."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.faults.leftovers import grow, is_whole
from tests.support.gateway import Bridge, running_bridge
from tests.support.plain_http import CHAT, RESPONSES, Ending, ask
from tests.support.waiting import until
from turnbridge.codex.process.pool import Pool
from turnbridge.codex.process.worker import Worker
from turnbridge.scripted_model.replies import (
    Wait,
    answer,
    function_call,
    message,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LOOK: JsonObject = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
GAUGES = ("turns_running", "requests_waiting", "turns_parked", "threads_warm", "app_servers")
ASK: JsonObject = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}], "stream": True}
WELL = Ending(status=200, text="Well.")


async def series(bridge: Bridge) -> dict[str, float]:
    """Return every series with its value."""
    lines = (await bridge.http.get("/metrics")).text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


async def shown(bridge: Bridge) -> tuple[float, ...]:
    """Return the gauges, in their order."""
    values = await series(bridge)
    return tuple(values[f"turnbridge_{name}"] for name in GAUGES)


async def kill(pool: Pool, worker: Worker) -> None:
    """Kill an app-server, and wait until another one has taken its place."""
    os.kill(worker.process.pid, signal.SIGKILL)
    await until(lambda: worker not in pool.workers and len(pool.workers) == 2)


@pytest.mark.promise("ingress.metrics")
async def test_the_gauges_follow_turns_threads_and_app_servers(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, WORKER_COUNT=2, PROXY_MAX_TURNS=1, PROXY_WARM_THREADS_MAX=8) as bridge:
        pool = bridge.gateway.pool
        await grow(pool, 2)
        assert await shown(bridge) == (0, 0, 0, 0, 2)
        gate = asyncio.Event()
        bridge.script(answer(Wait(gate=gate), message("Well.")), answer(function_call("look", "{}")))
        running = asyncio.ensure_future(ask(bridge.http, CHAT, ASK))
        await bridge.model.until(lambda model: model.active == 1)
        waiting = asyncio.ensure_future(
            ask(bridge.http, RESPONSES, {"model": "gpt-5.5", "input": "hi", "tools": [LOOK]})
        )
        await until(lambda: bridge.gateway.admission.waiting == 1)
        assert await shown(bridge) == (1, 1, 0, 0, 2)
        gate.set()
        assert await running == WELL
        assert (await waiting).calls
        assert await shown(bridge) == (0, 0, 1, 1, 2)
        waited_ms = int((await waiting).headers["x-turnbridge-queued-ms"])
        told = await series(bridge)
        assert told["turnbridge_queue_wait_seconds_count"] == 2
        assert told["turnbridge_queue_wait_seconds_sum"] == pytest.approx(waited_ms / 1000, abs=0.01)
        assert told['turnbridge_queue_wait_seconds_bucket{le="0.001"}'] == 1
        for deaths, died in enumerate(pool.workers, start=1):
            await until(lambda: is_whole(pool))
            await kill(pool, died)
            assert (await series(bridge))['turnbridge_app_server_replacements_total{reason="crashed"}'] == deaths
        # Nobody can continue what was in them, though it is forgotten only when its time is up.
        assert (await shown(bridge))[2:4] == (0, 0)
