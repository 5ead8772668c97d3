"""Replicas behind nginx and behind Envoy, with the files of `deploy/`."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from websockets.asyncio.client import connect

from tests.deploy.proxies import ENVOY, ReverseProxy, running_proxy
from tests.deploy.test_proxies import found
from tests.replicas.cluster import MODEL, Fleet
from tests.replicas.test_balancer import THREAD, TURNS, WARM_SHARE, chat, digest, long_or_short, texts_of
from tests.support.gateway_process import API_KEY
from tests.support.plain_http import CHAT, TIMEOUT_S, Answer, ask
from tests.support.sockets import Socket, text_of
from tests.support.waiting import until, until_told
from turnbridge.scripted_model.replies import Wait, answer, message
from turnbridge.turn.items import JsonObject

KEY = {"authorization": f"Bearer {API_KEY}"}
REPLICA = "x-turnbridge-replica"
HELLO: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
CONVERSATIONS = 30
BALANCERS = [
    pytest.param("nginx", marks=pytest.mark.skipif(not found("nginx"), reason="nginx is not installed")),
    pytest.param("envoy", marks=pytest.mark.skipif(not ENVOY.exists(), reason="run: make replica-tools")),
]


@pytest.fixture(params=BALANCERS)
async def balancer(
    request: pytest.FixtureRequest, tmp_path: Path, fleet: Fleet
) -> AsyncIterator[tuple[str, ReverseProxy, httpx2.AsyncClient]]:
    """Return a balancer in front of the fleet, and a client of it."""
    urls = [replica.url for replica in fleet.replicas.values()]
    async with running_proxy(request.param, tmp_path, *urls) as proxy:
        client = httpx2.AsyncClient(base_url=proxy.url, headers=KEY, verify=proxy.trust, timeout=TIMEOUT_S)
        async with client as http:
            await until_told(lambda: _is_up(http))
            yield request.param, proxy, http


async def _is_up(http: httpx2.AsyncClient) -> bool:
    return (await http.get("/readyz")).status_code == 200


async def place(http: httpx2.AsyncClient, **headers: str) -> str:
    """Return which replica serves requests with such headers."""
    served = await http.get("/v1/models", headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert served.status_code == 200
    return str(served.headers[REPLICA])


@pytest.mark.promise("replicas.other-balancers")
async def test_conversations_stay_where_they_are_warm_and_streams_and_websockets_pass(
    fleet: Fleet, balancer: tuple[str, ReverseProxy, httpx2.AsyncClient]
) -> None:
    _, proxy, http = balancer
    assert (await http.get("/metrics")).status_code == 404
    by_header = [await place(http, x_turnbridge_affinity=f"conversation {each}") for each in range(CONVERSATIONS)]
    assert len(set(by_header)) == len(fleet.replicas)
    # The best one of the headers that agents send; the key, if there is none.
    again = [
        await place(http, x_turnbridge_affinity=f"conversation {each}", session_id=f"{each}")
        for each in range(CONVERSATIONS)
    ]
    assert again == by_header
    for name in ("x_claude_code_session_id", "session_id", "x_session_affinity"):
        assert len({await place(http, **{name: f"agent {each}"}) for each in range(CONVERSATIONS)}) > 1, name
    assert len({await place(http) for _ in range(10)}) == 1
    fleet.model.respond = lambda request: answer(message(digest(texts_of(request["input"]))))
    ways = await chat(http, "a chat", affinity=True)
    assert ways["warm"] >= WARM_SHARE * TURNS, ways
    gate = fleet.gate()
    fleet.model.respond = lambda request: long_or_short(gate, request)
    heard = Answer()
    held: JsonObject = {**HELLO, "messages": [{"role": "user", "content": "hold"}], "stream": True}
    streaming = asyncio.ensure_future(ask(http, CHAT, held, heard=heard))
    secure = proxy.trust if proxy.url.startswith("https") else None
    url = f"ws{proxy.url.removeprefix('http')}/v1/responses"
    async with connect(url, ssl=secure, additional_headers=KEY, proxy=None) as connection:
        socket = Socket(connection)
        await socket.create(input="hold")
        await socket.until(lambda event: event["type"] == "response.output_text.delta")
        await until(lambda: heard.text == "Begun")
        gate.set()
        assert text_of(await socket.response()) == "Begun, done."
    assert (await streaming).text == "Begun, done."


@pytest.mark.promise("replicas.other-balancers")
async def test_a_replica_that_is_killed_costs_its_own_request_which_is_not_sent_again(
    fleet: Fleet, balancer: tuple[str, ReverseProxy, httpx2.AsyncClient]
) -> None:
    name, _, http = balancer
    victim = fleet.two
    async with victim.client() as direct:
        its_id = await place(direct)
    keys = [f"victim {number}" for number in range(CONVERSATIONS)]
    its = [key for key in keys if await place(http, x_turnbridge_affinity=key) == its_id]
    headers = {"x-turnbridge-affinity": its[0]}
    fleet.script(answer(Wait(gate=fleet.gate()), message("never")), *[answer(message("Well."))] * (len(its) + 1))
    lost = asyncio.ensure_future(http.post(CHAT, json=HELLO, headers=headers))
    await fleet.model.until(lambda model: len(model.requests) == 1)
    await victim.kill()
    assert (await lost).status_code in (502, 503)
    assert len(fleet.asked()) == 1
    statuses: Counter[int] = Counter()
    for key in its:
        later = await http.post(CHAT, json=HELLO, headers={"x-turnbridge-affinity": key})
        statuses[later.status_code] += 1
        assert later.headers[REPLICA] != its_id
        assert later.headers[THREAD] in ("fresh", "replayed", "warm")
    assert statuses == {200: len(its)}, name
