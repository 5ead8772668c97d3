"""No process of Codex's outlives its gateway, whatever ends it and whatever Codex is doing; nor its app-server."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import codex_cli_bin
import pytest

from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.plain_http import RESPONSES, Ending, ask
from tests.support.processes import command, unreaped
from tests.support.waiting import until
from turnbridge.codex.process.pool import Pool
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.real]

GONE_S = 15.0
"""How long an end may take on a busy machine: one that hangs gets three seconds when the gateway is asked to stop."""

WELL = Ending(status=200, text="Well.")
NAMESPACE = ("unshare", "--map-root-user", "--user", "--pid", "--fork", "--kill-child")
"""Makes a command process 1, as it is in a container without an init."""


def may_isolate() -> bool:
    return shutil.which("unshare") is not None and not subprocess.run([*NAMESPACE, "true"], check=False).returncode


@pytest.fixture
def parent_binary(tmp_path: Path) -> Path:
    """Return a Codex whose app-servers have a child that never ends, and holds all their pipes."""
    program = tmp_path / "codex"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = app-server ]; then sleep 600 & fi\nexec "{codex_cli_bin.bundled_codex_path()}" "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


@contextlib.asynccontextmanager
async def running(
    directory: Path, binary: Path, *, wrapper: tuple[str, ...] = (), **settings: object
) -> AsyncIterator[GatewayProcess]:
    """Run a gateway with one app-server, which has a child."""
    chosen = {"WORKER_COUNT": 1, "CODEX_BIN": binary, **settings}
    async with (
        ScriptedModel(lambda _: answer(message("Well."))) as model,
        gateway_process(directory / "gateway", model.base_url, chosen, wrapper=wrapper) as gateway,
    ):
        try:
            await gateway.ready()
            assert len(children(gateway)) == len(gateway.app_servers()) == 1
            yield gateway
        finally:
            # What a failed test has left would outlive the tests.
            for pid in gateway.survivors():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def children(gateway: GatewayProcess) -> list[int]:
    """Return what the app-servers have started."""
    return [pid for pid in gateway.survivors() if command(pid) == "sleep 600"]


@pytest.mark.promise("faults.orphans")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("hung", [False, True], ids=["healthy", "hung"])
async def test_nothing_of_codex_survives_the_gateway(
    tmp_path: Path, parent_binary: Path, ending: signal.Signals, hung: bool
) -> None:
    async with running(tmp_path, parent_binary) as gateway:
        for pid in [*gateway.app_servers(), *children(gateway)] if hung else []:
            os.kill(pid, signal.SIGSTOP)
        gateway.send(ending)
        await until(lambda: gateway.survivors() == [], within_s=GONE_S)
        async with asyncio.timeout(GONE_S):
            await gateway.process.wait()


@pytest.mark.promise("faults.orphans")
@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_survives_an_app_server_that_dies_and_its_successor_serves(
    tmp_path: Path, parent_binary: Path, harm: signal.Signals
) -> None:
    async with running(tmp_path, parent_binary) as gateway, gateway.client() as http:
        died, orphan = gateway.app_servers()[0], children(gateway)[0]
        os.kill(died, harm)
        await until(lambda: not command(died) and not command(orphan), within_s=GONE_S)
        assert await ask(http, RESPONSES, {"model": "gpt-5.5", "input": "hi"}) == WELL
        await until(lambda: len(children(gateway)) == len(gateway.app_servers()) == 1)


@pytest.mark.promise("faults.orphans")
@pytest.mark.skipif(not may_isolate(), reason="this system lets no user have process ids of their own")
async def test_a_gateway_that_is_process_1_reaps_what_app_servers_leave(tmp_path: Path, parent_binary: Path) -> None:
    async with (
        running(tmp_path, parent_binary, wrapper=NAMESPACE, WORKER_MAX_GROWTH_MB=1) as gateway,
        gateway.client() as http,
    ):
        (old,) = gateway.app_servers()
        for _ in range(Pool.threads_per_probe):
            assert await ask(http, RESPONSES, {"model": "gpt-5.5", "input": "hi"}) == WELL
        await until(lambda: len(gateway.app_servers()) == 1 and old not in gateway.app_servers())
        # Its guard, its child, and the `git` that Codex lets go of as it starts.
        await until(lambda: unreaped(old) == [])
        # Asked to stop, the wrapper would not pass it on.
        gateway.send(signal.SIGKILL)
