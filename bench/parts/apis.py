"""What each API costs beside Chat Completions: processor time of a turn and of a delta."""

import json
from collections.abc import Sequence
from pathlib import Path

from bench.client import CHAT, DELTAS, MESSAGES, OLLAMA, RESPONSES, Client
from bench.processes import gateway_alone
from bench.report import Goal, Section, at_most, table
from bench.rounds import Measured, Side, interleaved, warm_up
from tests.support.ports import free_port

TITLE = "The four APIs"
LONG_DELTAS = 2000
LONG, SHORT, ROUNDS = 12, 100, 6
MOST_MORE = 1.1
"""How much more than Chat Completions another API may cost."""
HEAD = ("", "CPU us per delta", "CPU ms per turn")
INTRODUCTION = (
    f"The gateway alone, on an app-server of recorded shapes: streams of {LONG_DELTAS} deltas that are all there at "
    f"once, and turns of {DELTAS} deltas."
)


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure the same turns through each API, in turn."""
    port = free_port()
    async with gateway_alone(directory / "gateway", PROXY_OLLAMA=f"127.0.0.1:{port}") as running:
        ollama = f"http://127.0.0.1:{port}"
        clients = {
            "Chat Completions": Client(running.url, CHAT),
            "Responses": Client(running.url, RESPONSES),
            "Anthropic Messages": Client(running.url, MESSAGES),
            "Ollama": Client(ollama, OLLAMA),
        }
        long, short = (
            [_side(name, client, running.pid, deltas) for name, client in clients.items()]
            for deltas in (LONG_DELTAS, DELTAS)
        )
        rounds = 1 if quick else ROUNDS
        await warm_up([*long, *short], requests=2)
        streams = await interleaved(long, at_once=4, requests=2 if quick else LONG, rounds=rounds)
        turns = await interleaved(short, at_once=1, requests=5 if quick else SHORT, rounds=rounds)
        for client in clients.values():
            client.close()
    return _section([*clients], streams, turns)


def _side(name: str, client: Client, pid: int, deltas: int) -> Side:
    request = client.says(json.dumps({"deltas": deltas}))
    return Side(name=name, ask=lambda: client.ask(request, deltas=deltas), own=[pid])


def _section(names: Sequence[str], streams: Sequence[Measured], turns: Sequence[Measured]) -> Section:
    rows = [
        [name, f"{stream.delta_us:.1f}", f"{turn.own_ms:.2f}"]
        for name, stream, turn in zip(names, streams, turns, strict=True)
    ]
    goals: list[Goal] = []
    # Responses tells more with each delta, and has goals of its own.
    for place in (2, 3):
        per_delta = streams[place].delta_us / streams[0].delta_us
        per_turn = turns[place].own_ms / turns[0].own_ms
        goals.append(at_most(f"apis: CPU per delta, {names[place]} : chat", per_delta, MOST_MORE, ""))
        goals.append(at_most(f"apis: CPU per turn, {names[place]} : chat", per_turn, MOST_MORE, ""))
    return Section(title=TITLE, lines=[INTRODUCTION, "", *table(HEAD, rows)], goals=goals)
