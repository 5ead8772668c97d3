"""An app-server that cannot even be started: the gateway says so, goes on trying, and needs no restart itself."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.faults.leftovers import is_whole, nothing_left
from tests.support.gateway import (
    API_KEY,
    Bridge,
    listening,
    running_bridge,
    settings_for_tests,
)
from tests.support.plain_http import RESPONSES, Ending, ask, client
from tests.support.waiting import PATIENCE_S, until
from turnbridge.bootstrap import running_gateway
from turnbridge.codex.process.pool import Pool
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.anyio

HELLO = Ending(status=200, text="Hello!")
ASK: JsonObject = {"model": "gpt-5.5", "input": "hi"}


@pytest.mark.promise("faults.start")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("exit", "exit status 1"),
        ("refusal", "unknown variant"),
        ("strange answers", "initialize"),
        ("garbage", "handshake"),
        ("wrong ids", "handshake"),
        ("silence", "handshake"),
        ("closed stdout", "handshake"),
        ("odd account", "account/read"),
        ("odd models", "model/list"),
        ("odd settings", "config/read"),
        ("no catalogue", "printed no catalogue"),
    ],
)
async def test_a_start_that_fails_is_told_and_made_good_as_soon_as_it_can_be(
    tmp_path: Path, bad_binary: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    monkeypatch.setenv("BAD_CODEX_START", fault)
    monkeypatch.setattr(Pool, "start_timeout_s", 0.05)
    settings = settings_for_tests(tmp_path, CODEX_BIN=bad_binary, WORKER_STARTUP_TIMEOUT_MS=1000)
    async with (
        running_gateway(settings, api_key=API_KEY, provider="http://127.0.0.1:9/v1") as gateway,
        listening(gateway) as url,
        client(url, API_KEY, timeout_s=PATIENCE_S) as http,
    ):
        await until(lambda: reason in gateway.pool.readiness().reason)
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "not_ready")
        assert reason in ready.json()["reason"]
        refused = await ask(http, RESPONSES, ASK)
        assert (refused, refused.headers["retry-after"]) == (Ending(status=503, code="backend_unavailable"), "1")
        assert (await http.get("/livez")).status_code == 200
        monkeypatch.delenv("BAD_CODEX_START")
        await until(lambda: is_whole(gateway.pool))
        assert await ask(http, RESPONSES, ASK) == HELLO


@pytest.mark.promise("versions.both-routes")
async def test_a_codex_of_a_version_that_nobody_knows_is_used_for_what_it_can_do(
    tmp_path: Path, bad_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAD_CODEX_START", "unknown version")
    async with (
        running_bridge(tmp_path, CODEX_BIN=bad_binary) as bridge,
        nothing_left(bridge),
        client(bridge.url, API_KEY) as http,
    ):
        assert await ask(http, RESPONSES, ASK) == HELLO


@pytest.mark.promise("faults.start")
async def test_a_start_that_fails_in_the_background_disturbs_no_turn(
    bad: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nothing_left(bad):
        monkeypatch.setenv("BAD_CODEX_START", "refusal")
        old = bad.gateway.pool.workers
        old[0].process.kill()
        await until(lambda: old[0] not in bad.gateway.pool.workers)
        async with client(bad.url, API_KEY) as http:
            for _ in range(5):
                assert await ask(http, RESPONSES, ASK) == HELLO
        monkeypatch.delenv("BAD_CODEX_START")


@pytest.mark.promise("faults.hung")
@pytest.mark.parametrize("answer", ["refusal", "strange answers"])
async def test_an_app_server_that_answers_the_probe_badly_is_alive_and_one_that_hangs_is_still_noticed(
    tmp_path: Path, bad_binary: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setenv("BAD_CODEX_PROBE", answer)
    async with running_bridge(tmp_path, CODEX_BIN=bad_binary) as bridge, nothing_left(bridge):
        (worker,) = bridge.gateway.pool.workers
        # Time enough for several probes.
        await asyncio.sleep(3 * Pool.probe_interval_s)
        assert bridge.gateway.pool.workers == [worker]
        os.kill(worker.process.pid, signal.SIGSTOP)
        await until(lambda: worker not in bridge.gateway.pool.workers)


@pytest.mark.promise("faults.hung")
async def test_an_app_server_that_hangs_while_it_is_recycled_is_noticed_too(
    tmp_path: Path, bad_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    async with running_bridge(tmp_path, CODEX_BIN=bad_binary) as bridge, nothing_left(bridge):
        # Only this pool's: other gateways of this process would recycle their app-servers too.
        monkeypatch.setattr(bridge.gateway.pool, "_is_outgrown", lambda worker: worker.opened >= 2)
        (worker,) = bridge.gateway.pool.workers
        async with client(bridge.url, API_KEY, timeout_s=PATIENCE_S) as http:
            held_up = asyncio.ensure_future(
                ask(http, RESPONSES, {**ASK, "stream": True, "instructions": json.dumps({"gate": str(gate)})})
            )
            await until(lambda: worker.load == 1)
            assert await ask(http, RESPONSES, ASK) == HELLO
            await until(lambda: worker not in bridge.gateway.pool.workers)
            os.kill(worker.process.pid, signal.SIGSTOP)
            assert await held_up == Ending(status=200, text="Hel", code="backend_unavailable")


@pytest.mark.promise("faults.hung")
async def test_an_idle_app_server_that_hangs_is_noticed_before_it_is_needed(bad: Bridge) -> None:
    async with nothing_left(bad):
        _, idle = bad.gateway.pool.workers
        os.kill(idle.process.pid, signal.SIGSTOP)
        await until(lambda: idle not in bad.gateway.pool.workers)
