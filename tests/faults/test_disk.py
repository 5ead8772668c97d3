"""A data directory that is full or read-only, for real: a small file system of the gateway's own."""

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.plain_http import RESPONSES, Ending, ask
from tests.support.waiting import PATIENCE_S, until
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.turn.items import JsonObject

NAMESPACE = ("unshare", "--map-root-user", "--user", "--mount")
"""Lets anybody mount something that only the commands below it see."""


def may_mount() -> bool:
    return shutil.which("unshare") is not None and not subprocess.run([*NAMESPACE, "true"], check=False).returncode


pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    pytest.mark.skipif(not may_mount(), reason="this system lets no user mount a file system of their own"),
]

SIZE_MB = 32
"""Enough for what Codex writes, and quickly filled."""

ONE = {"WORKER_COUNT": 1}
ASK: JsonObject = {"model": "gpt-5.5", "input": "hi"}
WELL = Ending(status=200, text="Well.")
NOT_YET = Ending(status=503, code="backend_unavailable")

RECOVERED_S = 60
"""How long a gateway may take to serve again: starts that failed are tried again after up to half a minute."""


def with_disk(data: Path, then: str) -> list[str]:
    """Return the words before a command that give it a file system at `data`, and do something to it first."""
    data.mkdir(parents=True)
    script = f'mount -t tmpfs -o size={SIZE_MB}m none "$0" && cd "$0" && {{ {then}; }} ; cd / && exec "$@"'
    return [*NAMESPACE, "sh", "-c", script, str(data)]


def inside(gateway: GatewayProcess, *command: str) -> None:
    """Run a command where the gateway's file system is seen."""
    enter = ["nsenter", "--target", str(gateway.pid), "--user", "--mount", "--preserve-credentials"]
    subprocess.run([*enter, *command], check=True, capture_output=True)


# `head` fails at the end of the disk, as it should.
FILL = f"head -c {SIZE_MB + 1}M /dev/zero > fill || true"


@pytest.mark.promise("faults.disk")
@pytest.mark.parametrize(
    ("harm", "mend", "reason"),
    [
        (FILL, ["rm", "{data}/fill"], "No space left"),
        ('mount -o remount,ro "$0"', ["mount", "-o", "remount,rw", "{data}"], "Read-only file system"),
    ],
    ids=["full", "read-only"],
)
async def test_a_gateway_that_cannot_write_says_so_and_recovers_by_itself(
    tmp_path: Path, harm: str, mend: list[str], reason: str
) -> None:
    data = tmp_path / "data"
    async with (
        ScriptedModel(lambda _: answer(message("Well."))) as model,
        gateway_process(tmp_path, model.base_url, ONE, wrapper=with_disk(data, harm)) as gateway,
        gateway.client() as http,
    ):
        async with asyncio.timeout(PATIENCE_S):
            while reason not in (told := (await http.get("/readyz")).json()).get("reason", ""):
                assert told["status"] == "not_ready"
        waiting = asyncio.ensure_future(ask(http, RESPONSES, ASK))
        inside(gateway, *(word.format(data=data) for word in mend))
        async with asyncio.timeout(RECOVERED_S):
            # A busy machine takes longer to start Codex than a request waits for it.
            while (ending := await waiting) == NOT_YET:
                waiting = asyncio.ensure_future(ask(http, RESPONSES, ASK))
        assert ending == WELL
        assert (await http.get("/readyz")).status_code == 200


@pytest.mark.promise("faults.disk")
async def test_a_disk_that_fills_up_disturbs_no_turn_and_nothing_is_given_up_for_good(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with (
        ScriptedModel(lambda _: answer(message("Well."))) as model,
        gateway_process(tmp_path, model.base_url, ONE, wrapper=with_disk(data, "true")) as gateway,
        gateway.client() as http,
    ):
        await gateway.ready()
        inside(gateway, "sh", "-c", f"cd {data} && {FILL}")
        assert [await ask(http, RESPONSES, ASK) for _ in range(3)] == [WELL] * 3
        os.kill(gateway.app_servers()[0], signal.SIGKILL)
        assert [await ask(http, RESPONSES, ASK) for _ in range(3)] == [WELL] * 3
        inside(gateway, "rm", f"{data}/fill")
        await until(lambda: len(gateway.app_servers()) == 1)
        assert await ask(http, RESPONSES, ASK) == WELL
