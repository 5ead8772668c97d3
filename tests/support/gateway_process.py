"""A gateway of our own in a process of its own: the command that users run, with a scripted model as its provider."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2

from tests.support.plain_http import TIMEOUT_S, client
from tests.support.processes import app_servers, with_variable
from tests.support.waiting import LOOK_AGAIN_S

API_KEY = "sk-soak-0123456789abcdef"
# A cold start on a busy machine takes two seconds.
START_TIMEOUT_S = 30
# An idle gateway ends sooner than this; one with turns is told again, and then has to stop at once.
ASK_AGAIN_S = 1.0
END_TIMEOUT_S = 20.0

ROOT = Path(__file__).parents[2]
# Nothing that the user has set may change what is looked at.
SETTINGS_PREFIXES = ("PROXY_", "WORKER_", "CODEX_", "OPENAI_")

USER_CONFIG = """\
model = "gpt-5.5"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{base_url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = {websockets}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcess:
    """A running `turnbridge serve`."""

    process: asyncio.subprocess.Process
    url: str
    directory: Path

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self.process.pid

    def app_servers(self) -> list[int]:
        """Return its app-servers."""
        return app_servers(self.pid)

    def survivors(self) -> list[int]:
        """Return every process of Codex's that is there, whoever its parent is by now."""
        return with_variable("CODEX_HOME", str(self.directory / "data" / "codex-home"))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the gateway itself."""
        self.process.send_signal(number)

    def log(self) -> str:
        """Return what it has logged."""
        return _content(self.directory / "gateway.log")

    def client(self, timeout_s: float = TIMEOUT_S) -> httpx2.AsyncClient:
        """Return a client that sends the key."""
        return client(self.url, API_KEY, timeout_s=timeout_s)

    async def ready(self) -> None:
        """Return once it can run turns."""
        async with asyncio.timeout(START_TIMEOUT_S), self.client() as http:
            while (await http.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - It tells nobody by itself.
                await asyncio.sleep(LOOK_AGAIN_S)


@contextlib.asynccontextmanager
async def gateway_process(
    directory: Path,
    provider: str,
    settings: Mapping[str, object],
    *,
    wrapper: Sequence[str] = (),
    program: str = "turnbridge",
    python: str = sys.executable,
    pass_fds: Sequence[int] = (),
) -> AsyncIterator[GatewayProcess]:
    """Run a gateway on a Python, started through `wrapper` if there is one, until the context ends; then it is gone."""
    user_home = directory / "user-codex"
    user_home.mkdir(parents=True, exist_ok=True)
    websockets = provider.startswith("ws:")
    config = USER_CONFIG.format(
        base_url=f"http{provider.removeprefix('ws')}" if websockets else provider, websockets=str(websockets).lower()
    )
    (user_home / "config.toml").write_text(config, encoding="utf-8")
    (directory / "empty.toml").touch()
    chosen = {
        "PORT": 0,
        "PROXY_API_KEY": API_KEY,
        "PROXY_DATA_DIR": directory / "data",
        "PROXY_CONFIG": directory / "empty.toml",
        "CODEX_HOME": user_home,
        **settings,
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS_PREFIXES)}
    command = [*wrapper, python, "-m", program, "serve"]
    with (directory / "gateway.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**inherited, **{name: str(value) for name, value in chosen.items()}},
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            pass_fds=pass_fds,
        )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            url = await _printed_url(process, directory / "gateway.log")
        yield GatewayProcess(process=process, url=url, directory=directory)
    finally:
        await end(process)


async def _printed_url(process: asyncio.subprocess.Process, log: Path) -> str:
    assert process.stdout is not None
    printed = ""
    while (found := re.search(r"Base URL +(http://\S+)/v1", printed)) is None:
        line = await process.stdout.readline()
        if not line:
            raise AssertionError(f"The gateway ended before it listened: {_content(log)}")
        printed += line.decode()
    return found[1]


async def end(process: asyncio.subprocess.Process) -> None:
    """End a server as an impatient operator does: ask, ask again, kill."""
    for number, patience_s in ((signal.SIGTERM, ASK_AGAIN_S), (signal.SIGTERM, END_TIMEOUT_S), (signal.SIGKILL, None)):
        if process.returncode is None:
            process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                # Reads on to the end, so that the pipe is closed too.
                await process.communicate()
                return


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8")
