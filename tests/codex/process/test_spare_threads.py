"""Threads that are started ahead: for what comes again, once for each request, and never instead of an error."""

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.gateway import running_bridge, running_bridge_over_websocket
from turnbridge.codex.process.connection import CallRefused, Connection
from turnbridge.codex.process.spare_threads import (
    LARGEST_SPARE_BYTES,
    MOST_KINDS,
    MOST_SPARES,
    SpareThreads,
    ThreadKind,
)
from turnbridge.scripted_model.replies import answer, message
from turnbridge.scripted_model.websocket import WebSocketModel
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.anyio

KIND = ThreadKind("me", {"model": "m"})
FUNCTION: JsonObject = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}


class Codex:
    """Starts threads `t1`, `t2`, ... as soon as it is asked, or refuses to."""

    def __init__(self) -> None:
        self.started: list[JsonObject] = []
        self.released: list[str] = []
        self.refuses = False
        self.connection = Connection(self._take)

    def _take(self, line: bytes) -> None:
        request = msgspec.json.decode(line)
        self.started.append(request["params"])
        result: JsonObject = {"result": {"thread": {"id": f"t{len(self.started)}"}}}
        refusal: JsonObject = {"error": {"code": -32600, "message": "no"}}
        told = {"id": request["id"], **(refusal if self.refuses else result)}
        asyncio.get_running_loop().call_soon(self.connection.receive, msgspec.json.encode(told) + b"\n")


def spares_of(codex: Codex) -> SpareThreads:
    return SpareThreads(codex.connection, codex.released.append)


async def test_what_comes_again_is_started_ahead_and_given_to_one_request_only() -> None:
    codex = Codex()
    spares = spares_of(codex)
    for expected, ready in (("t1", 0), ("t2", 1), ("t3", 1), ("t4", 1)):
        assert await spares.take(KIND) == expected
        spares.refill(KIND)
        spares.refill(KIND)
        assert len(spares) == ready
    # The fifth is just being started, for the request to come.
    assert await spares.take(KIND) == "t5"


async def test_only_the_very_same_parameters_share_a_thread() -> None:
    codex = Codex()
    spares = spares_of(codex)
    for _ in range(2):
        await spares.take(KIND)
    spares.refill(KIND)
    assert await spares.take(ThreadKind("me", {"model": "m", "baseInstructions": ""})) == "t4"
    assert await spares.take(KIND) == "t3"


async def test_a_spare_that_could_not_be_started_is_started_again_when_it_is_needed() -> None:
    codex = Codex()
    spares = spares_of(codex)
    for _ in range(2):
        await spares.take(KIND)
    codex.refuses = True
    spares.refill(KIND)
    with pytest.raises(CallRefused):
        await spares.take(KIND)
    codex.refuses = False
    assert await spares.take(KIND) == "t5"


async def test_a_spare_that_is_too_old_is_released_instead_of_used(monkeypatch: pytest.MonkeyPatch) -> None:
    codex = Codex()
    spares = spares_of(codex)
    for _ in range(2):
        await spares.take(KIND)
    spares.refill(KIND)
    assert len(codex.started) == 3
    monkeypatch.setattr(SpareThreads, "max_age_s", 0)
    assert await spares.take(KIND) == "t4"
    assert codex.released == ["t3"]


async def test_where_each_thread_costs_the_provider_a_request_none_is_started_ahead() -> None:
    codex = Codex()
    spares = SpareThreads(codex.connection, codex.released.append, most=0)
    await ask_for(spares, *["m"] * 5)
    assert (len(codex.started), len(spares)) == (5, 0)


async def test_the_number_of_spares_is_bounded() -> None:
    spares = spares_of(Codex())
    for number, _ in itertools.product(range(MOST_SPARES + 3), range(2)):
        await spares.take(ThreadKind("me", {"model": str(number)}))
        spares.refill(ThreadKind("me", {"model": str(number)}))
    assert len(spares) == MOST_SPARES


async def ask_for(spares: SpareThreads, *models: str, client: str = "me") -> None:
    """Ask for threads as conversations do: one more is started when the model answers."""
    for model in models:
        kind = ThreadKind(client, {"model": model})
        await spares.take(kind)
        spares.refill(kind)


def started(codex: Codex, model: str) -> int:
    return codex.started.count({"model": model})


@pytest.mark.parametrize("in_turn", [True, False], ids=["in turn", "at random"])
@pytest.mark.parametrize("more", [1, 4])
async def test_kinds_that_come_equally_often_do_not_drive_out_each_others_spares(more: int, in_turn: bool) -> None:
    codex = Codex()
    spares = spares_of(codex)
    models = [str(number) for number in range(MOST_SPARES + more)]
    rounds, order = 20, random.Random(1)
    for _ in range(rounds):
        await ask_for(spares, *(models if in_turn else order.sample(models, len(models))))
    assert len(codex.started) == rounds * len(models) + MOST_SPARES


async def test_a_spare_gives_way_to_a_kind_that_comes_twice_as_often() -> None:
    codex = Codex()
    spares = spares_of(codex)
    await ask_for(spares, *[str(number) for number in range(MOST_SPARES)] * 2)
    await ask_for(spares, *["often"] * 3)
    assert started(codex, "often") == 3
    await ask_for(spares, "often")
    assert (started(codex, "often"), len(spares)) == (5, MOST_SPARES)


async def test_the_client_with_most_spares_gives_one_up_for_a_client_that_has_fewer() -> None:
    codex = Codex()
    spares = spares_of(codex)
    await ask_for(spares, *[str(number) for number in range(MOST_SPARES)] * 20, client="loud")
    await ask_for(spares, "mine", "mine", client="quiet")
    assert (started(codex, "mine"), len(spares)) == (3, MOST_SPARES)
    await ask_for(spares, *["often"] * 50, client="loud")
    await ask_for(spares, "mine", client="quiet")
    assert started(codex, "mine") == 4


async def test_two_clients_do_not_take_the_last_spare_from_each_other_in_turn() -> None:
    codex = Codex()
    spares = SpareThreads(codex.connection, codex.released.append, most=3)
    loud, quiet = ["a", "b"], ["c", "d"]
    for _ in range(10):
        await ask_for(spares, *loud, client="loud")
        await ask_for(spares, *quiet, client="quiet")
    assert len(codex.started) == 10 * 4 + 3


async def test_what_a_client_asks_for_is_remembered_whatever_others_ask_for() -> None:
    codex = Codex()
    spares = spares_of(codex)
    await ask_for(spares, "mine", client="quiet")
    await ask_for(spares, *map(str, range(MOST_KINDS + 5)), client="loud")
    await ask_for(spares, "mine", client="quiet")
    assert started(codex, "mine") == 3


async def test_threads_with_large_instructions_are_not_started_ahead() -> None:
    codex = Codex()
    spares = spares_of(codex)
    large = ThreadKind("me", {"baseInstructions": "x" * LARGEST_SPARE_BYTES})
    for _ in range(3):
        await spares.take(large)
        spares.refill(large)
    assert (len(codex.started), len(spares)) == (3, 0)


async def test_a_spare_that_has_grown_too_old_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    codex = Codex()
    spares = spares_of(codex)
    await ask_for(spares, *[str(number) for number in range(MOST_SPARES)] * 2)
    monkeypatch.setattr(SpareThreads, "max_age_s", 0)
    await ask_for(spares, *["later"] * 2)
    assert (started(codex, "later"), len(spares)) == (3, MOST_SPARES)


async def test_spares_that_are_evicted_are_released() -> None:
    codex = Codex()
    spares = spares_of(codex)
    await ask_for(spares, *[str(number) for number in range(MOST_SPARES)] * 2)
    assert codex.released == []
    await ask_for(spares, *["often"] * 4)
    await asyncio.sleep(0)
    (evicted,) = codex.released
    assert codex.started[int(evicted.removeprefix("t")) - 1] == {"model": "0"}


@pytest.mark.real
async def test_a_real_conversation_in_a_spare_thread_is_like_any_other(tmp_path: Path) -> None:
    before = SpareThreads.fates.copy()
    async with running_bridge(tmp_path) as bridge:
        for turn in range(4):
            bridge.script(answer(message(f"answer {turn}")))
            response = await bridge.client.responses.create(model="gpt-5.5", input=f"question {turn}")
            assert response.output_text == f"answer {turn}"
            seen = bridge.seen()
            assert "question" in str(seen["input"])
            assert len(str(seen["input"]).split("question")) == 2, "only this request's item is there"
        (worker,) = bridge.gateway.pool.workers
        assert len(worker.spares) == 1
        assert worker.opened == 4
        assert SpareThreads.fates - before == {"started": 3, "used": 2}
        metrics = (await bridge.http.get("/metrics")).text
    assert f'turnbridge_threads_ahead_total{{fate="used"}} {before["used"] + 2:.1f}' in metrics


@pytest.mark.real
async def test_over_websocket_the_provider_gets_no_request_that_no_client_asked_for(tmp_path: Path) -> None:
    async with running_bridge_over_websocket(tmp_path) as bridge:
        for _ in range(3):
            bridge.says("ok")
            await bridge.client.responses.create(model="gpt-5.5", input="hi")
        (worker,) = bridge.gateway.pool.workers
        assert worker.over_websocket
        assert isinstance(bridge.model, WebSocketModel)
        # Codex sends one request of its own for each thread that is started.
        assert (len(worker.spares), bridge.model.warmed_up, bridge.model.received) == (0, 3, 3)


@pytest.mark.real
@pytest.mark.parametrize(
    "wishes",
    [
        {},
        {"instructions": "Be kind.", "tools": [FUNCTION]},
        {"reasoning": {"effort": "low", "summary": "detailed"}},
        {"reasoning": {"effort": "none"}, "text": {"verbosity": "low"}, "service_tier": "flex"},
    ],
)
async def test_over_websocket_instructions_and_tools_are_sent_once(tmp_path: Path, wishes: dict[str, Any]) -> None:
    """Codex sends them when a thread is started, and again if the first turn differs in anything but its input."""
    async with running_bridge_over_websocket(tmp_path) as bridge:
        bridge.says("ok")
        await bridge.client.responses.create(model="gpt-5.5", input="hi", **wishes)
        bridge.says("ok")
        await bridge.client.chat.completions.create(model="gpt-5.5", messages=[{"role": "user", "content": "hi"}])
        assert isinstance(bridge.model, WebSocketModel)
        assert (bridge.model.warmed_up, bridge.model.received, bridge.model.continued) == (2, 2, 2)
