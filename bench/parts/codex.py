"""The gateway against the same Codex driven directly: what a user's turn costs more."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from bench.client import ASK, CHAT, DELTAS, RESPONSES, Client, Timed, pieces
from bench.direct import Direct, app_server
from bench.plots import bars
from bench.processes import gateway, module
from bench.report import Goal, Section, at_least, at_most, table
from bench.rounds import Measured, Side, interleaved, warm_up
from tests.support.processes import app_servers

TITLE = "The same Codex driven directly, {transport} to the provider"
TRANSPORTS = {"http": "over HTTP", "websocket": "over WebSocket (as with a real login)"}
# Turns at once, turns in a round, rounds. Each round is over before the machine changes its mind; more rounds, not
# longer ones, beat the noise. But after each change of sides all caches are cold, so a round takes a second or two.
LEVELS = ((1, 25, 5), (8, 56, 4), (32, 96, 2))
# The same program started again can be 8 % faster or slower, whatever the rounds: so all are started several times.
STARTS = 3
QUICK_LEVELS = ((1, 4, 1), (8, 8, 1), (32, 32, 1))
# Most answers of models are longer.
LONG_DELTAS = 300
LONG_LEVELS = ((1, 16, 6), (8, 32, 6))
QUICK_LONG_LEVELS = ((1, 2, 1), (8, 8, 1))
CHAT_TURNS = 10
# The places of the sides that the goals speak of.
DIRECT, LEAST, ONE, TWO, CHATS = 0, 1, 2, 3, 4
UNSTORED, STORED = 5, 6
OWN = {ONE: "chat", UNSTORED: "Responses, not stored", STORED: "Responses, stored"}
INTRODUCTION = (
    f"Turns of {DELTAS} deltas, in interleaved rounds. Each turn has a thread of its own, but for the turns in chats, "
    "of which {warm:.0%} went on in a kept one. Directly, Codex runs as shipped. The least gateway passes messages "
    "and deltas on and does nothing else (`bench/least.py`), beside a Codex that is spared what the gateway spares its "
    "own: it is what any gateway costs on this server and in this language."
)
LONGER = f"Turns of {LONG_DELTAS} deltas, most of which Codex tells one by one:"
HEAD = (
    "",
    "first text ms",
    "p99 ms",
    "whole turn ms",
    "turns/s",
    "own CPU ms",
    "Codex CPU ms",
    "first text : direct",
    "turns/s : direct",
)


class Chats:
    """Clients without state, each in a chat of ten turns: every request brings the whole chat so far."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = count()
        self._idle: list[list[dict[str, str]]] = []
        self.turns = 0
        self.warm = 0

    async def ask(self) -> Timed:
        """Run the next turn of a chat that nobody is using."""
        chat = self._idle.pop() if self._idle else [{"role": "user", "content": f"This is chat {next(self._numbers)}."}]
        chat.append({"role": "user", "content": ASK})
        timed = await self._client.ask(self._client.request({"messages": chat}), deltas=DELTAS)
        self.turns += 1
        self.warm += b"x-turnbridge-thread: warm" in timed.answer
        chat.append({"role": "assistant", "content": "".join(pieces(DELTAS))})
        if sum(message["role"] == "assistant" for message in chat) < CHAT_TURNS:
            self._idle.append(chat)
        return timed


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure turns of 20 deltas at 1, 8 and 32 at once, over HTTP."""
    return await _run(directory, "http", quick=quick)


async def run_websocket(directory: Path, *, quick: bool) -> Section:
    """Measure the same over WebSocket."""
    return await _run(directory, "websocket", quick=quick)


async def _run(directory: Path, transport: str, *, quick: bool) -> Section:
    levels: dict[int, list[Measured]] = {}
    turns = warm = 0
    async with module("bench.model", transport) as (model, _):
        plan = [(level, start) for level in LEVELS for start in range(STARTS)]
        for (at_once, requests, rounds), start in [(level, 0) for level in QUICK_LEVELS] if quick else plan:
            async with _sides(directory / f"{at_once}-{start}", f"{model}/v1") as (sides, chats):
                await warm_up(sides)
                chats.turns = chats.warm = 0
                levels[at_once] = await interleaved(
                    sides, at_once=at_once, requests=requests, rounds=rounds, before=levels.get(at_once)
                )
                turns, warm = turns + chats.turns, warm + chats.warm
        section = _section(transport, levels, [side.name for side in sides], warm / turns)
        async with _longer_sides(directory / "long", f"{model}/v1") as sides:
            await warm_up(sides)
            longer = {
                at_once: await interleaved(sides, at_once=at_once, requests=requests, rounds=rounds)
                for at_once, requests, rounds in (QUICK_LONG_LEVELS if quick else LONG_LEVELS)
            }
    rows = _rows(longer, [side.name for side in sides])
    return replace(section, lines=[*section.lines, "", LONGER, "", *table(HEAD, rows)])


@contextlib.asynccontextmanager
async def _sides(directory: Path, provider: str) -> AsyncIterator[tuple[list[Side], Chats]]:
    """Run everything that is compared."""
    fresh: dict[str, object] = {"PROXY_WARM_THREADS_MAX": 0}
    async with (
        module("bench.least", provider, str(directory / "least")) as (least, least_pid),
        gateway(directory / "one", provider, WORKER_COUNT=1, **fresh) as one,
        gateway(directory / "two", provider, WORKER_COUNT=2, **fresh) as two,
        gateway(directory / "chats", provider, WORKER_COUNT=2) as chatting,
        app_server(provider, directory / "direct") as worker,
    ):
        chats = Chats(Client(chatting.url))
        in_chats = "gateway, 2 workers, chats of ten turns"
        yield (
            [
                Side(name="direct", ask=Direct(worker, ASK).ask, behind=lambda: [worker.process.pid]),
                _through("least gateway", least, least_pid),
                _through("gateway, 1 worker", one.url, one.pid),
                _through("gateway, 2 workers", two.url, two.pid),
                Side(name=in_chats, ask=chats.ask, own=[chatting.pid], behind=chatting.app_servers),
                _through("gateway, 1 worker, Responses, not stored", one.url, one.pid, path=RESPONSES, store=False),
                _through("gateway, 1 worker, Responses, stored", one.url, one.pid, path=RESPONSES, store=True),
            ],
            chats,
        )


@contextlib.asynccontextmanager
async def _longer_sides(directory: Path, provider: str) -> AsyncIterator[list[Side]]:
    """Run what is compared with longer answers."""
    async with (
        module("bench.least", provider, str(directory / "least")) as (least, least_pid),
        gateway(directory / "one", provider, WORKER_COUNT=1, PROXY_WARM_THREADS_MAX=0) as one,
        app_server(provider, directory / "direct") as worker,
    ):
        ask = json.dumps({"deltas": LONG_DELTAS})
        yield [
            Side(name="direct", ask=Direct(worker, ask).ask, behind=lambda: [worker.process.pid]),
            _through("least gateway", least, least_pid, LONG_DELTAS),
            _through("gateway, 1 worker", one.url, one.pid, LONG_DELTAS),
        ]


def _through(
    name: str, url: str, pid: int, deltas: int = DELTAS, *, path: str = CHAT, store: bool | None = None
) -> Side:
    client, ask = Client(url, path), json.dumps({"deltas": deltas})
    request = client.says(ask) if store is None else client.request({"input": ask, "store": store})
    return Side(name=name, ask=lambda: client.ask(request, deltas=deltas), own=[pid], behind=partial(app_servers, pid))


def _section(transport: str, levels: dict[int, list[Measured]], names: Sequence[str], warm: float) -> Section:
    rows = _rows(levels, names)
    one_at_once = levels[min(levels)]
    several = [measured for at_once, measured in levels.items() if at_once > 1]
    return Section(
        title=TITLE.format(transport=TRANSPORTS[transport]),
        lines=[
            INTRODUCTION.format(warm=warm),
            "",
            *table(HEAD, rows),
        ],
        goals=[
            at_most(
                f"{transport}: added to the first text, median",
                one_at_once[ONE].median_ms - one_at_once[DIRECT].median_ms,
                1.5,
                " ms",
            ),
            *(_own_goal(transport, levels, side) for side in OWN),
            at_most(
                f"{transport}: first text : direct, chats, 1 at once",
                one_at_once[CHATS].median_ms / one_at_once[DIRECT].median_ms,
                0.85,
            ),
            at_least(
                f"{transport}: turns/s : direct, 1 worker, the worst level "
                f"(the least gateway: {_worst(levels.values(), LEAST):.3g})",
                _worst(levels.values(), ONE),
                0.95,
            ),
            at_least(
                f"{transport}: turns/s : direct, 2 workers, the worst level above 1 at once", _worst(several, TWO), 1.3
            ),
            at_least(f"{transport}: turns/s : direct, chats, the worst level", _worst(levels.values(), CHATS), 1),
        ],
        plots=[
            bars(
                f"first-text-{transport}",
                f"First text {TRANSPORTS[transport]}, {at_once} at once",
                "ms",
                {name: one.median_ms for name, one in zip(names, measured, strict=True)},
            )
            for at_once, measured in list(levels.items())[:1]
        ],
    )


def _rows(levels: dict[int, list[Measured]], names: Sequence[str]) -> list[list[str]]:
    return [
        _row(f"{name}, {at_once} at once", one, measured[DIRECT])
        for at_once, measured in levels.items()
        for name, one in zip(names, measured, strict=True)
    ]


def _own_goal(transport: str, levels: dict[int, list[Measured]], side: int) -> Goal:
    ratios = {at_once: measured[side].own_ms / measured[LEAST].own_ms for at_once, measured in levels.items()}
    seen = ", ".join(f"{ratio:.3g} at {at_once}" for at_once, ratio in ratios.items())
    share = max(_share(measured[side]) for measured in levels.values())
    return at_most(
        f"{transport}: own CPU : the least gateway's, {OWN[side]}, the worst level "
        f"({seen}; at most {share:.3g} % of Codex's)",
        max(ratios.values()),
        1.35,
    )


def _share(one: Measured) -> float:
    """Return what a gateway takes, in percent of what Codex takes."""
    return one.own_ms / one.behind_ms * 100


def _worst(levels: Iterable[list[Measured]], side: int) -> float:
    return min(measured[side].rate / measured[DIRECT].rate for measured in levels)


def _row(name: str, one: Measured, direct: Measured) -> list[str]:
    times = [f"{figure:.1f}" for figure in (one.median_ms, one.p99_ms, one.whole_ms, one.rate)]
    ratios = [f"{one.median_ms / direct.median_ms:.2f}", f"{one.rate / direct.rate:.2f}"]
    return [name, *times, f"{one.own_ms:.2f}", f"{one.behind_ms:.1f}", *(["", ""] if one is direct else ratios)]
