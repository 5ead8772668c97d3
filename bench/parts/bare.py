"""The gateway alone, on an app-server of recorded shapes, against a server that only streams the same bytes."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from bench.client import CHAT, DELTAS, RESPONSES, Client, Timed, body_of
from bench.processes import gateway_alone, module
from bench.report import Goal, Section, at_least, at_most, table
from bench.rounds import Measured, Side, interleaved, warm_up
from tests.support.gateway_process import GatewayProcess

TITLE = "The gateway alone, against a bare server"
LONG_DELTAS = 2000
REQUESTS, ROUNDS = 12, 6
# So fast do models write; as many streams as one person can hardly read.
PACE_S, PACED_STREAMS, PACED_DELTAS = 0.02, 32, 100
PACED_ROUNDS = 3
INTRODUCTION = (
    f"Streams of {LONG_DELTAS} deltas, all there at once: what one core can do. The bare server either has the same "
    "bytes at hand or encodes each frame. The last two rows have an app-server that writes a few lines and waits until "
    "they are read, so that nothing can be joined."
)
BESIDE = (
    "Beside these streams, the first text of a further request comes after {median:.1f} ms (p99: {p99:.1f} ms): what "
    "the gateway itself adds to a turn."
)
HEAD = ("", "deltas/s per core", "CPU us per delta", "frames per write", "CPU ms per request")


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure deltas per second of processor time, in a burst and at a model's pace."""
    async with gateway_alone(directory / "gateway") as running:
        client = Client(running.url)
        recorded = await client.ask(client.says(json.dumps({"deltas": LONG_DELTAS})), deltas=LONG_DELTAS)
        file = directory / "stream"
        file.write_bytes(body_of(recorded.answer))
        async with module("bench.bare", str(file)) as (bare, pid):
            return await _measured(running, bare, pid, quick=quick)


async def _measured(running: GatewayProcess, bare: str, pid: int, *, quick: bool) -> Section:
    requests, rounds = (2, 1) if quick else (REQUESTS, ROUNDS)
    burst = [
        _bare("bare, given bytes, 1 frame a write", f"{bare}/given", "?frames=1", pid),
        _bare("bare, given bytes, 4 frames a write", f"{bare}/given", "?frames=4", pid),
        _bare("bare, encodes, 1 frame a write", f"{bare}/encoded", "?frames=1", pid),
        _bare("bare, encodes, 4 frames a write", f"{bare}/encoded", "?frames=4", pid),
        _bare("Starlette's StreamingResponse, given bytes, 1 frame a write", f"{bare}/starlette", "?frames=1", pid),
        _ours("gateway, chat", running),
        _ours("gateway, responses", running, RESPONSES),
    ]
    alone = [
        _ours("gateway, chat, 4 deltas a read", running, lines=4),
        _ours("gateway, chat, 1 delta a read", running, lines=1),
    ]
    query = f"?pace_ms={PACE_S * 1000:.0f}&most={PACED_DELTAS}"
    paced = [
        _spread(_bare("bare, given bytes", f"{bare}/given", query, pid, deltas=PACED_DELTAS)),
        _spread(_ours("gateway, chat", running, deltas=PACED_DELTAS, pace_s=PACE_S)),
    ]
    short = _ours("a short request", running, deltas=DELTAS)
    await warm_up([*burst, *alone, short], requests=4)
    at_once = await interleaved(burst, at_once=4, requests=requests, rounds=rounds)
    one_by_one = await interleaved(alone, at_once=1, requests=max(1, requests // 4), rounds=rounds)
    slow = await interleaved(paced, at_once=PACED_STREAMS, requests=PACED_STREAMS, rounds=1 if quick else PACED_ROUNDS)
    return _section([*burst, *alone], [*at_once, *one_by_one], paced, slow, await _meanwhile(paced[1], short))


def _bare(name: str, url: str, query: str, pid: int, *, deltas: int = LONG_DELTAS) -> Side:
    client = Client(url, query=query)
    request = client.says("")
    return Side(name=name, ask=lambda: client.ask(request, deltas=deltas), own=[pid])


def _ours(name: str, running: GatewayProcess, path: str = CHAT, *, deltas: int = LONG_DELTAS, **wish: float) -> Side:
    client = Client(running.url, path)
    request = client.says(json.dumps({"deltas": deltas, **wish}))
    return Side(name=name, ask=lambda: client.ask(request, deltas=deltas), own=[running.pid])


def _spread(side: Side) -> Side:
    """Let the streams begin at different moments: in step, they would share their wake-ups."""
    waits = cycle(PACE_S * place / PACED_STREAMS for place in range(PACED_STREAMS))

    async def ask() -> Timed:
        await asyncio.sleep(next(waits))
        return await side.ask()

    return replace(side, ask=ask)


async def _meanwhile(paced: Side, short: Side) -> Measured:
    """Run short requests one after another, for as long as slow streams run beside them."""
    streams = asyncio.gather(*(paced.ask() for _ in range(PACED_STREAMS)))
    # All of them have begun by then, and none has ended.
    await asyncio.sleep(PACE_S * PACED_DELTAS / 4)
    measured = Measured()
    while not streams.done():
        timed = await short.ask()
        measured.first.append(timed.first)
    await streams
    return measured


def _section(
    sides: Sequence[Side],
    measured: Sequence[Measured],
    paced: Sequence[Side],
    slow: Sequence[Measured],
    meanwhile: Measured,
) -> Section:
    given_1, given_4, encodes_1, encodes_4, _, chat, *_ = measured
    return Section(
        title=TITLE,
        lines=[
            INTRODUCTION,
            "",
            *table(HEAD, [_row(side.name, one) for side, one in zip(sides, measured, strict=True)]),
            "",
            f"{PACED_STREAMS} streams at once of {1 / PACE_S:.0f} deltas a second each: every delta is a wake-up.",
            "",
            *table(HEAD, [_row(side.name, one) for side, one in zip(paced, slow, strict=True)]),
            "",
            BESIDE.format(median=meanwhile.median_ms, p99=meanwhile.p99_ms),
        ],
        goals=[
            at_most(f"bare: first text beside {PACED_STREAMS} streams, median", meanwhile.median_ms, 1.5, " ms"),
            at_most(f"bare: first text beside {PACED_STREAMS} streams, p99", meanwhile.p99_ms, 10, " ms"),
            _share("encodes, 1 frame a write", chat, encodes_1),
            _share("encodes, 4 frames a write", chat, encodes_4),
            _share("given bytes, 1 frame a write", chat, given_1),
            _share("given bytes, 4 frames a write", chat, given_4),
        ],
    )


def _share(what: str, ours: Measured, bare: Measured) -> Goal:
    return at_least(f"bare: deltas/s per core : its, {what}", ours.per_core / bare.per_core, 0.6)


def _row(name: str, one: Measured) -> list[str]:
    per_write = one.deltas / one.writes
    return [name, f"{one.per_core:,.0f}", f"{one.delta_us:.1f}", f"{per_write:.1f}", f"{one.own_ms:.2f}"]
