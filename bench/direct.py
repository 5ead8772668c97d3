"""The same Codex without a gateway: a minimal JSON-RPC client that makes the gateway's calls, and nothing else."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import codex_cli_bin

from bench.client import MODEL, TIMEOUT_S, Timed
from turnbridge.codex.process.home import provider_overrides
from turnbridge.codex.process.worker import CodexSpec, Worker, start_worker
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.encode import inject_items_params, thread_start_params, turn_start_params
from turnbridge.codex.protocol.messages import Note
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn.items import (
    Item,
    Message,
    Role,
    TextPart,
)
from turnbridge.turn.request import ThreadSpec, TurnRequest


class Direct:
    """One app-server, driven directly."""

    def __init__(self, worker: Worker, text: str) -> None:
        self._threads = Threads(worker)
        self._items = (said("user", text),)

    async def ask(self) -> Timed:
        """Run a turn in a thread of its own."""
        began = time.perf_counter()
        async with asyncio.timeout(TIMEOUT_S):
            return await self._turn(await self._threads.start(), self._items, began)

    async def continued(self, history: Sequence[Message]) -> AsyncIterator[Timed]:
        """Run turns in one thread, the first of them after a history; each is asked the same."""
        thread = await self._threads.start()
        shown: Sequence[Item] = (*history, *self._items)
        while True:
            async with asyncio.timeout(TIMEOUT_S):
                yield await self._turn(thread, shown, time.perf_counter())
            shown = self._items

    async def _turn(self, thread: str, items: Sequence[Item], began: float) -> Timed:
        first, deltas = 0.0, 0
        async for notes in self._threads.turn(thread, items):
            came = sum(isinstance(note, schema.AgentMessageDelta) for note in notes)
            if came and not deltas:
                first = time.perf_counter() - began
            deltas += came
        return Timed(first, time.perf_counter() - began, deltas, b"")


class Threads:
    """The calls that a turn takes, and nothing around them."""

    def __init__(self, worker: Worker) -> None:
        self._connection = worker.connection
        self._request = TurnRequest(spec=ThreadSpec(model=MODEL), items=())
        self._names = ToolNames(())

    async def start(self) -> str:
        """Return the id of a new thread."""
        params = thread_start_params(self._request, self._names)
        return (await self._connection.call("thread/start", params, schema.ThreadStartResult)).thread.id

    async def turn(self, thread: str, items: Sequence[Item]) -> AsyncIterator[Sequence[Note]]:
        """Run a turn after showing the model these items; yield what Codex tells of it."""
        connection = self._connection
        inbox = connection.subscribe(thread)
        await connection.call("thread/inject_items", inject_items_params(thread, items, self._names), dict)
        connection.send("turn/start", turn_start_params(thread, self._request))
        ended = False
        while not ended:
            notes = await inbox.batch()
            ended = any(isinstance(note, schema.TurnCompleted) for note in notes)
            yield notes
        connection.unsubscribe(thread)


def said(role: Role, text: str) -> Message:
    """Return a message of one text."""
    return Message(role=role, parts=(TextPart(text=text),))


@contextlib.asynccontextmanager
async def app_server(provider: str, home: Path, *, sparing: bool = False) -> AsyncIterator[Worker]:
    """Run one app-server as Codex is run by itself, or `sparing` it what the gateway does."""
    spec = CodexSpec(
        binary=codex_cli_bin.bundled_codex_path(),
        home=home,
        workdir=home / "work",
        overrides=provider_overrides(provider),
        version="bench",
        sparing=sparing,
    )
    worker = await start_worker(spec)
    try:
        yield worker
    finally:
        await worker.process.stop()
