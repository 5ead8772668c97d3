"""A chat of ten turns from a client without state: with kept threads, and with a replay each time."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from bench.client import DELTAS, Client, pieces
from bench.processes import cpu_seconds, gateway
from bench.report import Goal, Section, table
from tests.support.gateway_process import GatewayProcess
from turnbridge.scripted_model.replies import Reply, answer, message
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.turn.items import JsonObject

TITLE = "A chat of ten turns, warm and replayed"
TURNS = 10
CHATS, QUICK_CHATS = 12, 1
# About what people write in a chat with a long answer before it.
MESSAGE_CHARACTERS = 600
INTRODUCTION = (
    f"{{chats}} chats on each side, in turn; messages of {MESSAGE_CHARACTERS} characters. The time to the first text, "
    "the median of each turn:"
)


@dataclass(slots=True)
class Chatted:
    """What chats were like."""

    first_ms: list[list[float]] = field(default_factory=lambda: [[] for _ in range(TURNS)])
    """For each turn, of each chat."""
    kept: int = 0
    """Turns after the first that had the provider's cache key of the turn before."""
    codex_cpu: float = 0.0

    @property
    def later_ms(self) -> float:
        """Return the usual time to the first text after the first turn."""
        return statistics.median(first for turn in self.first_ms[1:] for first in turn)


async def run(directory: Path, *, quick: bool) -> Section:
    """Run the same chats on a gateway that keeps threads and on one that does not, in turn."""
    chats = QUICK_CHATS if quick else CHATS
    async with (
        ScriptedModel(_reply, record=True) as model,
        gateway(directory / "warm", model.base_url, WORKER_COUNT=1) as keeping,
        gateway(directory / "replayed", model.base_url, WORKER_COUNT=1, PROXY_WARM_THREADS_MAX=0) as forgetting,
    ):
        warm, replayed = Chatted(), Chatted()
        for running in (keeping, forgetting):
            await _chat(running, model, -1, Chatted())
        for number in range(chats):
            await _chat(keeping, model, number, warm)
            await _chat(forgetting, model, number, replayed)
    return _section(warm, replayed, chats)


async def _chat(running: GatewayProcess, model: ScriptedModel, number: int, chatted: Chatted) -> None:
    client = Client(running.url)
    model.requests.clear()
    before = cpu_seconds(running.app_servers())
    messages: list[dict[str, str]] = []
    for turn in range(TURNS):
        text = f"Chat {number}, turn {turn}. ".ljust(MESSAGE_CHARACTERS, "x")
        messages.append({"role": "user", "content": text})
        timed = await client.ask(client.request({"messages": messages}), deltas=DELTAS)
        messages.append({"role": "assistant", "content": "".join(pieces(DELTAS))})
        chatted.first_ms[turn].append(timed.first * 1000)
    chatted.codex_cpu += cpu_seconds(running.app_servers()) - before
    keys = [request.body["prompt_cache_key"] for request in model.requests]
    chatted.kept += sum(key == previous for previous, key in pairwise(keys))
    client.close()


def _reply(_: JsonObject) -> Reply:
    return answer(message("".join(pieces(DELTAS)), pieces=pieces(DELTAS)), burst=True)


def _section(warm: Chatted, replayed: Chatted, chats: int) -> Section:
    later = chats * (TURNS - 1)
    rows = [_row(name, one, chats) for name, one in (("warm", warm), ("replayed", replayed))]
    ratio = warm.later_ms / replayed.later_ms
    return Section(
        title=TITLE,
        lines=[
            INTRODUCTION.format(chats=chats),
            "",
            *table(
                (
                    "",
                    *(f"turn {turn + 1}" for turn in range(TURNS)),
                    "later turns with the cache key before",
                    "Codex CPU ms",
                ),
                rows,
            ),
            "",
            f"After the first turn, warm : replayed is {ratio:.2f}.",
        ],
        goals=[
            Goal(
                what="chat: later turns that keep their `prompt_cache_key`",
                wanted="all",
                seen=f"{warm.kept} of {later}",
                met=warm.kept == later,
            ),
            Goal(what="chat: first text, warm : replayed", wanted="< 1", seen=f"{ratio:.2f}", met=ratio < 1),
        ],
    )


def _row(name: str, one: Chatted, chats: int) -> Sequence[str]:
    times = [f"{statistics.median(turn):.1f}" for turn in one.first_ms]
    return [name, *times, f"{one.kept} of {chats * (TURNS - 1)}", f"{one.codex_cpu / chats / TURNS * 1000:.1f}"]
