"""WebSockets while Codex dies, the gateway is stopped, or the client stops reading."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.faults.leftovers import nothing_left
from tests.support.gateway import Bridge
from tests.support.gateway_process import API_KEY as GATEWAY_KEY
from tests.support.gateway_process import gateway_process
from tests.support.logs import logged_requests
from tests.support.sockets import Socket, connected, error_of, text_of
from tests.support.waiting import until
from turnbridge.scripted_model.replies import Reply, Wait, answer, message
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.turn.items import Json, JsonObject
from turnbridge.web.server.websocket import WebSocket

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def is_delta(event: JsonObject) -> bool:
    return event["type"] == "response.output_text.delta"


def code_of(event: JsonObject) -> Json:
    """Return the code of an error."""
    error = event["error"]
    assert isinstance(error, dict)
    return error["code"]


class Model:
    """Answers `slow` in two pieces with the gate between them, and all else at once."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def __call__(self, request: JsonObject) -> Reply:
        asked = json.dumps(request["input"])
        if "flood" in asked:
            return answer(message("", pieces=[*["x" * 10_000] * 3_000, Wait(gate=self.gate)]))
        if "slow" in asked:
            return answer(message("Begun, done.", pieces=["Begun", Wait(gate=self.gate), ", done."]))
        return answer(message("Well."))


async def begin(socket: Socket, lane: str) -> None:
    """Ask for a response, and wait for its first words."""
    await socket.create("slow", stream_id=lane)
    await socket.until(is_delta)


@pytest.mark.promise("websocket.killed-codex")
async def test_a_killed_codex_fails_the_responses_that_it_ran_and_no_others(real: Bridge) -> None:
    async with nothing_left(real):
        real.script()
        model = Model()
        real.model.respond = model
        async with connected(real.url) as socket:
            await begin(socket, "a")
            (victim,) = (worker for worker in real.gateway.pool.workers if worker.load)
            await begin(socket, "b")
            (other,) = (worker for worker in real.gateway.pool.workers if worker.load and worker is not victim)
            os.kill(victim.process.pid, signal.SIGKILL)
            failed = await socket.response()
            assert {event["stream_id"] for event in failed} == {"a"}
            assert [event["type"] for event in failed[-2:]] == ["error", "response.failed"]
            assert failed[-2].keys() == {"type", "sequence_number", "error", "stream_id"}
            assert code_of(failed[-2]) == "backend_unavailable"
            assert other.load == 1
            model.gate.set()
            assert text_of(await socket.response()) == "Begun, done."
            assert text_of(await socket.ask("again", stream_id="a")) == "Well."


@pytest.mark.promise("websocket.drain")
async def test_a_gateway_that_is_stopped_lets_responses_end_and_closes_with_1012(started_before: Path) -> None:
    model = Model()
    settings = {"WORKER_COUNT": 1, "PROXY_DRAIN_S": 20}
    async with (
        ScriptedModel(model) as scripted,
        gateway_process(started_before, scripted.base_url, settings) as gateway,
    ):
        await gateway.ready()
        async with (
            connected(gateway.url, key=GATEWAY_KEY) as busy,
            connected(gateway.url, key=GATEWAY_KEY) as idle,
        ):
            await idle.ask("before")
            await begin(busy, "a")
            gateway.send(signal.SIGTERM)
            while "response" in (refusal := (await busy.ask("after", stream_id="b")))[-1]:
                pass  # The signal has not arrived yet.
            assert error_of(refusal) == (400, "websocket_connection_limit_reached", None)
            model.gate.set()
            assert text_of(await busy.response()) == "Begun, done."
            assert (await busy.closed(), await idle.closed()) == (1012, 1012)
            async with asyncio.timeout(20):
                assert await gateway.process.wait() == 0


@pytest.mark.promise("websocket.drain")
async def test_a_response_that_waits_in_the_queue_is_refused_as_those_that_come_later(started_before: Path) -> None:
    model = Model()
    settings = {"WORKER_COUNT": 1, "PROXY_DRAIN_S": 20, "PROXY_MAX_TURNS": 1}
    async with (
        ScriptedModel(model) as scripted,
        gateway_process(started_before, scripted.base_url, settings) as gateway,
    ):
        await gateway.ready()
        async with connected(gateway.url, key=GATEWAY_KEY) as socket, gateway.client() as http:
            await begin(socket, "a")
            await socket.create("waiting", stream_id="b")
            while "turnbridge_requests_waiting 1.0" not in (await http.get("/metrics")).text:
                pass
            gateway.send(signal.SIGTERM)
            assert error_of(await socket.response()) == (400, "websocket_connection_limit_reached", None)
            model.gate.set()
            assert text_of(await socket.response()) == "Begun, done."
            assert await socket.closed() == 1012


@pytest.mark.promise("websocket.drain")
async def test_responses_that_do_not_end_in_time_fail_before_the_close(started_before: Path) -> None:
    settings = {"WORKER_COUNT": 1, "PROXY_DRAIN_S": 0}
    async with (
        ScriptedModel(Model()) as scripted,
        gateway_process(started_before, scripted.base_url, settings) as gateway,
    ):
        await gateway.ready()
        async with connected(gateway.url, key=GATEWAY_KEY) as socket:
            await begin(socket, "a")
            gateway.send(signal.SIGTERM)
            assert code_of((await socket.response())[-2]) == "shutting_down"
            assert await socket.closed() == 1012


@pytest.mark.promise("websocket.bounds", "limits.slow-readers")
async def test_a_client_that_stops_reading_loses_its_connection_and_its_turns(
    real: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WebSocket, "unread_patience_s", 0.5)
    async with nothing_left(real):
        real.script()
        real.model.respond = Model()
        with capture_logs() as logs:
            async with connected(real.url) as socket, connected(real.url) as beside:
                await socket.create("flood")
                # The library reads ahead until it has a few messages, and then no more.
                await until(lambda: real.model.active == 1)
                await until(lambda: real.model.active == 0)
                assert text_of(await beside.ask()) == "Well."
            lines = await logged_requests(logs, 2, lambda line: line["method"] == "POST")
        assert {log["event"] for log in logs if log["log_level"] == "warning"} == {"slow_reader"}
        assert sorted(line["outcome"] for line in lines) == ["client_gone", "ok"]
