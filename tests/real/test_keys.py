"""Keys that are made and ended while gateways run."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from structlog.testing import capture_logs

from tests.store.postgres_server import running_postgres
from tests.support.command import run
from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.issued_keys import bearer, issued, known, revoked, rotated, unknown
from tests.support.logs import logged_requests
from tests.support.sockets import connected, error_of
from tests.support.state_clients import told
from tests.support.waiting import until
from turnbridge.api.anthropic.models import FAMILIES
from turnbridge.scripted_model.replies import Wait, answer, message
from turnbridge.scripted_model.server import in_order
from turnbridge.store.schema import store_url
from turnbridge.turn.clients import ClientLimits
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
CHAT = "/v1/chat/completions"
HI: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Return the URL of a Postgres."""
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a database."""
    if request.param == "sqlite":
        return store_url(tmp_path_factory.mktemp("shared"))
    return str(request.getfixturevalue("postgres"))


@pytest.fixture(scope="module")
async def pair(
    url: str, tmp_path_factory: pytest.TempPathFactory, anyio_backend: object
) -> AsyncIterator[tuple[Bridge, Bridge]]:
    """Return two gateways on one store."""
    del anyio_backend
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(
                running_bridge(tmp_path_factory.mktemp(name), PROXY_DATABASE_URL=url, PROXY_RATE_LIMIT="500/minute")
            )
            for name in ("one", "other")
        ]
        yield one, other


@pytest.fixture(scope="module")
async def alone(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[tuple[Bridge, str]]:
    """Return a gateway and the URL of its store."""
    del anyio_backend
    directory = tmp_path_factory.mktemp("alone")
    async with running_bridge(directory, PROXY_MAX_TURNS=8) as bridge:
        yield bridge, store_url(directory)


def asks_with(bridge: Bridge, key: str) -> openai.AsyncOpenAI:
    return bridge.client.with_options(api_key=key)


@pytest.mark.promise("keys.live", "commands.keys")
async def test_a_key_works_and_ends_on_every_gateway_without_a_restart(
    pair: tuple[Bridge, Bridge], url: str, tmp_path: Path
) -> None:
    variables = {"PROXY_DATABASE_URL": url}
    made = await run(tmp_path, "keys", "create", "alice", "--models", f"{MODEL},codex-5", "--json", **variables)
    assert made.status == 0, made.err
    shown = json.loads(made.out)
    key = shown.pop("key")
    assert (shown["name"], shown["state"], shown["models"]) == ("alice", "active", [MODEL, "codex-5"])

    for bridge in pair:
        await known(bridge, key)
        bridge.says("hello")
        answered = await bridge.http.post(CHAT, json=HI, headers=bearer(key))
        assert answered.json()["choices"][0]["message"]["content"] == "hello"

    ended = await run(tmp_path, "keys", "revoke", "alice", **variables)
    assert (ended.status, key in ended.out + ended.err) == (0, False)
    for bridge in pair:
        await unknown(bridge, key)
        refused = (await bridge.http.get("/v1/models", headers=bearer(key))).json()["error"]
        assert (refused["code"], "was revoked" in refused["message"]) == ("invalid_api_key", True)
        # The gateway's own key is none of the store's business.
        assert (await bridge.http.get("/v1/models")).status_code == 200


@pytest.mark.promise("keys.rotate")
async def test_a_rotated_key_has_what_its_client_has_stored(pair: tuple[Bridge, Bridge], url: str) -> None:
    one, other = pair
    old = await issued(url, "bob")
    await known(one, old)
    one.says("blue")
    first = await asks_with(one, old).responses.create(model=MODEL, input="My colour?")
    conversation = await asks_with(one, old).conversations.create(metadata={"of": "bob"})

    new = await rotated(url, "bob")
    for bridge in pair:
        await known(bridge, new)
        await unknown(bridge, old)

    client = asks_with(other, new)
    assert (await client.responses.retrieve(first.id)).output_text == "blue"
    assert (await client.conversations.retrieve(conversation.id)).metadata == {"of": "bob"}
    other.says("It was blue.")
    second = await client.responses.create(model=MODEL, input="Which?", previous_response_id=first.id)
    assert second.output_text == "It was blue."
    # Nobody else has it, the owner of the gateway included.
    stranger = await issued(url, "eve")
    await known(other, stranger)
    for key in (stranger, API_KEY):
        with pytest.raises(openai.NotFoundError):
            await asks_with(other, key).responses.retrieve(first.id)


@pytest.mark.promise("keys.revoked.running")
async def test_a_revoked_key_ends_what_runs_for_it_and_nothing_else(alone: tuple[Bridge, str]) -> None:
    bridge, url = alone
    key = await issued(url, "carol")
    await known(bridge, key)
    gate = asyncio.Event()
    bridge.model.respond = lambda _: answer(message("Begun", pieces=["Be", Wait(gate=gate), "gun"]))

    async def streamed(client: openai.AsyncOpenAI) -> list[Any]:
        stream = await client.responses.create(model=MODEL, input="go", stream=True)
        return [event async for event in stream]

    hers, other = (asyncio.ensure_future(streamed(asks_with(bridge, each))) for each in (key, API_KEY))
    async with connected(bridge.url, key=key) as busy, connected(bridge.url, key=key) as idle:
        await busy.create("go")
        await busy.until(lambda event: event["type"] == "response.output_text.delta")
        await bridge.model.until(lambda model: model.active == 3)

        await revoked(url, "carol")

        with pytest.raises(openai.APIError) as ended:
            await hers
        assert ended.value.code == "invalid_api_key"
        failed = await busy.until(lambda event: event["type"] == "response.failed")
        assert ["invalid_api_key" in json.dumps(event) for event in failed if event["type"] == "error"] == [True]
        assert [await socket.closed() for socket in (busy, idle)] == [1008, 1008]
    gate.set()
    assert (await other)[-1].type == "response.completed"
    await bridge.model.until(lambda model: model.active == 0)


@pytest.mark.promise("keys.rotate")
async def test_what_runs_with_a_rotated_key_may_finish(alone: tuple[Bridge, str]) -> None:
    bridge, url = alone
    old = await issued(url, "dave")
    await known(bridge, old)
    gate = asyncio.Event()
    bridge.script(answer(message("Begun", pieces=["Be", Wait(gate=gate), "gun"])))
    async with connected(bridge.url, key=old) as socket:
        await socket.create("go")
        await socket.until(lambda event: event["type"] == "response.output_text.delta")
        await known(bridge, await rotated(url, "dave"))
        await socket.create("more", stream_id="other")
        refused = await socket.until(lambda event: event["type"] == "error")
        assert error_of(refused[-1:])[1] == "websocket_connection_limit_reached"
        gate.set()
        assert (await socket.response())[-1]["type"] == "response.completed"
        assert await socket.closed() == 1008


@pytest.mark.promise("keys.models")
async def test_a_key_with_models_sees_and_uses_no_others(alone: tuple[Bridge, str]) -> None:
    bridge, url = alone
    key = await issued(url, "frank", ClientLimits(models=("GPT-5.5",)))
    await known(bridge, key)
    client = asks_with(bridge, key)
    everything = [model.id async for model in await bridge.client.models.list()]
    other = next(name for name in everything if name not in (MODEL, "codex-5"))

    assert [model.id async for model in await client.models.list()] == [MODEL, "codex-5"]
    anthropic = await bridge.http.get("/v1/models", headers={**bearer(key), "anthropic-version": "2023-06-01"})
    families = {f"claude-{family}" for family in FAMILIES}
    assert {each["id"] for each in anthropic.json()["data"]} == {MODEL, f"claude-{MODEL}", "codex-5"} | families
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve(other)

    bridge.says("fine")
    # The default model of this key is one that it may use.
    answered = await client.chat.completions.with_raw_response.create(
        model="codex-5", messages=[{"role": "user", "content": "hi"}]
    )
    assert answered.headers["x-turnbridge-model"] == MODEL
    for path, body in (
        (CHAT, {**HI, "model": other}),
        ("/v1/responses", {"model": f"{other}-low", "input": "hi"}),
        ("/v1/messages", {"model": other, "max_tokens": 9, "messages": HI["messages"]}),
        ("/v1/messages/count_tokens", {"model": other, "messages": HI["messages"]}),
        ("/v1/responses/input_tokens", {"model": other, "input": "hi"}),
    ):
        refused = await bridge.http.post(path, json=body, headers=bearer(key))
        assert refused.status_code == 404, path
        assert MODEL in refused.text
    assert len(bridge.model.requests) == 1


@pytest.mark.promise("keys.limits")
async def test_a_key_has_a_rate_and_turns_of_its_own(alone: tuple[Bridge, str], tmp_path: Path) -> None:
    bridge, url = alone
    key = await issued(url, "grace", ClientLimits(rate="2/hour", turns=1))
    await known(bridge, key)
    gate = asyncio.Event()
    bridge.model.respond = in_order(answer(message("Be", pieces=["B", Wait(gate=gate), "e"])), answer(message("ok")))
    running = asyncio.ensure_future(bridge.http.post(CHAT, json=HI, headers=bearer(key)))
    await bridge.model.until(lambda model: model.active == 1)

    busy = await bridge.http.post(CHAT, json=HI, headers=bearer(key))
    assert (busy.status_code, busy.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert "at most 1 turns" in busy.text
    neighbour = await bridge.http.post(CHAT, json=HI)
    assert (neighbour.status_code, "x-ratelimit-limit-requests" in neighbour.headers) == (200, False)
    gate.set()
    assert (await running).status_code == 200

    spent = await bridge.http.post(CHAT, json=HI, headers=bearer(key))
    assert (spent.status_code, spent.headers["x-ratelimit-limit-requests"]) == (429, "2")
    assert 3500 < int(spent.headers["retry-after"]) <= 3600

    raised = await run(tmp_path, "keys", "limits", "grace", "--rate", "none", "--json", PROXY_DATABASE_URL=url)
    assert (raised.status, json.loads(raised.out)["rate"], json.loads(raised.out)["turns"]) == (0, None, 1)
    bridge.model.respond = lambda _: answer(message("again"))
    await until(lambda: (client := bridge.gateway.keyring.find(key.encode())) is not None and not client.limits.rate)
    assert (await bridge.http.post(CHAT, json=HI, headers=bearer(key))).status_code == 200


@pytest.mark.promise("keys.named")
async def test_the_log_and_the_metrics_name_the_key(alone: tuple[Bridge, str]) -> None:
    bridge, url = alone
    key = await issued(url, "heidi")
    admin = await issued(url, "ivan", admin=True)
    await known(bridge, key)
    await known(bridge, admin)
    bridge.says("hello")
    with capture_logs() as logs:
        await bridge.http.post(CHAT, json=HI, headers=bearer(key))
        (line,) = await logged_requests(logs, 1, lambda line: line["route"] == CHAT)

    assert line["client"] == "heidi"
    # The figures are of all clients, so they are not for every client.
    refused = await bridge.http.get("/metrics", headers=bearer(key))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    for operator in (admin, API_KEY):
        metrics = (await bridge.http.get("/metrics", headers=bearer(operator))).text
        assert 'turnbridge_client_tokens_total{client="heidi",kind="output"}' in metrics
        assert 'turnbridge_client_requests_total{client="heidi"}' in metrics


@pytest.mark.promise("keys.nothing-stored")
async def test_keys_work_where_no_answers_are_stored(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_STORE_TTL_DAYS=0) as bridge:
        key = await issued(store_url(tmp_path), "judy")
        await known(bridge, key)
        bridge.says("hello")
        client = asks_with(bridge, key)
        response = await client.responses.create(model=MODEL, input="hi")
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.retrieve(response.id)
        assert told(refused.value)[:2] == (400, "nothing_is_stored")


@pytest.mark.promise("limits.shares.live")
async def test_the_first_made_key_keeps_the_owner_from_taking_all_turns(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_MAX_TURNS=8) as bridge:
        gate = asyncio.Event()
        bridge.model.respond = lambda _: answer(message("Be", pieces=["B", Wait(gate=gate), "e"]))
        assert bridge.gateway.admission.at_once(8) == 8
        key = await issued(store_url(tmp_path), "mallory")
        await known(bridge, key)
        flood = [asyncio.ensure_future(bridge.http.post(CHAT, json=HI)) for _ in range(10)]
        await bridge.model.until(lambda model: model.active == 7)
        other = asyncio.ensure_future(bridge.http.post(CHAT, json=HI, headers=bearer(key)))
        await bridge.model.until(lambda model: model.active == 8)
        gate.set()
        assert {each.status_code for each in await asyncio.gather(other, *flood)} == {200}
