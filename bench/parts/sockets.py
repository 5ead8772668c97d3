"""Chats of ten turns over one WebSocket, against the same chats over HTTP: what a client's WebSocket brings."""

import contextlib
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect

from bench.client import API_KEY, ASK, DELTAS, MODEL, RESPONSES, Client, RequestFailed, Timed, response_id
from bench.processes import gateway, module
from bench.report import Section, at_least, at_most, table
from bench.rounds import Measured, Side, interleaved, warm_up
from tests.support.gateway_process import GatewayProcess
from tests.support.processes import app_servers

TITLE = "Responses over WebSocket"
INTRODUCTION = (
    f"Chats of ten turns, of {DELTAS} deltas each, that go on by `previous_response_id`: over HTTP from the store, "
    "over WebSocket with `store: false` from the memory of the connection. One app-server."
)
LEVELS, QUICK_LEVELS = ((1, 40, 6), (8, 80, 6)), ((1, 4, 1), (8, 8, 1))
CHAT_TURNS = 10
HEAD = ("", "first text ms", "p99 ms", "turns/s", "own CPU ms", "Codex CPU ms")
HTTP, SOCKET = 0, 1
# Clients that are not much faster are not slower either: one start differs from the next by this much.
NOT_SLOWER = 0.95


class HttpChats:
    """Chats over HTTP, of which any that nobody uses goes on."""

    def __init__(self, url: str) -> None:
        self._client = Client(url, RESPONSES)
        self._idle: list[tuple[str | None, int]] = []

    async def ask(self) -> Timed:
        """Run the next turn of a chat."""
        last, turns = self._idle.pop() if self._idle else (None, 0)
        body = {"input": ASK} if last is None else {"input": ASK, "previous_response_id": last}
        timed = await self._client.ask(self._client.request(body), deltas=DELTAS)
        if turns + 1 < CHAT_TURNS:
            self._idle.append((response_id(timed), turns + 1))
        return timed


class SocketChats:
    """The same over WebSockets, one connection for each chat that goes on at the same time."""

    def __init__(self, url: str, stack: contextlib.AsyncExitStack) -> None:
        self._url = f"ws{url.removeprefix('http')}{RESPONSES}"
        self._stack = stack
        self._idle: list[tuple[ClientConnection, str | None, int]] = []

    async def ask(self) -> Timed:
        """Run the next turn of a chat."""
        connection, last, turns = self._idle.pop() if self._idle else (await self._connected(), None, 0)
        body = {"type": "response.create", "model": MODEL, "input": ASK, "store": False}
        began = time.perf_counter()
        await connection.send(json.dumps(body if last is None else {**body, "previous_response_id": last}))
        first, deltas, answer = None, 0, b""
        while True:
            answer = await connection.recv(decode=False)
            if b'"response.output_text.delta"' in answer:
                first = first or time.perf_counter()
                deltas += 1
            elif b'"response.completed"' in answer or b'"error"' in answer[:40]:
                break
        whole = time.perf_counter() - began
        if first is None or deltas != DELTAS:
            raise RequestFailed(f"{deltas} deltas came instead of {DELTAS}: {answer[:500]!r}")
        timed = Timed(first - began, whole, deltas, answer)
        ended = turns + 1 == CHAT_TURNS
        self._idle.append((connection, None if ended else response_id(timed), 0 if ended else turns + 1))
        return timed

    async def _connected(self) -> ClientConnection:
        sent = {"authorization": f"Bearer {API_KEY}"}
        opened = connect(self._url, additional_headers=sent, compression=None, max_size=None)
        return await self._stack.enter_async_context(opened)


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure both, with a real Codex behind them."""
    levels: dict[int, list[Measured]] = {}
    async with module("bench.model") as (model, _), _sides(directory, f"{model}/v1") as sides:
        await warm_up(sides)
        for at_once, requests, rounds in QUICK_LEVELS if quick else LEVELS:
            levels[at_once] = await interleaved(sides, at_once=at_once, requests=requests, rounds=rounds)
    rows = [
        (f"{side.name}, {at_once} at once", *_figures(one))
        for at_once, measured in levels.items()
        for side, one in zip(sides, measured, strict=True)
    ]
    goals = [
        goal
        for at_once, seen in levels.items()
        for goal in (
            at_least(f"sockets: turns/s : HTTP, {at_once} at once", seen[SOCKET].rate / seen[HTTP].rate, NOT_SLOWER),
            at_most(f"sockets: own CPU : HTTP, {at_once} at once", seen[SOCKET].own_ms / seen[HTTP].own_ms, 1),
        )
    ]
    return Section(title=TITLE, lines=[INTRODUCTION, "", *table(HEAD, rows)], goals=goals)


@contextlib.asynccontextmanager
async def _sides(directory: Path, provider: str) -> AsyncIterator[list[Side]]:
    async with (
        gateway(directory / "http", provider, WORKER_COUNT=1) as http,
        gateway(directory / "socket", provider, WORKER_COUNT=1) as socket,
        contextlib.AsyncExitStack() as stack,
    ):
        yield [
            _side("HTTP", http, HttpChats(http.url)),
            _side("WebSocket", socket, SocketChats(socket.url, stack)),
        ]


def _side(name: str, running: GatewayProcess, chats: HttpChats | SocketChats) -> Side:
    return Side(name=name, ask=chats.ask, own=[running.pid], behind=partial(app_servers, running.pid))


def _figures(one: Measured) -> tuple[str, ...]:
    return (
        *(f"{figure:.1f}" for figure in (one.median_ms, one.p99_ms, one.rate)),
        f"{one.own_ms:.2f}",
        f"{one.behind_ms:.1f}",
    )
