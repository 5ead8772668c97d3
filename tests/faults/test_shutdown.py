"""The end of the gateway, as users run it: who still gets an answer, which one, and that no Codex survives it."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx2
import pytest

from tests.support.gateway import HOLD_MS
from tests.support.gateway_process import START_TIMEOUT_S, GatewayProcess, gateway_process
from tests.support.plain_http import CHAT, RESPONSES, Answer, Ending, ask
from tests.support.processes import descriptors
from tests.support.waiting import LOOK_AGAIN_S, until
from turnbridge.codex.process.pool import Pool
from turnbridge.scripted_model.replies import (
    Reply,
    Wait,
    answer,
    custom_tool_call,
    function_call,
    message,
)
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

AT_ONCE_S = 15.0
"""How long an end may take that waits for nobody, on a busy machine; Codex itself gets two seconds of it."""

# Gives a program a terminal of its own, which stays open for as long as it runs.
AT_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
master, slave = os.openpty()
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
os.set_inheritable(master, True)
os.execvp(sys.argv[1], sys.argv[1:])
"""
REFUSED = Ending(status=503, code="shutting_down")
LOOK: JsonObject = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def body(path: str, text: str, *, stream: bool = False) -> JsonObject:
    said: JsonObject = {"input": text} if path == RESPONSES else {"messages": [{"role": "user", "content": text}]}
    return {"model": "gpt-5.5", "stream": stream, **said}


class Model(ScriptedModel):
    """Answers by the word that it is asked: all but `well` wait for the gate."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.gate = asyncio.Event()

    def _answer(self, request: JsonObject) -> Reply:
        items = request["input"]
        assert isinstance(items, list)
        asked = json.dumps([item for item in items if isinstance(item, dict) and item.get("role") == "user"])
        wait = Wait(gate=self.gate)
        if "silent" in asked:
            return answer(wait, message("Well."))
        if "begun" in asked:
            return answer(message("Begun, done.", pieces=["Begun", wait, ", done."]))
        if "look" in asked:
            return answer(function_call("look", "{}"))
        if "script" in asked:
            return answer(custom_tool_call("exec", "await tools.look({});"))
        return answer(message("Well."))


@contextlib.asynccontextmanager
async def running(
    directory: Path, wrapper: Sequence[str] = (), **settings: object
) -> AsyncIterator[tuple[GatewayProcess, Model]]:
    chosen = {"WORKER_COUNT": 1, "PROXY_STREAM_HOLD_MS": HOLD_MS, **settings}
    async with Model() as model:
        async with gateway_process(directory, model.base_url, chosen, wrapper=wrapper) as gateway:
            await gateway.ready()
            yield gateway, model
        # The guard of a Codex is the last to go, and nobody waits for it.
        await until(lambda: gateway.survivors() == [])


async def ended(gateway: GatewayProcess, *, within_s: float) -> int:
    """Return the gateway's exit status, as soon as it has ended."""
    async with asyncio.timeout(within_s):
        return await gateway.process.wait()


async def active_requests(http: httpx2.AsyncClient) -> int:
    """Return how many requests are being served or wait, besides this one."""
    metrics = (await http.get("/metrics")).text
    return round(float(re.findall(r"^turnbridge_active_requests (\S+)$", metrics, re.MULTILINE)[0])) - 1


async def begin(http: httpx2.AsyncClient, path: str) -> "asyncio.Task[Ending]":
    """Ask, and return once the first words have come."""
    heard = Answer()
    asked = asyncio.ensure_future(ask(http, path, body(path, "begun", stream=True), heard=heard))
    await until(lambda: heard.text == "Begun" or asked.done())
    return asked


@pytest.mark.promise("faults.drain")
async def test_running_turns_finish_while_new_ones_are_refused(started_before: Path) -> None:
    async with running(started_before, PROXY_DRAIN_S=20) as (gateway, model), gateway.client() as http:
        turns = [await begin(http, CHAT), await begin(http, RESPONSES)]
        turns += [
            asyncio.ensure_future(ask(http, CHAT, body(CHAT, "silent", stream=stream))) for stream in (True, False)
        ]
        await until(lambda: model.active == 4)
        gateway.send(signal.SIGTERM)
        while (refused := await ask(http, RESPONSES, body(RESPONSES, "well"))).status == 200:
            pass  # The signal has not arrived yet.
        assert (refused, "retry-after" in refused.headers) == (REFUSED, True)
        assert not any(turn.done() for turn in turns)
        model.gate.set()
        done, well = Ending(status=200, text="Begun, done."), Ending(status=200, text="Well.")
        assert await asyncio.gather(*turns) == [done, done, well, well]
        assert await ended(gateway, within_s=AT_ONCE_S) == 0


@pytest.mark.promise("faults.drain")
async def test_a_terminal_that_closes_cuts_no_stream(started_before: Path) -> None:
    """It may send its signal twice: the shell does, and the system."""
    at_terminal = [sys.executable, "-c", AT_A_TERMINAL]
    async with running(started_before, at_terminal, PROXY_DRAIN_S=20) as (gateway, model), gateway.client() as http:
        turns = [await begin(http, CHAT), await begin(http, RESPONSES)]
        gateway.send(signal.SIGHUP)
        while (refused := await ask(http, RESPONSES, body(RESPONSES, "well"))).status == 200:
            pass  # The signal has not arrived yet.
        gateway.send(signal.SIGHUP)
        assert refused == REFUSED
        assert await ask(http, RESPONSES, body(RESPONSES, "well")) == REFUSED
        assert not any(turn.done() for turn in turns)
        model.gate.set()
        assert await asyncio.gather(*turns) == [Ending(status=200, text="Begun, done.")] * 2
        assert await ended(gateway, within_s=AT_ONCE_S) == 0


@pytest.mark.promise("commands.serve.reload")
async def test_without_a_terminal_a_hang_up_reloads_and_cuts_no_stream(started_before: Path) -> None:
    file, codex = started_before / "settings.toml", started_before / "user-codex" / "config.toml"
    file.write_text('PROXY_MODEL_ALIASES = "old=gpt-5.5"', encoding="utf-8")
    settings = {"PROXY_CONFIG": file, "PROXY_WARM_THREADS_MAX": 8}
    async with running(started_before, ["setsid"], **settings) as (gateway, model), gateway.client() as http:
        turns = [await begin(http, CHAT), await begin(http, RESPONSES)]
        (before,) = gateway.app_servers()
        file.write_text("PROXY_QUEUE_MAX = -1", encoding="utf-8")
        gateway.send(signal.SIGHUP)
        await until(lambda: '"not_reloaded"' in gateway.log())
        file.write_text('PROXY_MODEL_ALIASES = "new=gpt-5.5"\nPROXY_QUEUE_MAX = 7', encoding="utf-8")
        codex.write_text(f'{codex.read_text()}[profiles.mine]\nmodel = "local-7b"\n', encoding="utf-8")
        gateway.send(signal.SIGHUP)
        async with asyncio.timeout(START_TIMEOUT_S):
            while "local-7b" not in (await http.get("/v1/models")).text:  # noqa: ASYNC110 - It tells nobody by itself.
                await asyncio.sleep(LOOK_AGAIN_S)
        listed = [entry["id"] for entry in (await http.get("/v1/models")).json()["data"]]
        assert ("old" in listed, "new" in listed) == (False, True)
        waits = [json.loads(line) for line in gateway.log().splitlines() if '"restart_needed"' in line]
        assert [line["settings"] for line in waits] == [["PROXY_QUEUE_MAX"]]
        # The old app-server keeps its turns; new ones have the new configuration.
        well = await ask(http, CHAT, {**body(CHAT, "well"), "model": "local-7b"})
        assert well == Ending(status=200, text="Well.")
        assert (before in gateway.app_servers(), any(turn.done() for turn in turns)) == (True, False)
        model.gate.set()
        assert await asyncio.gather(*turns) == [Ending(status=200, text="Begun, done.")] * 2
        await until(lambda: before not in gateway.app_servers())
        assert (await http.get("/readyz")).status_code == 200


@pytest.mark.promise("faults.drain")
async def test_under_nohup_a_terminal_that_closes_changes_nothing(started_before: Path) -> None:
    async with running(started_before, wrapper=["nohup"]) as (gateway, _), gateway.client() as http:
        gateway.send(signal.SIGHUP)
        assert await ask(http, CHAT, body(CHAT, "well")) == Ending(status=200, text="Well.")
        assert (await http.get("/readyz")).status_code == 200


@pytest.mark.promise("faults.drain", "ingress.probes")
async def test_a_gateway_that_is_being_stopped_is_alive_and_not_ready(started_before: Path) -> None:
    async with running(started_before, PROXY_DRAIN_S=20) as (gateway, model), gateway.client() as http:
        turn = await begin(http, CHAT)
        gateway.send(signal.SIGTERM)
        while (await ask(http, RESPONSES, body(RESPONSES, "well"))).status == 200:
            pass  # The signal has not arrived yet.
        assert [(await http.get(path)).status_code for path in ("/livez", "/readyz")] == [200, 503]
        model.gate.set()
        assert await turn == Ending(status=200, text="Begun, done.")


@pytest.mark.promise("faults.drain")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_turns_that_do_not_finish_in_time_and_those_that_wait_are_told_so(
    started_before: Path, number: signal.Signals
) -> None:
    async with (
        running(started_before, PROXY_DRAIN_S=0.5, PROXY_MAX_TURNS=5) as (gateway, model),
        gateway.client() as http,
    ):
        begun = [await begin(http, CHAT), await begin(http, RESPONSES)]
        silent = [
            asyncio.ensure_future(ask(http, RESPONSES, body(RESPONSES, "silent", stream=stream)))
            for stream in (True, False, False)
        ]
        await until(lambda: model.active == 5)
        waiting = asyncio.ensure_future(ask(http, CHAT, body(CHAT, "well")))
        while await active_requests(http) < 6:
            pass  # It has not arrived yet.
        began = time.monotonic()
        gateway.send(number)
        cut = Ending(status=200, text="Begun", code="shutting_down")
        assert await asyncio.gather(*begun, *silent, waiting) == [cut, cut, REFUSED, REFUSED, REFUSED, REFUSED]
        assert await ended(gateway, within_s=AT_ONCE_S) == 0
        assert time.monotonic() - began < 0.5 + AT_ONCE_S


@pytest.mark.promise("faults.drain")
async def test_a_second_signal_stops_at_once(started_before: Path) -> None:
    async with running(started_before, PROXY_DRAIN_S=60) as (gateway, _), gateway.client() as http:
        turn = await begin(http, CHAT)
        gateway.send(signal.SIGTERM)
        while (await ask(http, RESPONSES, body(RESPONSES, "well"))).status == 200:
            pass  # The signal has not arrived yet.
        gateway.send(signal.SIGTERM)
        await ended(gateway, within_s=AT_ONCE_S)
        with contextlib.suppress(httpx2.HTTPError):
            await turn


@pytest.mark.promise("faults.orphans")
@pytest.mark.parametrize("stage", ["idle", "silent", "begun", "look", "script"])
async def test_no_codex_survives_a_gateway_that_is_killed(started_before: Path, stage: str) -> None:
    native = {"PROXY_TOOL_MODE": "native"} if stage == "script" else {}
    async with running(started_before, **native) as (gateway, model), gateway.client() as http:
        model_name = "gpt-6.1-sol" if stage == "script" else "gpt-5.5"
        asked: JsonObject = {**body(RESPONSES, stage, stream=True), "tools": [LOOK], "model": model_name}
        turn = asyncio.ensure_future(ask(http, RESPONSES, asked) if stage != "idle" else asyncio.sleep(0))
        if stage in ("look", "script"):
            await turn
        elif stage != "idle":
            await until(lambda: model.active == 1)
        assert gateway.survivors()
        gateway.send(signal.SIGKILL)
        await until(lambda: gateway.survivors() == [])
        with contextlib.suppress(httpx2.HTTPError):
            await turn


@pytest.mark.promise("faults.orphans")
async def test_no_codex_survives_a_gateway_that_is_killed_as_it_starts(tmp_path: Path) -> None:
    async with Model() as model, gateway_process(tmp_path, model.base_url, {"WORKER_COUNT": 2}) as gateway:
        await until(lambda: gateway.survivors() != [])
        gateway.send(signal.SIGKILL)
        await until(lambda: gateway.survivors() == [])


@pytest.mark.promise("faults.orphans")
async def test_a_codex_that_hangs_as_it_is_replaced_does_not_survive_the_gateway(
    tmp_path: Path, bad_binary: Path
) -> None:
    settings = {"WORKER_COUNT": 1, "WORKER_MAX_GROWTH_MB": 100, "BAD_CODEX_PROBE": 100, "CODEX_BIN": bad_binary}
    asked: JsonObject = {**body(RESPONSES, "hi", stream=True), "instructions": json.dumps({"gate": "/nowhere"})}
    async with gateway_process(tmp_path, "http://127.0.0.1:9/v1", settings) as gateway:
        await gateway.ready()
        (hung,) = gateway.app_servers()
        async with gateway.client() as http:
            for _ in range(Pool.threads_per_probe - 1):
                (await http.post(RESPONSES, json=body(RESPONSES, "hi", stream=False))).raise_for_status()
        async with gateway.client() as http, http.stream("POST", RESPONSES, json=asked):
            # Another one is started before it is recycled; then nothing else opens or closes anything.
            await until(lambda: "codex_recycled" in gateway.log())
            os.kill(hung, signal.SIGSTOP)
            held = descriptors(gateway.pid)
        # The connection is closed, and then the pipe to the app-server: its end has begun.
        await until(lambda: descriptors(gateway.pid) <= held - 2)
        gateway.send(signal.SIGTERM)
        await ended(gateway, within_s=AT_ONCE_S)
    try:
        await until(lambda: gateway.survivors() == [])
    finally:
        for pid in gateway.survivors():
            os.kill(pid, signal.SIGKILL)
