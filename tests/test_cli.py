"""The command as a user runs it: a process of its own, with a home of its own."""

import asyncio
import contextlib
import os
import re
import select
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from turnbridge import __version__
from turnbridge.cli import EXIT_INTERRUPTED
from turnbridge.commands.refusal import EXIT_CONFIG, EXIT_UNAVAILABLE

pytestmark = [pytest.mark.anyio, pytest.mark.real]

# What the command line says of itself: there is no such command or option.
EXIT_USAGE = 2
PATIENCE_S = 90
"""After this a test has failed."""


def environment(directory: Path, **variables: str) -> dict[str, str]:
    usual = {"PATH": os.environ["PATH"], "HOME": str(directory), "PROXY_DATA_DIR": str(directory / "data")}
    return {**usual, "WORKER_COUNT": "1", **variables}


@dataclass(slots=True)
class Finished:
    status: int
    out: str
    err: str


async def run(directory: Path, *words: str, **variables: str) -> Finished:
    """Run `turnbridge` to its end."""
    process = await start(directory, *words, **variables)
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
    finally:
        await end_by_force(process, directory)
    return Finished(process.returncode or 0, out.decode(), err.decode())


async def start(directory: Path, *words: str, **variables: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnbridge", *words),
        env=environment(directory, **variables),
        cwd=directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def end_by_force(process: asyncio.subprocess.Process, directory: Path) -> None:
    """Leave nothing of a gateway behind, whatever a test has found out about it."""
    if process.returncode is None:
        process.kill()
        await process.communicate()
    for pid in codex_pids(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def codex_pids(directory: Path) -> list[int]:
    """Return the processes that have our data directory on their command line, which are all Codex."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:  # It has just ended.
            continue
        if os.fsencode(directory / "data") in command:
            found.append(int(path.parent.name))
    return found


@dataclass(slots=True)
class Serving:
    """A running `turnbridge serve`, and what it has printed."""

    process: asyncio.subprocess.Process
    printed: str
    directory: Path
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = self.shown(r"Base URL +(\S+)/v1$")

    def shown(self, pattern: str) -> str:
        """Return what the pattern finds in the printed text."""
        found = re.search(pattern, self.printed, re.MULTILINE | re.DOTALL)
        assert found, self.printed
        return found[1]

    async def ready(self) -> None:
        async with httpx2.AsyncClient(trust_env=False) as client:
            while (await client.get(f"{self.url}/readyz")).status_code != 200:  # noqa: ASYNC110 - as probes do
                await asyncio.sleep(0.02)

    async def end(self, number: signal.Signals) -> Finished:
        """Send a signal, and return what is left of the process."""
        self.process.send_signal(number)
        out, err = await self.process.communicate()
        return Finished(self.process.returncode or 0, out.decode(), err.decode())

    def codex_pids(self) -> list[int]:
        if not Path("/proc/self/cmdline").exists():
            pytest.skip("only Linux shows the command lines of processes")
        return codex_pids(self.directory)

    async def until_codex_is_gone(self) -> None:
        while self.codex_pids():  # noqa: ASYNC110 - nobody tells when a process ends that is not ours
            await asyncio.sleep(0.02)


@asynccontextmanager
async def serving(directory: Path, *words: str, **variables: str) -> AsyncIterator[Serving]:
    """Run the demo on a free port; afterwards it has ended, if need be by force."""
    process = await start(directory, "serve", "--demo", "--port", "0", *words, **variables)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            printed = ""
            while "print(" not in printed:
                line = await process.stdout.readline()
                if not line:
                    _, err = await process.communicate()
                    pytest.fail(f"It ended early: {printed}{err.decode()}")
                printed += line.decode()
            yield Serving(process, printed, directory)
    finally:
        await end_by_force(process, directory)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_the_version_is_printed(tmp_path: Path) -> None:
    assert await run(tmp_path, "--version") == Finished(0, f"turnbridge {__version__}\n", "")


@pytest.mark.parametrize("words", [[], ["store"]], ids=["turnbridge", "turnbridge store"])
async def test_a_command_that_is_not_whole_shows_its_help(tmp_path: Path, words: list[str]) -> None:
    asked = await run(tmp_path, *words, "--help")
    assert await run(tmp_path, *words) == Finished(EXIT_USAGE, "", asked.out)


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


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gateway.test"])
async def test_other_addresses_than_loopback_need_a_key_that_the_user_chose(tmp_path: Path, host: str) -> None:
    refused = await run(tmp_path, "serve", "--demo", "--host", host, "--port", "0")
    assert (refused.status, refused.out) == (EXIT_CONFIG, "")
    assert refused.err == (
        f"Refusing to listen on {host} with a generated key. Choose a key of your own in PROXY_API_KEY, "
        "or listen on 127.0.0.1.\n"
    )


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


async def test_an_empty_key_in_the_file_is_not_one_that_the_user_chose(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('PROXY_API_KEY = ""\nPROXY_HOST = "192.0.2.1"')
    refused = await run(tmp_path, "serve", "--demo", PROXY_CONFIG=str(tmp_path / "c.toml"))
    assert refused.err.startswith("Refusing to listen on 192.0.2.1 with a generated key.")


@pytest.mark.parametrize("key", [",", " , ", " "])
async def test_a_list_of_keys_without_a_key_is_refused(tmp_path: Path, key: str) -> None:
    words = "PROXY_API_KEY holds no key. Set one, or several with commas; if it is unset, the gateway makes one.\n"
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


async def test_a_data_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    words = f"Cannot keep anything in {tmp_path / 'data'}: File exists. Choose another directory in PROXY_DATA_DIR.\n"
    assert await run(tmp_path, "serve", "--demo", "--port", "0") == Finished(EXIT_CONFIG, "", words)


async def test_a_key_that_cannot_be_kept_is_a_reason_not_to_start(tmp_path: Path) -> None:
    refused = await run(tmp_path, "serve", "--demo", "--port", "0", PROXY_DATA_DIR="/proc/nowhere")
    assert (refused.status, refused.out) == (EXIT_UNAVAILABLE, "")
    assert refused.err.splitlines()[-1].startswith("Cannot keep a key in /proc/nowhere: ")


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


@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", "2>/dev/full", "2>&{unread}"], ids=["closed", "full", "unread"])
async def test_it_serves_also_if_nobody_can_read_what_it_writes(tmp_path: Path, streams: str, unread: int) -> None:
    # Bound, so that nobody else gets it meanwhile; the gateway may listen on it, since this one does not.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f'exec "$@" {streams.format(unread=unread)}', "bash", sys.executable, "-m", "turnbridge"),
        *("serve", "--demo", "--port", str(port)),
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=asyncio.subprocess.DEVNULL,
        pass_fds=(unread,),
    )
    try:
        async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx2.ConnectError):
                    if (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200:
                        break
                await asyncio.sleep(0.05)
            process.terminate()
            await process.wait()
    finally:
        held.close()
        await end_by_force(process, tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "many"), ("PROXY_MAX_BODY_MB", "-1"), ("PROXY_DRAIN_S", "inf"), ("PROXY_LOG_LEVEL", "loud")],
)
async def test_a_bad_setting_is_refused_by_its_name_without_a_traceback(tmp_path: Path, name: str, value: str) -> None:
    refused = await run(tmp_path, "serve", "--demo", **{name: value})
    assert (refused.status, refused.out) == (EXIT_CONFIG, "")
    assert name in refused.err
    assert "Traceback" not in refused.err


async def test_what_is_printed_can_be_pasted(tmp_path: Path) -> None:
    async with serving(tmp_path, PROXY_PROT="1") as gateway:
        await gateway.ready()
        curl = gateway.shown(r"^(curl .*?\}')$")
        pasted = {"python": [sys.executable, "-c", gateway.shown(r"^(from openai .*)")]}
        if shutil.which("curl"):
            pasted["curl"] = ["sh", "-c", curl]
        said = {}
        for name, command in pasted.items():
            ran = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
            said[name] = (await ran.communicate())[0].decode()
        ended = await gateway.end(signal.SIGTERM)
    assert all("Hello!" in text for text in said.values()), said
    assert "warning: PROXY_PROT is set, but there is no such setting." in ended.err


async def test_a_second_start_has_the_same_key_and_knows_its_codex_already(tmp_path: Path) -> None:
    keys, learned = [], []
    for _ in range(2):
        async with serving(tmp_path) as gateway:
            await gateway.ready()
            keys.append(gateway.shown(r"API key +(\S+)$"))
            await gateway.end(signal.SIGTERM)
        notes = [path for path in (tmp_path / "data" / "binaries").rglob("*") if path.is_file()]
        learned.append({path: path.stat().st_mtime_ns for path in notes})
    file = tmp_path / "data" / "api-key"
    assert keys == [file.read_text().strip()] * 2
    assert file.stat().st_mode & 0o777 == 0o600
    assert learned[0]
    assert learned[0] == learned[1]
    assert names_in(tmp_path) == ["data"], "nothing is written anywhere else"


async def test_a_key_that_the_user_chose_is_not_printed(started_before: Path) -> None:
    async with serving(started_before, PROXY_API_KEY="sk-my-own-secret") as gateway, httpx2.AsyncClient() as client:
        await gateway.ready()
        headers = {"authorization": "Bearer sk-my-own-secret"}
        assert (await client.get(f"{gateway.url}/v1/models", headers=headers)).status_code == 200
        ended = await gateway.end(signal.SIGTERM)
    assert "sk-my-own-secret" not in gateway.printed + ended.out + ended.err
    assert not (started_before / "data" / "api-key").exists()


@pytest.mark.parametrize(("number", "ready"), [(signal.SIGTERM, True), (signal.SIGINT, True), (signal.SIGINT, False)])
async def test_a_signal_ends_everything_cleanly(tmp_path: Path, number: signal.Signals, ready: bool) -> None:
    """Also while Codex is still starting."""
    async with serving(tmp_path) as gateway:
        if ready:
            await gateway.ready()
            assert gateway.codex_pids()
        ended = await gateway.end(number)
        left = gateway.codex_pids()
    assert (ended.status, left) == (0, [])
    assert "Traceback" not in ended.err


async def test_a_codex_that_hangs_does_not_outlive_the_gateway(started_before: Path) -> None:
    async with serving(started_before) as gateway:
        await gateway.ready()
        for pid in gateway.codex_pids():
            os.kill(pid, signal.SIGSTOP)
        ended = await gateway.end(signal.SIGTERM)
        assert (ended.status, gateway.codex_pids()) == (0, [])


async def test_a_gateway_that_is_killed_leaves_no_codex_behind(started_before: Path) -> None:
    async with serving(started_before) as gateway:
        await gateway.ready()
        assert gateway.codex_pids()
        await gateway.end(signal.SIGKILL)
        await gateway.until_codex_is_gone()
