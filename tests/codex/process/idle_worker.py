"""A worker without Codex: its process does nothing until its input ends, its connection goes wherever one likes."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from tests.support.codex_schema import pinned_schema
from turnbridge.codex.process.connection import Connection
from turnbridge.codex.process.process import AppServerProcess
from turnbridge.codex.process.worker import CodexSpec, Worker
from turnbridge.codex.protocol.capabilities import read_capabilities
from turnbridge.engine.ports import ModelOffer
from turnbridge.turn.items import JsonObject


async def idle_worker(
    directory: Path,
    *,
    connection: Connection | None = None,
    login: tuple[int, int] | None = (1, 1),
    direct_tools: bool = True,
) -> Worker:
    """Start a worker; it is to be stopped by `worker.process.stop()`."""
    now = asyncio.get_running_loop().time()
    process = await AppServerProcess.start(["sh", "-c", "exec cat > /dev/null"], home=directory, cwd=directory)
    return Worker(
        spec=CodexSpec(
            binary=directory / "codex", home=directory, workdir=directory, version="0", direct_tools=direct_tools
        ),
        process=process,
        connection=connection or Connection(process.write),
        capabilities=read_capabilities(pinned_schema()),
        dialect="v2",
        binary="idle",
        models=(),
        offer=ModelOffer(models=()),
        makes_images=False,
        login_missing=login is None,
        login=login,
        over_websocket=False,
        started_at=now,
        idle_since=now,
    )


class Starter:
    """Starts children that do nothing until their input ends, and remembers them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.login: tuple[int, int] | None = (1, 1)
        self.workers: list[Worker] = []
        self.problems: list[Exception] = []
        """What the next starts fail with."""
        self.gate = asyncio.Event()
        self.gate.set()
        self._tried = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; it is looked at after every start, successful or not."""
        while not condition():
            await self._tried.wait()
            self._tried.clear()

    async def has_started(self, count: int) -> None:
        await self.until(lambda: len(self.workers) == count)

    async def __call__(self) -> Worker:
        login = self.login
        await self.gate.wait()
        if self.problems:
            self._tried.set()
            raise self.problems.pop(0)
        self.workers.append(await idle_worker(self._directory, connection=answering(), login=login))
        self._tried.set()
        return self.workers[-1]


def answering(result: JsonObject | None = None) -> Connection:
    """Return a connection to somebody who answers every call so, a probe for example."""

    def write(line: bytes) -> None:
        answer = json.dumps({"id": json.loads(line)["id"], "result": result or {}}).encode() + b"\n"
        asyncio.get_running_loop().call_soon(connection.receive, answer)

    connection = Connection(write)
    return connection
