"""The same Codex without a gateway: a minimal JSON-RPC client that makes the gateway's calls, and nothing else."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import codex_cli_bin

from bench.client import MODEL, TIMEOUT_S, Timed
from turnbridge.appserver.worker import CodexSpec, Worker, start_worker
from turnbridge.turn.items import Message, TextPart
from turnbridge.turn.request import TurnRequest
from turnbridge.wire.codex import schema
from turnbridge.wire.codex.encode import inject_items_params, thread_start_params, turn_start_params
from turnbridge.wire.codex.tools import ToolNames


class Direct:
    """One app-server, driven directly."""

    def __init__(self, worker: Worker, text: str) -> None:
        self._connection = worker.connection
        self._request = TurnRequest(model=MODEL, items=(Message(role="user", parts=(TextPart(text=text),)),))
        self._names = ToolNames(())

    async def ask(self) -> Timed:
        """Run a turn in a thread of its own."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self._turn()

    async def _turn(self) -> Timed:
        began = time.perf_counter()
        request, names, connection = self._request, self._names, self._connection
        started = await connection.call("thread/start", thread_start_params(request, names), schema.ThreadStartResult)
        thread = started.thread.id
        inbox = connection.subscribe(thread)
        await connection.call("thread/inject_items", inject_items_params(thread, request.items, names), dict)
        connection.send("turn/start", turn_start_params(thread, request))
        first, deltas = 0.0, 0
        while True:
            for note in await inbox.batch():
                if isinstance(note, schema.AgentMessageDelta):
                    first = first or time.perf_counter() - began
                    deltas += 1
                if isinstance(note, schema.TurnCompleted):
                    connection.unsubscribe(thread)
                    return Timed(first, time.perf_counter() - began, deltas, b"")


@contextlib.asynccontextmanager
async def app_server(provider: str, home: Path) -> AsyncIterator[Worker]:
    """Run one app-server as the gateway does."""
    values = {"name": "bench", "base_url": provider, "wire_api": "responses"}
    overrides = tuple(f'model_providers.bench.{key}="{value}"' for key, value in values.items())
    spec = CodexSpec(
        binary=codex_cli_bin.bundled_codex_path(),
        home=home,
        workdir=home / "work",
        overrides=('model_provider="bench"', *overrides),
        version="bench",
    )
    worker = await start_worker(spec)
    try:
        yield worker
    finally:
        await worker.process.stop()
