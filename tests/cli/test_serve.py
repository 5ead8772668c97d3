"""The command as a user runs it: a process of its own, with a home of its own."""

import asyncio
import contextlib
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from codex_cli_bin import bundled_codex_path

from tests.support.command import (
    PATIENCE_S,
    Finished,
    end_by_force,
    environment,
    run,
    serving,
)
from tests.support.ports import free_port
from turnbridge import __version__
from turnbridge.api.ollama.listener import LISTENER
from turnbridge.cli.console import EXIT_CONFIG, EXIT_UNAVAILABLE
from turnbridge.cli.main import EXIT_INTERRUPTED

pytestmark = [pytest.mark.anyio, pytest.mark.real]

# What the command line says of itself: there is no such command or option.
EXIT_USAGE = 2


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_the_version_is_printed(tmp_path: Path) -> None:
    assert await run(tmp_path, "--version") == Finished(0, f"turnbridge {__version__}\n", "")


async def test_a_command_that_is_not_whole_shows_its_help(tmp_path: Path) -> None:
    asked = await run(tmp_path, "store", "--help")
    assert await run(tmp_path, "store") == Finished(EXIT_USAGE, "", asked.out)


async def test_an_unknown_option_is_told_with_the_usage(tmp_path: Path) -> None:
    assert await run(tmp_path, "serve", "--prot", "1") == Finished(
        EXIT_USAGE,
        "",
        "Usage: python -m turnbridge serve [OPTIONS]\n"
        "Try 'python -m turnbridge serve --help' for help.\n\n"
        "Error: No such option '--prot'. (Did you mean one of: '--host', '--port'?)\n",
    )


async def test_ctrl_c_ends_a_command_without_a_word(tmp_path: Path) -> None:
    codex = tmp_path / "codex"
    codex.write_text("#!/bin/sh\nkill -INT $PPID\nexec sleep 60\n")
    codex.chmod(0o700)
    assert await run(tmp_path, "schema", "--codex-bin", str(codex)) == Finished(EXIT_INTERRUPTED, "", "")


@pytest.mark.promise("ingress.loopback")
@pytest.mark.parametrize("host", ["0.0.0.0", "0", "::", "192.0.2.1"])
async def test_other_addresses_than_loopback_need_a_key_that_the_user_chose(tmp_path: Path, host: str) -> None:
    refused = await run(tmp_path, "serve", "--demo", "--host", host, "--port", "0")
    assert (refused.status, refused.out) == (EXIT_CONFIG, "")
    assert refused.err == (
        f"Refusing to listen on {host} with a generated key. Set PROXY_API_KEY, or listen on 127.0.0.1.\n"
    )


@pytest.mark.promise("bounds.key-length")
@pytest.mark.parametrize(
    ("name", "secrets"),
    [
        ("PROXY_API_KEY", {"PROXY_API_KEY": "sk-abcdefghijklmnop, short-key"}),
        ("PROXY_METRICS_TOKEN", {"PROXY_API_KEY": "sk-abcdefghijklmnop", "PROXY_METRICS_TOKEN": "short"}),
    ],
)
async def test_a_short_key_is_refused_where_others_could_guess_it(
    tmp_path: Path, name: str, secrets: dict[str, str]
) -> None:
    refused = await run(tmp_path, "serve", "--demo", "--host", "0.0.0.0", "--port", "0", **secrets)
    assert refused == Finished(
        EXIT_CONFIG,
        "",
        f"Refusing to listen on 0.0.0.0: {name} has fewer than 16 characters, which others could guess. "
        "Choose a longer one, for example by `openssl rand -hex 16`.\n",
    )


async def test_a_trace_through_a_link_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "wire.ndjson"
    link.symlink_to("elsewhere")
    refused = await run(tmp_path, "serve", "--demo", "--port", "0", PROXY_LOG_PROTO="true", PROTO_LOG_PATH=str(link))
    words = f"Refusing to write the wire trace to {link}: it is a symbolic link. Choose a plain file.\n"
    assert refused == Finished(EXIT_CONFIG, "", words)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.promise("ingress.loopback")
async def test_an_empty_key_in_the_file_is_not_one_that_the_user_chose(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('PROXY_API_KEY = ""\nPROXY_HOST = "192.0.2.1"')
    refused = await run(tmp_path, "serve", "--demo", PROXY_CONFIG=str(tmp_path / "c.toml"))
    assert refused.err.startswith("Refusing to listen on 192.0.2.1 with a generated key.")


@pytest.mark.parametrize("key", [",", " , ", " "])
async def test_a_list_of_keys_without_a_key_is_refused(tmp_path: Path, key: str) -> None:
    words = (
        "PROXY_API_KEY contains no key. Set one, or several separated by commas; if it is unset, one is generated.\n"
    )
    assert await run(tmp_path, "serve", "--demo", "--port", "0", PROXY_API_KEY=key) == Finished(EXIT_CONFIG, "", words)


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = await run(tmp_path, "serve", "--demo", "--port", str(port))
    words = f"Cannot listen on 127.0.0.1:{port}: Address already in use. Choose another port with --port.\n"
    assert refused == Finished(EXIT_CONFIG, "", words)


async def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    key = {"PROXY_API_KEY": "sk-abcdefghijklmnop"}
    refused = await run(tmp_path, "serve", "--demo", "--host", "192.0.2.1", "--port", "0", **key)
    assert (refused.status, refused.out) == (EXIT_CONFIG, "")
    assert refused.err.endswith("Choose another address with --host.\n")


@pytest.mark.promise("start.settings.bad")
@pytest.mark.parametrize("host", ["no such host", "nonsense.test", "[::1]", f"{'x' * 64}.test"])
async def test_a_host_that_has_no_address_is_named_before_anything_else_is_asked_for(tmp_path: Path, host: str) -> None:
    words = f"Cannot listen on {host}: there is no such address. Choose another one with --host.\n"
    assert await run(tmp_path, "serve", "--demo", "--host", host) == Finished(EXIT_CONFIG, "", words)


async def test_a_data_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    words = (
        f"Cannot use the data directory {tmp_path / 'data'}: File exists. Choose another directory in PROXY_DATA_DIR.\n"
    )
    assert await run(tmp_path, "serve", "--demo", "--port", "0") == Finished(EXIT_CONFIG, "", words)


async def test_a_key_that_cannot_be_kept_is_a_reason_not_to_start(tmp_path: Path) -> None:
    refused = await run(tmp_path, "serve", "--demo", "--port", "0", PROXY_DATA_DIR="/proc/nowhere")
    assert (refused.status, refused.out) == (EXIT_UNAVAILABLE, "")
    assert refused.err.splitlines()[-1].startswith("Cannot store a key in /proc/nowhere: ")


@pytest.fixture
def unread() -> Iterator[int]:
    """Return a pipe that has no room, and that nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b" " * select.PIPE_BUF)
    os.set_blocking(writing, True)
    yield writing
    os.close(writing)
    os.close(reading)


@pytest.fixture
def broken() -> Iterator[int]:
    """Return a pipe whose reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.promise("start.unheard")
@pytest.mark.parametrize(
    "streams",
    [
        pytest.param("<&- >&- 2>&-", id="closed"),
        pytest.param(">/dev/full 2>/dev/full", id="full"),
        pytest.param(">&{unread} 2>&{unread}", id="unread"),
        pytest.param(">&{broken} 2>&{broken}", id="broken"),
    ],
)
async def test_it_serves_also_if_nobody_can_read_what_it_writes(
    started_before: Path, streams: str, unread: int, broken: int
) -> None:
    # Bound, so that nobody else gets it meanwhile; the gateway may listen on it, since this one does not.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(
            "bash",
            "-c",
            f'exec "$@" {streams.format(unread=unread, broken=broken)}',
            "bash",
            sys.executable,
            "-m",
            "turnbridge",
        ),
        *("serve", "--demo", "--port", str(port)),
        env=environment(started_before, PROXY_PROT="1"),
        cwd=started_before,
        stdout=asyncio.subprocess.DEVNULL,
        pass_fds=(unread, broken),
    )
    try:
        async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx2.ConnectError):
                    if (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200:
                        break
                await asyncio.sleep(0.05)
            process.terminate()
            assert await process.wait() == 0
    finally:
        held.close()
        await end_by_force(process, started_before)


@pytest.mark.promise("start.settings.bad")
@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "many"), ("PROXY_MAX_BODY_MB", "-1"), ("PROXY_DRAIN_S", "inf"), ("PROXY_LOG_LEVEL", "loud")],
)
async def test_a_bad_setting_is_refused_by_its_name_without_a_traceback(tmp_path: Path, name: str, value: str) -> None:
    refused = await run(tmp_path, "serve", "--demo", **{name: value})
    assert (refused.status, refused.out) == (EXIT_CONFIG, "")
    assert name in refused.err
    assert "Traceback" not in refused.err


async def pasted(directory: Path, *command: str, stdin: str = "", **variables: str) -> str:
    """Return what a command prints in the user's shell."""
    ran = await asyncio.create_subprocess_exec(
        *command,
        env=environment(directory, **variables),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    return (await ran.communicate(stdin.encode()))[0].decode()


# Nobody listens there.
DEAD_PROXY = dict.fromkeys(("http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")


@pytest.mark.promise("start.demo", "start.settings.unknown")
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("variables", [{}, DEAD_PROXY], ids=["direct", "behind a proxy"])
async def test_what_is_printed_can_be_pasted(tmp_path: Path, variables: dict[str, str]) -> None:
    home = tmp_path / "my home"
    home.mkdir()
    async with serving(home, "--demo", PROXY_PROT="1", **variables) as gateway:
        await gateway.read_until("print(")
        assert (await gateway.readiness()).status_code == 200
        for_shell, for_python = gateway.shown(r"Try it:\n\n(.*\}\'\n)"), gateway.shown(r"^(from openai .*)")
        both = f'{for_shell}\nexec "$0" -c "$1"'
        said = await pasted(home, "sh", "-c", both, sys.executable, for_python, **variables)
        ended = await gateway.end(signal.SIGTERM)
    assert said.count("You said: “Hello!”.") == 2, said
    assert "warning: PROXY_PROT is set, but there is no such setting." in ended.err


@pytest.mark.promise("start.login-command")
@pytest.mark.parametrize("chosen", [False, True], ids=["default", "chosen"])
async def test_the_login_command_can_be_pasted_by_someone_who_never_used_codex(tmp_path: Path, chosen: bool) -> None:
    """Also where paths have spaces: Codex refuses a home that is named and does not exist."""
    home = tmp_path / "my home"
    (home / "my codex").mkdir(parents=True)
    (home / "my codex" / "codex").symlink_to(bundled_codex_path())
    variables = {**DEAD_PROXY, "CODEX_BIN": str(home / "my codex" / "codex")}
    codex_home = home / ("its home" if chosen else ".codex")
    if chosen:
        variables["CODEX_HOME"] = str(codex_home)
    async with serving(home, **variables) as gateway:
        await gateway.read_until("print(")
        command = gateway.shown(r"Log in, in another terminal:\n\n(.*?)\n\n")
        refused = await gateway.readiness((home / "data" / "api-key").read_text(encoding="utf-8").strip())
        assert not codex_home.exists(), "nothing is written to a user's home unasked"
        said = await pasted(home, "sh", "-c", f"{command} --api-key", stdin="sk-test", **variables)
        assert (codex_home / "auth.json").exists(), said
        await gateway.ready()
    assert "Try it" not in gateway.printed
    assert refused.status_code == 503
    assert f"`{command}`" in refused.json()["reason"]


@pytest.mark.promise("start.again", "ingress.key.made", "ingress.key.chosen")
async def test_a_second_start_has_the_same_key_and_knows_its_codex_already(tmp_path: Path) -> None:
    file = tmp_path / "data" / "api-key"
    keys, learned = [], []
    for _ in range(2):
        async with serving(tmp_path, "--demo") as gateway:
            await gateway.ready()
            await gateway.read_until("print(")
            assert gateway.shown(r"API key +([^\n]+)$") == f"in {file}"
            keys.append(file.read_text().strip())
            ended = await gateway.end(signal.SIGTERM)
            assert keys[-1] not in gateway.printed + ended.out + ended.err, "a service's log would keep it"
        notes = [path for path in (tmp_path / "data" / "binaries").rglob("*") if path.is_file()]
        learned.append({path: path.stat().st_mtime_ns for path in notes})
    assert keys[0] == keys[1]
    assert file.stat().st_mode & 0o777 == 0o600
    assert learned[0]
    assert learned[0] == learned[1]
    assert names_in(tmp_path) == ["data"], "nothing is written anywhere else"


@pytest.mark.promise("ingress.key.chosen")
async def test_a_key_that_the_user_chose_is_not_printed(started_before: Path) -> None:
    async with (
        serving(started_before, "--demo", PROXY_API_KEY="sk-my-own-secret") as gateway,
        httpx2.AsyncClient() as client,
    ):
        await gateway.ready()
        headers = {"authorization": "Bearer sk-my-own-secret"}
        assert (await client.get(f"{gateway.url}/v1/models", headers=headers)).status_code == 200
        ended = await gateway.end(signal.SIGTERM)
    assert "sk-my-own-secret" not in gateway.printed + ended.out + ended.err
    assert not (started_before / "data" / "api-key").exists()


@pytest.mark.promise("faults.signals")
@pytest.mark.parametrize(("number", "ready"), [(signal.SIGTERM, True), (signal.SIGINT, True), (signal.SIGINT, False)])
async def test_a_signal_ends_everything_cleanly(started_before: Path, number: signal.Signals, ready: bool) -> None:
    """Also while Codex is still starting."""
    async with serving(started_before, "--demo") as gateway:
        if ready:
            await gateway.ready()
            assert gateway.codex_pids()
        ended = await gateway.end(number)
        left = gateway.codex_pids()
    assert (ended.status, left) == (0, [])
    assert "Traceback" not in ended.err


@pytest.mark.promise("faults.signals")
async def test_a_codex_that_hangs_does_not_outlive_the_gateway(started_before: Path) -> None:
    async with serving(started_before, "--demo") as gateway:
        await gateway.ready()
        for pid in gateway.codex_pids():
            os.kill(pid, signal.SIGSTOP)
        ended = await gateway.end(signal.SIGTERM)
        assert (ended.status, gateway.codex_pids()) == (0, [])


async def test_a_gateway_that_is_killed_leaves_no_codex_behind(started_before: Path) -> None:
    async with serving(started_before, "--demo") as gateway:
        await gateway.ready()
        assert gateway.codex_pids()
        await gateway.end(signal.SIGKILL)
        await gateway.until_codex_is_gone()


@pytest.mark.promise("ollama.listener")
async def test_ollamas_clients_are_served_on_the_next_port_if_theirs_is_taken(started_before: Path) -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # Ollama itself may run here.
            stack.enter_context(socket.create_server(("127.0.0.1", LISTENER.ports[0])))
        async with serving(started_before, "--demo", "--ollama") as gateway:
            await gateway.read_until("no key on this machine")
            url = gateway.shown(r"Ollama +(http://127\.0\.0\.1:\d+) ")
            port = int(url.rpartition(":")[2])
            assert port in LISTENER.ports[1:]
            assert "Port 11434 is taken, probably by Ollama itself." in gateway.printed
            await gateway.ready()
            async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
                asked = {"model": "gpt-5.5", "prompt": "Hello!", "stream": False}
                answered = await client.post(f"{url}/api/generate", json=asked)
                # Its port is not the other one.
                assert (await client.get(f"{gateway.url}/v1/models")).status_code == 401
                assert (await client.get(f"{url}/v1/models")).status_code == 200
            assert "Hello!" in answered.json()["response"]
            assert (await gateway.end(signal.SIGTERM)).status == 0


@pytest.mark.promise("ollama.listener", "start.settings.bad")
@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("0.0.0.0:0", "Refusing to listen on 0.0.0.0 with a generated key."),
        ("127.0.0.1:{port}", "PROXY_OLLAMA and PORT are both {port}."),
        ("11434", "PROXY_OLLAMA: expected `on`, or an address such as `127.0.0.1:11434`"),
        ("no such host:1", "Cannot listen on no such host: there is no such address."),
    ],
    ids=["beyond this machine", "the same port", "no address", "no host"],
)
async def test_an_address_for_ollamas_clients_that_cannot_be_used_is_refused(
    tmp_path: Path, chosen: str, told: str
) -> None:
    port = str(free_port())
    refused = await run(tmp_path, "serve", "--demo", "--port", port, PROXY_OLLAMA=chosen.format(port=port))
    assert (refused.status, refused.out) == (EXIT_CONFIG, "")
    assert told.format(port=port) in refused.err
