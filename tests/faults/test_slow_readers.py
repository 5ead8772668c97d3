"""A client that stops reading: its turn is interrupted, the memory stays bounded, its place comes free, others flow."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.faults.leftovers import nothing_left
from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.gateway_process import API_KEY as GATEWAY_KEY
from tests.support.gateway_process import gateway_process
from tests.support.plain_http import CHAT, RESPONSES, Ending, ask, client, unread
from tests.support.processes import resident_mb
from tests.support.waiting import until
from turnbridge.codex.process.connection import Inbox
from turnbridge.scripted_model.replies import (
    Reply,
    Wait,
    answer,
    message,
)
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MOST_HELD_MB = 100
"""What may be held for a client that does not read; each answer here is three times as large."""

FLOOD_S = 45
"""How long a busy machine may take to pass on as much as is held."""

BESIDE: JsonObject = {"model": "gpt-5.5", "input": "beside"}
WELL = Ending(status=200, text="Well.")
HI: JsonObject = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}], "stream": True}
ASK: dict[str, JsonObject] = {CHAT: HI, RESPONSES: {"model": "gpt-5.5", "input": "hi", "stream": True}}


def flood(pieces: int, size: int) -> Reply:
    """Return an answer of many pieces of so many bytes, that only an interrupt ends; it takes hardly any memory."""
    return answer(message("", pieces=[*["x" * size] * pieces, Wait(gate=asyncio.Event())]))


def respond(reply: Reply) -> Callable[[JsonObject], Reply]:
    """Return a model that floods whoever does not ask for something else."""
    return lambda request: answer(message("Well.")) if "beside" in json.dumps(request["input"]) else reply


async def well(bridge: Bridge) -> None:
    """Assert that somebody else is served."""
    async with client(bridge.url, API_KEY) as http:
        assert await ask(http, RESPONSES, BESIDE) == WELL


@pytest.mark.promise("limits.slow-readers")
@pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])
async def test_a_turn_that_nobody_reads_is_interrupted_and_logged(
    real: Bridge, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(Inbox, "max_unread_bytes", 100_000)
    async with nothing_left(real):
        real.script()
        real.model.respond = respond(flood(20_000, 100))
        with capture_logs() as logs:
            async with unread(real.url, API_KEY, path, ASK[path]):
                await until(lambda: real.model.active == 0)
                await well(real)
        assert [log["log_level"] for log in logs if log["event"] == "slow_reader"] == ["warning"]


@pytest.mark.promise("limits.slow-readers")
@pytest.mark.parametrize(
    ("choices", "pieces", "size"),
    [(1, 100_000, 3_000), (1, 3_000, 100_000), (2, 1_500, 100_000)],
    ids=["many pieces", "large pieces", "large pieces of two"],
)
async def test_the_memory_for_an_answer_that_nobody_reads_is_bounded(
    started_before: Path, choices: int, pieces: int, size: int
) -> None:
    """In a process of its own, whose memory nobody else uses."""
    async with (
        ScriptedModel(respond(flood(pieces, size))) as model,
        gateway_process(started_before, model.base_url, {"WORKER_COUNT": 1}) as gateway,
    ):
        await gateway.ready()
        before = resident_mb(gateway.pid)

        def grown_mb() -> float:
            return resident_mb(gateway.pid) - before

        async with unread(gateway.url, GATEWAY_KEY, CHAT, {**HI, "n": choices}):
            await until(lambda: grown_mb() > MOST_HELD_MB or model.active == 0, within_s=FLOOD_S)
            assert grown_mb() < MOST_HELD_MB
            async with gateway.client() as http:
                assert await ask(http, RESPONSES, BESIDE) == WELL


@pytest.mark.promise("limits.slow-readers")
async def test_a_client_that_never_reads_and_never_leaves_loses_its_place_when_its_time_is_up(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_TIMEOUT_MS=3000) as bridge, nothing_left(bridge):
        bridge.model.respond = respond(flood(100, 100_000))
        async with unread(bridge.url, API_KEY, RESPONSES, ASK[RESPONSES]):
            await until(lambda: bridge.gateway.admission.running == 0)
            await well(bridge)
