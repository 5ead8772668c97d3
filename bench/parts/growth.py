"""How the cost of a request grows: with its history, its tools, its answer, and with the streams that are open."""

import asyncio
import json
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeAlias

from bench.client import ASK, DELTAS, HOLD, Client, RequestFailed, Timed, pieces
from bench.curves import Curve, curve_lines, curve_plot
from bench.direct import Direct, app_server, said
from bench.parts.stored import stored_curve
from bench.processes import cpu_seconds, gateway, gateway_alone, module
from bench.report import Section, at_most
from tests.support.gateway_process import GatewayProcess
from turnbridge.turn.items import Message

TITLE = "Growth"
HISTORIES = (1, 10, 100, 500, 1000, 2000)
TOOLS = (1, 10, 50, 100, 200)
ANSWERS = (10, 100, 1000, 10_000, 50_000)
STREAMS = (1, 100, 500, 1000, 2000)
# For each size; a hundredth of the whole is still seen.
REQUESTS, QUICK_REQUESTS = 40, 2
# Each has a whole Codex behind it.
REAL_TURNS, QUICK_REAL_TURNS = 10, 2
# At least so many long answers.
LONG_ANSWERS = 3
# About what people and models write in a message.
MESSAGE_CHARACTERS = 600
# With room for noise.
LINEAR = 1.1
# How much steeper than in Codex itself, which sends its provider the whole history.
FLAT = 0.15

INTRODUCTION = (
    "The processor time of the gateway's own process for a request, on an app-server of recorded shapes. The exponent "
    "is that of the last three sizes: 1 is in proportion to the size, 0 is flat."
)

History: TypeAlias = list[dict[str, str]]


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure every curve."""
    requests, turns = (QUICK_REQUESTS, QUICK_REAL_TURNS) if quick else (REQUESTS, REAL_TURNS)
    async with gateway_alone(directory / "alone") as running:
        alone = [
            *await _histories(running, requests),
            await _tools(running, requests),
            await _answers(running, requests),
            await _streams(running, requests),
        ]
    alone.append(await stored_curve(directory / "stored", steepest=LINEAR, quick=quick))
    async with (
        module("bench.model") as (model, _),
        gateway(directory / "whole", f"{model}/v1", WORKER_COUNT=1) as running,
        app_server(f"{model}/v1", directory / "direct") as worker,
    ):
        replayed, warm, direct = await _turns(running, Direct(worker, ASK), turns)
    steeper = round(warm.exponent - direct.exponent, 2)
    return Section(
        title=TITLE,
        lines=[
            INTRODUCTION,
            "",
            *curve_lines(alone),
            "",
            "With a whole Codex behind it, the time to the first text of a turn:",
            "",
            *curve_lines([replayed, warm, direct]),
        ],
        goals=[
            *(goal for curve in alone for goal in curve.goals()),
            at_most("growth: first text, warm, exponent beyond that of Codex driven directly", steeper, FLAT),
        ],
        plots=[
            curve_plot("growth-of-cpu", "The gateway's own processor time for a request", alone),
            curve_plot("growth-of-first-text", "First text after so many messages", [replayed, warm, direct]),
        ],
    )


class Chatter:
    """A client without state, whose every history is one that nobody has had before."""

    def __init__(self, running: GatewayProcess) -> None:
        self._client = Client(running.url)
        self._numbers = count()

    def history(self, length: int) -> History:
        """Return so many messages, the last of which asks."""
        text = f"{next(self._numbers):08} ".ljust(MESSAGE_CHARACTERS, "x")
        roles = ["assistant" if left % 2 else "user" for left in range(length - 1, 0, -1)]
        return [*({"role": role, "content": text} for role in roles), {"role": "user", "content": ASK}]

    async def replayed(self, length: int) -> Timed:
        """Run a turn whose whole history Codex has to be told."""
        return await self._ask(self.history(length), warm=False)

    async def warm(self, length: int) -> AsyncIterator[Timed]:
        """Run turns that go on in a kept thread; the first answer, that of its first turn, is yielded too."""
        history = self.history(length)
        yield await self._ask(history, warm=False)
        while True:
            history += [{"role": "assistant", "content": "".join(pieces(DELTAS))}, {"role": "user", "content": ASK}]
            yield await self._ask(history, warm=True)

    async def _ask(self, history: History, *, warm: bool) -> Timed:
        timed = await self._client.ask(self._client.request({"messages": history}), deltas=DELTAS)
        if (b"x-turnbridge-thread: warm" in timed.answer) != warm:
            raise RequestFailed(f"A turn after {len(history)} messages went on in the wrong thread.")
        return timed


async def _histories(running: GatewayProcess, requests: int) -> list[Curve]:
    replayed = Curve("messages in the history, replayed", "CPU ms", LINEAR)
    # Every history has to be read and compared, whatever becomes of it.
    warm = Curve("messages in the history, warm", "CPU ms", LINEAR)
    chatter = Chatter(running)
    for size in HISTORIES:
        replayed.add(size, await _cost_ms(running, requests, partial(chatter.replayed, size)))
        turns = chatter.warm(size)
        await anext(turns)
        warm.add(size, await _cost_ms(running, requests, turns.__anext__))
    return [replayed, warm]


async def _tools(running: GatewayProcess, requests: int) -> Curve:
    curve = Curve("tools", "CPU ms", LINEAR)
    client = Client(running.url)
    for size in TOOLS:
        tools = [{"type": "function", "function": _function(number)} for number in range(size)]
        request = client.request({"messages": [{"role": "user", "content": ASK}], "tools": tools})
        curve.add(size, await _cost_ms(running, requests, partial(client.ask, request, deltas=DELTAS)))
    return curve


async def _answers(running: GatewayProcess, requests: int) -> Curve:
    curve = Curve("deltas in the answer", "CPU ms", LINEAR)
    client = Client(running.url)
    for size in ANSWERS:
        request = client.says(json.dumps({"deltas": size}))
        enough = min(requests, max(LONG_ANSWERS, requests * ANSWERS[1] // size))
        curve.add(size, await _cost_ms(running, enough, partial(client.ask, request, deltas=size)))
    return curve


async def _streams(running: GatewayProcess, requests: int) -> Curve:
    curve = Curve("open streams", "CPU ms", LINEAR)
    client = Client(running.url)
    request, hold = client.says(ASK), client.says(HOLD)
    opened: list[asyncio.Transport] = []
    try:
        for size in STREAMS:
            opened += [await client.open(hold) for _ in range(size - len(opened))]
            curve.add(size, await _cost_ms(running, requests, partial(client.ask, request, deltas=DELTAS)))
    finally:
        for stream in opened:
            stream.close()
    return curve


async def _turns(running: GatewayProcess, direct: Direct, turns: int) -> tuple[Curve, Curve, Curve]:
    replayed = Curve("first text after so many messages, replayed", "ms", None)
    warm = Curve("first text after so many messages, warm", "ms", None)
    alone = Curve("first text after so many messages, in a thread of Codex driven directly", "ms", None)
    chatter = Chatter(running)
    for size in HISTORIES:
        going_on, thread = chatter.warm(size), direct.continued(_messages(chatter.history(size)[:-1]))
        sides: dict[Curve, Callable[[], Awaitable[Timed]]] = {
            replayed: partial(chatter.replayed, size),
            warm: going_on.__anext__,
            alone: thread.__anext__,
        }
        await anext(going_on)
        await anext(thread)
        firsts = [[(await ask()).first for ask in sides.values()] for _ in range(turns)]
        for curve, of_side in zip(sides, zip(*firsts, strict=True), strict=True):
            curve.add(size, statistics.median(of_side) * 1000)
    return replayed, warm, alone


def _messages(history: History) -> list[Message]:
    return [said("assistant" if message["role"] == "assistant" else "user", message["content"]) for message in history]


async def _cost_ms(running: GatewayProcess, requests: int, ask: Callable[[], Awaitable[Timed]]) -> float:
    """Return the gateway's processor time for each of some requests, one after another."""
    before = cpu_seconds([running.pid])
    for _ in range(requests):
        await ask()
    return (cpu_seconds([running.pid]) - before) / requests * 1000


def _function(number: int) -> dict[str, object]:
    """Return a function with a few parameters."""
    fields = {name: {"type": "string", "description": f"The {name} of the place."} for name in ("city", "country")}
    parameters = {"type": "object", "properties": fields, "required": ["city"], "additionalProperties": False}
    return {"name": f"look_up_{number}", "description": "Looks a place up.", "parameters": parameters}
