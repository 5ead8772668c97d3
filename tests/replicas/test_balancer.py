"""Replicas behind HAProxy with the file of `deploy/`: conversations stay warm, and a rolling update fails nobody."""

import asyncio
import hashlib
import itertools
from collections import Counter
from functools import partial

import httpx2
import pytest
from websockets.asyncio.client import connect

from tests.replicas.cluster import MODEL, Fleet
from tests.replicas.conversations import Conversation, first_leg, last_leg
from tests.replicas.observed import served_by, serving
from tests.support.gateway_process import API_KEY
from tests.support.plain_http import CHAT, RESPONSES, Answer, Ending, ask, client
from tests.support.sockets import Socket, text_of
from tests.support.waiting import until, until_told
from turnbridge.scripted_model.replies import Reply, Wait, answer, message
from turnbridge.turn.items import Json, JsonObject

CHATS_EACH, TURNS = 1, 10
# Of all turns, of which the first one of a chat cannot be warm.
WARM_SHARE = 0.9
KEYS = 90
BETWEEN_S = 0.02
THREAD = "x-turnbridge-thread"
AGENT_HEADER = "x-claude-code-session-id"


def digest(texts: list[str]) -> str:
    """Return an answer that only somebody who has seen all of this can give."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def texts_of(items: Json) -> list[str]:
    """Return what was said in the items that the model is shown."""
    assert isinstance(items, list)
    return [part["text"] for item in items for part in item["content"]]  # type: ignore[index,call-overload,union-attr,misc]


async def chat(http: httpx2.AsyncClient, name: str, *, affinity: bool) -> "Counter[str]":
    """Have a chat of ten turns that sends its whole history each time; return how its turns were served."""
    messages: list[JsonObject] = []
    ways: Counter[str] = Counter()
    for number in range(TURNS):
        messages.append({"role": "user", "content": f"{name}, turn {number}"})
        headers = {AGENT_HEADER: name if affinity else f"{name} {number}"}
        answered = await http.post(CHAT, json={"model": MODEL, "messages": messages}, headers=headers)
        assert answered.status_code == 200, answered.text
        said = answered.json()["choices"][0]["message"]["content"]
        assert said == digest([str(each["content"]) for each in messages])
        messages.append({"role": "assistant", "content": said})
        if number:
            ways[answered.headers[THREAD]] += 1
    return ways


@pytest.mark.promise("replicas.affinity")
@pytest.mark.parametrize("affinity", [True, False], ids=["with affinity", "without"])
async def test_stateless_chats_are_right_through_the_balancer_and_warm_with_affinity(
    fleet: Fleet, affinity: bool
) -> None:
    await fleet.balanced()
    fleet.model.respond = lambda request: answer(message(digest(texts_of(request["input"]))))
    async with client(fleet.balancer.url, API_KEY) as http:
        names = await _spread_evenly(fleet, http, affinity)
        ways = sum(await asyncio.gather(*(chat(http, name, affinity=affinity) for name in names)), Counter())
    assert ways.total() == len(names) * (TURNS - 1)
    if affinity:
        assert ways["warm"] >= WARM_SHARE * len(names) * TURNS, ways


async def _spread_evenly(fleet: Fleet, http: httpx2.AsyncClient, affinity: bool) -> list[str]:
    """Return names of chats, as many on each replica: of so few, the bound on the load would move some."""
    at: dict[str, list[str]] = {}
    for number in itertools.count():
        name = f"chat {number} {affinity}"
        place = (await http.get("/v1/models", headers={AGENT_HEADER: name})).headers["x-turnbridge-replica"]
        at.setdefault(place, []).append(name)
        if len(at) == len(fleet.replicas) and min(map(len, at.values())) >= CHATS_EACH:
            break
    return [name for names in at.values() for name in names[:CHATS_EACH]]


@pytest.mark.promise("replicas.affinity")
async def test_only_the_conversations_of_a_replica_that_leaves_move_and_are_warm_again_after_one_turn(
    fleet: Fleet,
) -> None:
    await fleet.balanced()
    before = await _places(fleet, "before")
    await fleet.balancer.set_state("three", "drain")
    during = await _places(fleet, "during")
    moved = [key for key, place in before.items() if during[key] != place]
    assert moved == [key for key, place in before.items() if place == "three"]
    # A third of them, give or take what a ring of this size does.
    assert KEYS / 6 < len(moved) < KEYS / 2
    fleet.model.respond = lambda _: answer(message("hi"))
    ways = []
    messages: list[JsonObject] = [{"role": "user", "content": "hi"}]
    async with client(fleet.balancer.url, API_KEY) as http:
        for state in ("ready", "ready", "drain", "drain"):
            await fleet.balancer.set_state("three", state)
            await until_told(partial(_is, fleet, "three", "UP" if state == "ready" else "DRAIN"))
            headers = {"x-turnbridge-affinity": moved[0]}
            ways.append(
                (await http.post(CHAT, json={"model": MODEL, "messages": messages}, headers=headers)).headers[THREAD]
            )
            messages += [{"role": "assistant", "content": "hi"}, {"role": "user", "content": "hi"}]
    assert ways == ["fresh", "warm", "replayed", "warm"]
    await fleet.balanced()
    assert await _places(fleet, "after") == before


async def _is(fleet: Fleet, name: str, state: str) -> bool:
    return (await fleet.balancer.states())[name] == state


async def _places(fleet: Fleet, name: str) -> dict[str, str]:
    """Return which replica serves each of many keys."""
    keys = [f"conversation {number}" for number in range(KEYS)]
    ids = {key: f"ring-{name}-{number}" for number, key in enumerate(keys)}
    async with client(fleet.balancer.url, API_KEY) as http:
        for key in keys:
            headers = {"x-turnbridge-affinity": key, "x-request-id": ids[key]}
            assert (await http.get("/v1/models", headers=headers)).status_code == 200
    await until(lambda: served_by(fleet, ids[keys[-1]]) is not None)
    found = {key: served_by(fleet, request_id) for key, request_id in ids.items()}
    return {key: replica.name for key, replica in found.items() if replica is not None}


def long_or_short(gate: asyncio.Event, request: JsonObject) -> Reply:
    """Answer at once, or begin to answer and wait."""
    if "hold" in str(request["input"]):
        return answer(message("Begun, done.", pieces=["Begun", Wait(gate=gate), ", done."]))
    return last_leg() if "function_call_output" in str(request["input"]) else answer(message("Well."))


async def keep_asking(url: str, endings: "Counter[str]", stopped: asyncio.Event, name: str) -> None:
    """Ask again and again, as a client that does not try again what failed."""
    number = 0
    async with client(url, API_KEY) as http:
        while not stopped.is_set():
            number += 1
            body: JsonObject = {
                "model": MODEL,
                "messages": [{"role": "user", "content": "hi"}],
                "stream": number % 2 == 0,
            }
            http.headers["x-turnbridge-affinity"] = f"{name} {number}"
            ending = await ask(http, CHAT, body)
            endings["well" if ending == Ending(status=200, text="Well.") else str(ending)] += 1
            # The processor is for the replica that starts.
            await asyncio.sleep(BETWEEN_S)


@pytest.mark.promise("replicas.rolling")
async def test_replicas_are_restarted_one_after_the_other_and_no_request_fails(fleet: Fleet) -> None:
    await fleet.balanced()
    gate, stopped, endings = fleet.gate(), asyncio.Event(), Counter[str]()
    affinity = {"x-turnbridge-affinity": "rolled"}
    first = await serving(fleet, affinity)
    second = next(replica for replica in fleet.replicas.values() if replica is not first)
    fleet.script(first_leg("call_rolled"))
    async with client(fleet.balancer.url, API_KEY) as http:
        http.headers.update(affinity)
        parked = Conversation(way="history without reasoning", call_id="call_rolled")
        await parked.begin(http)
        fleet.model.respond = lambda request: long_or_short(gate, request)
        heard = Answer()
        streaming = asyncio.ensure_future(
            ask(http, RESPONSES, {"model": MODEL, "input": "hold", "stream": True}, heard=heard)
        )
        background = (await http.post(RESPONSES, json={"model": MODEL, "input": "hold", "background": True})).json()[
            "id"
        ]
        await until(lambda: heard.text == "Begun")
        await fleet.model.until(lambda model: model.active == 2)
        asking = [
            asyncio.ensure_future(keep_asking(fleet.balancer.url, endings, stopped, f"client {number}"))
            for number in range(3)
        ]
        # As a service manager does, without a word to the balancer.
        stopping = asyncio.ensure_future(first.stop())
        await until_told(partial(_is, fleet, first.name, "DOWN"))
        assert not stopping.done()
        gate.set()
        assert await streaming == Ending(status=200, text="Begun, done.")
        await stopping
        # Served elsewhere meanwhile.
        assert (await parked.go_on(http)).status_code == 200
        assert (await http.get(f"{RESPONSES}/{background}")).json()["status"] == "completed"
        await first.start()
        await fleet.balanced()
        await second.stop()
        await second.start()
        await fleet.balanced()
        seen = endings["well"]
        await until(lambda: endings["well"] >= seen + 10)
        stopped.set()
        await asyncio.gather(*asking)
    assert endings == {"well": endings.total()}


@pytest.mark.promise("replicas.affinity")
async def test_the_balancer_passes_websockets_and_unbuffered_streams_on_and_closes_the_metrics(fleet: Fleet) -> None:
    await fleet.balanced()
    gate = fleet.gate()
    fleet.model.respond = lambda request: long_or_short(gate, request)
    url = fleet.balancer.url
    async with client(url, API_KEY) as http:
        for path in ("/metrics", "//metrics", "/metrics/", "/%6detrics"):
            assert (await http.get(f"{url}{path}")).status_code == 404, path
    key = {"authorization": f"Bearer {API_KEY}"}
    async with connect(f"ws{url.removeprefix('http')}/v1/responses", additional_headers=key, proxy=None) as connection:
        socket = Socket(connection)
        await socket.create(input="hold")
        await socket.until(lambda event: event["type"] == "response.output_text.delta")
        gate.set()
        assert text_of(await socket.response()) == "Begun, done."
