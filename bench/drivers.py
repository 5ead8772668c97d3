"""Two ways to run the same turns: through the gateway, and by a minimal JSON-RPC client on the same Codex."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import codex_cli_bin

from bench.gateway import API_KEY
from turnbridge.appserver.worker import CodexSpec, Worker, start_worker
from turnbridge.turn.items import Message, TextPart
from turnbridge.turn.request import TurnRequest
from turnbridge.wire.codex import schema
from turnbridge.wire.codex.encode import inject_items_params, thread_start_params, turn_start_params
from turnbridge.wire.codex.tools import ToolNames

MODEL = "gpt-5.5"
REQUEST = TurnRequest(model=MODEL, items=(Message(role="user", parts=(TextPart(text="Hello"),)),))


class Driver(Protocol):
    """Runs one turn and tells when its first text came and when it ended, in seconds."""

    async def turn(self) -> tuple[float, float]:
        """Run a turn."""
        ...


class ThroughGateway:
    """A streaming chat completion over a kept connection of its own."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._host, self._port = where.hostname, where.port
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {API_KEY}\r\n"
        self._request = f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def turn(self) -> tuple[float, float]:
        """Run a turn."""
        # The server closes connections that nobody has used for a while.
        self._free = [pair for pair in self._free if not pair[0].at_eof()]
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
        began = time.perf_counter()
        writer.write(self._request)
        await reader.readuntil(b'"content":"word')
        first = time.perf_counter() - began
        await reader.readuntil(b"[DONE]")
        whole = time.perf_counter() - began
        await reader.readuntil(b"0\r\n\r\n")
        self._free.append((reader, writer))
        return first, whole


class Direct:
    """The recipe's calls and nothing else, on one app-server."""

    def __init__(self, worker: Worker) -> None:
        self._connection = worker.connection

    async def turn(self) -> tuple[float, float]:
        """Run a turn."""
        began = time.perf_counter()
        names = ToolNames(())
        started = await self._connection.call(
            "thread/start", thread_start_params(REQUEST, names), schema.ThreadStartResult
        )
        thread = started.thread.id
        inbox = self._connection.subscribe(thread)
        await self._connection.call("thread/inject_items", inject_items_params(thread, REQUEST.items, names), dict)
        self._connection.send("turn/start", turn_start_params(thread, REQUEST))
        first = None
        while True:
            for note in await inbox.batch():
                if first is None and isinstance(note, schema.AgentMessageDelta):
                    first = time.perf_counter() - began
                if isinstance(note, schema.TurnCompleted):
                    self._connection.unsubscribe(thread)
                    return first or 0.0, time.perf_counter() - began


@contextlib.asynccontextmanager
async def app_server(provider: str, home: Path) -> AsyncIterator[Worker]:
    """Run one app-server as the gateway does."""
    overrides = (
        'model_provider="bench"',
        'model_providers.bench.name="bench"',
        f'model_providers.bench.base_url="{provider}"',
        'model_providers.bench.wire_api="responses"',
    )
    binary = codex_cli_bin.bundled_codex_path()
    spec = CodexSpec(binary=binary, home=home, workdir=home / "work", overrides=overrides, version="bench")
    worker = await start_worker(spec)
    try:
        yield worker
    finally:
        await worker.process.stop()


def cpu_seconds(pids: list[int]) -> float:
    """Return the processor time that processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(child) for child in listed]
