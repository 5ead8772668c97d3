"""`turnbridge`, `ask` and `models`: through a running gateway, or one of their own."""

import asyncio
import json
import signal
import socket
import sys
from pathlib import Path
from shlex import quote

import pytest

from tests.support.command import PATIENCE_S, Finished, end_by_force, run, serving, start
from tests.support.ports import free_port
from turnbridge import __version__
from turnbridge.cli.main import EXIT_INTERRUPTED
from turnbridge.store.schema import STORE_FILE

pytestmark = [pytest.mark.anyio, pytest.mark.real]

EXIT_USAGE = 2
DEAD_PROXY = dict.fromkeys(("http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")


@pytest.mark.promise("commands.ask")
@pytest.mark.parametrize("variables", [{}, DEAD_PROXY], ids=["direct", "behind a proxy"])
async def test_a_question_without_a_gateway_is_answered_by_one_of_its_own(
    started_before: Path, variables: dict[str, str]
) -> None:
    answered = await run(started_before, "ask", "--demo", "Say", "hi.", stdin="To all.\n", **variables)
    assert (answered.status, answered.err) == (0, "")
    assert answered.out.endswith("You said: “Say hi.\n\nTo all.”.\n")
    assert not (started_before / "data" / STORE_FILE).exists()


@pytest.mark.promise("commands.ask", "commands.models", "commands.status")
async def test_a_running_gateway_is_used(started_before: Path) -> None:
    async with serving(started_before, "--demo") as gateway:
        await gateway.ready()
        port = gateway.url.rpartition(":")[2]
        answered = await run(started_before, "ask", stdin="Hello!", PORT=port, **DEAD_PROXY)
        whole = await run(started_before, "ask", "--json", "Hello!", PORT=port)
        refused = await run(started_before, "ask", "--model", "nonsense", "Hello!", PORT=port)
        wrong_key = await run(started_before, "ask", "Hello!", PORT=port, PROXY_API_KEY="sk-wrong")
        table = await run(started_before, "models", PORT=port)
        listed = json.loads((await run(started_before, "models", "--json", PORT=port)).out)
        state = await run(started_before, PORT=port, **DEAD_PROXY)
        ended = await gateway.end(signal.SIGTERM)
    assert (answered.status, answered.err) == (0, "")
    assert answered.out.endswith("You said: “Hello!”.\n")
    assert json.loads(whole.out)["status"] == "completed"
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith("The model `nonsense` does not exist")
    assert (wrong_key.status, wrong_key.out) == (1, "")
    assert "API key" in wrong_key.err
    names = [line.split()[0] for line in table.out.splitlines()]
    assert names == ["MODEL", *(model["id"] for model in listed["data"])]
    assert f"Gateway  ready on {gateway.url}/v1\n" in state.out
    assert ended.err.count('"route":"/v1/responses"') == 4, "each question went through this gateway"


@pytest.mark.promise("commands.ask")
async def test_a_question_without_a_login_tells_how_to_log_in(started_before: Path) -> None:
    refused = await run(started_before, "ask", "Hello!", PORT=str(free_port()))
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith("Codex is not logged in: ")
    assert "-m turnbridge login`" in refused.err


async def test_no_question_is_refused(tmp_path: Path) -> None:
    refused = await run(tmp_path, "ask")
    assert (refused.status, refused.out) == (EXIT_USAGE, "")
    assert "There is no question" in refused.err


@pytest.mark.promise("commands.ask")
async def test_ctrl_c_ends_a_question_and_its_gateway(started_before: Path) -> None:
    port = str(free_port())
    (started_before / ".codex").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (started_before / ".codex" / "config.toml").write_text(
            'model_provider = "silent"\nmodel = "gpt-5.5"\n[model_providers.silent]\nname = "silent"\n'
            f'base_url = "http://127.0.0.1:{silent.getsockname()[1]}/v1"\n'
        )
        process = await start(started_before, "ask", "Hello!", PORT=port)
        try:
            assert process.stdin is not None
            process.stdin.close()
            async with asyncio.timeout(PATIENCE_S):
                # The model has been asked, and does not answer.
                silent.setblocking(False)
                asked, _ = await asyncio.get_running_loop().sock_accept(silent)
                process.send_signal(signal.SIGINT)
                out, err = await process.communicate()
                asked.close()
        finally:
            await end_by_force(process, started_before)
    assert (process.returncode, out, err) == (EXIT_INTERRUPTED, b"", b"")


@pytest.mark.promise("commands.status")
async def test_turnbridge_alone_tells_what_to_do_first(tmp_path: Path) -> None:
    port = str(free_port())
    command = f"PROXY_DATA_DIR={tmp_path / 'data'} {quote(sys.executable)} -m turnbridge"
    assert await run(tmp_path, PORT=port) == Finished(
        0,
        f"Turnbridge {__version__}\n\n"
        f"  Gateway  not running on http://127.0.0.1:{port}/v1\n"
        "  Account  Nobody is logged in.\n\n"
        "Next:\n\n"
        f"  1. Log in:\n     {command} login\n"
        f"  2. Start the gateway:\n     {command} serve\n"
        f"  3. Try it without an account:\n     {command} serve --demo\n",
        "",
    )


@pytest.mark.promise("commands.status")
async def test_the_status_survives_a_codex_that_cannot_be_run(tmp_path: Path) -> None:
    shown = await run(tmp_path, "status", "--json", PORT=str(free_port()), CODEX_BIN="/nowhere/codex")
    assert shown.status == 0
    state = json.loads(shown.out)
    assert (state["account"], state["problem"]) == (None, "/nowhere/codex cannot be run: there is no such program.")
    assert state["next"][0]["command"].endswith("-m turnbridge doctor")


@pytest.mark.promise("commands.status")
async def test_another_program_on_the_port_is_told(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n<html>")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        shown = await run(tmp_path, "status", PORT=str(port))
    assert shown.status == 0
    assert f"Something else than Turnbridge listens on port {port}." in shown.out
