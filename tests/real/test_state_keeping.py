"""What is kept and what is not: nothing that was not to be, nothing too old, and an answer in any case."""

import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from structlog.testing import capture_logs

from tests.store.samples import exported
from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.state_clients import (
    MODEL,
    respond,
    shown,
    told,
    traces,
    user,
)
from tests.support.tool_clients import declared, weather_call
from turnbridge import bootstrap
from turnbridge.api.generation import NOTHING_KEPT
from turnbridge.engine.records import KeptItem, ResponseRecord
from turnbridge.scripted_model.replies import answer, message, reasoning
from turnbridge.store.schema import STORE_FILE, store_url
from turnbridge.store.sql_store import open_store
from turnbridge.turn.items import JsonObject
from turnbridge.web.middleware.keyring import client_with

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MARK = "the-quick-brown-fox-7419"
HI: Any = [{"role": "user", "content": f"hi {MARK}"}]
DAY_S = 24 * 3600


@pytest.mark.promise("state.no-trace")
@pytest.mark.parametrize("warm", [0, 64], ids=["replayed", "warm"])
async def test_what_is_not_to_be_kept_leaves_no_trace_on_disk(tmp_path: Path, warm: int) -> None:
    secret = answer(reasoning([f"about {MARK}"], encrypted=f"sealed {MARK}"), message(f"bye {MARK}"))
    async with running_bridge(tmp_path, PROXY_WARM_THREADS_MAX=warm) as bridge:
        bridge.model.respond = lambda _: secret
        client = bridge.client
        await client.responses.create(model=MODEL, input=f"hi {MARK}", instructions=MARK, store=False)
        async for _ in await client.responses.create(
            model=MODEL, input=HI, store=False, stream=True, metadata={"a": MARK}
        ):
            pass
        await client.chat.completions.create(model=MODEL, messages=HI)
        await client.chat.completions.create(model=MODEL, messages=HI, store=False, user=MARK)
        bridge.script(answer(weather_call(MARK, "call_secret")), answer(message("well")))
        await respond(bridge, HI, tools=declared("responses"), store=False)
        assert traces(tmp_path, MARK) == []
        kept = await client.responses.create(model=MODEL, input="an ordinary question", store=True)
        assert kept.id
    assert traces(tmp_path, MARK) == []
    # The search would have found it.
    assert traces(tmp_path, "an ordinary question") == [STORE_FILE]


@pytest.mark.promise("state.deleted")
async def test_what_was_deleted_leaves_no_trace_once_the_gateway_has_ended(tmp_path: Path) -> None:
    async with running_bridge(tmp_path) as bridge:
        bridge.model.respond = lambda _: answer(message(f"bye {MARK}"))
        client = bridge.client
        response = await client.responses.create(model=MODEL, input=HI)
        chat = await client.chat.completions.create(model=MODEL, messages=HI, store=True)
        talk = await client.conversations.create(items=HI, metadata={"a": MARK})
        assert traces(tmp_path, MARK) != []
        await client.responses.delete(response.id)
        await client.chat.completions.delete(chat.id)
        await client.conversations.delete(talk.id)
    assert traces(tmp_path, MARK) == []


@pytest.mark.promise("state.no-trace")
async def test_no_key_is_written_to_disk(tmp_path: Path) -> None:
    async with running_bridge(tmp_path) as bridge:
        bridge.says("hello")
        await respond(bridge, "hi")
    assert traces(tmp_path, API_KEY) == []


@pytest.fixture(scope="module")
async def forgetful(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that keeps nothing."""
    del anyio_backend
    async with running_bridge(tmp_path_factory.mktemp("forgetful"), PROXY_STORE_TTL_DAYS=0) as running:
        yield running


@pytest.mark.promise("state.off")
async def test_a_gateway_that_keeps_nothing_answers_and_says_so(forgetful: Bridge) -> None:
    forgetful.model.respond = lambda _: answer(message("hello"))
    response, _ = await respond(forgetful, "hi")
    assert (response.output_text, response.to_dict()["store"]) == ("hello", False)
    for path, body in (
        ("/v1/responses", {"model": MODEL, "input": "hi", "store": True}),
        ("/v1/chat/completions", {"model": MODEL, "messages": HI, "store": True}),
    ):
        answered = await forgetful.http.post(path, json=body)
        assert (answered.status_code, answered.headers["x-turnbridge-ignored"]) == (200, "store")


UNKEPT: dict[str, tuple[str, str, JsonObject, tuple[int, str, str | None]]] = {
    "continue": (
        "POST",
        "/v1/responses",
        {"model": MODEL, "input": "hi", "previous_response_id": "resp_1"},
        (400, "previous_response_not_found", "previous_response_id"),
    ),
    "conversation": (
        "POST",
        "/v1/responses",
        {"model": MODEL, "input": "hi", "conversation": "conv_1"},
        (404, "not_found", "conversation"),
    ),
    "background": (
        "POST",
        "/v1/responses",
        {"model": MODEL, "input": "hi", "background": True},
        (400, "nothing_is_stored", "background"),
    ),
    "reference": (
        "POST",
        "/v1/responses",
        {"model": MODEL, "input": [{"type": "item_reference", "id": "msg_1"}]},
        (404, "item_not_found", "input[0]"),
    ),
    "retrieve": ("GET", "/v1/responses/resp_1", {}, (400, "nothing_is_stored", None)),
    "delete": ("DELETE", "/v1/responses/resp_1", {}, (400, "nothing_is_stored", None)),
    "create a conversation": ("POST", "/v1/conversations", {}, (400, "nothing_is_stored", None)),
    "list chats": ("GET", "/v1/chat/completions", {}, (400, "nothing_is_stored", None)),
}


@pytest.mark.promise("state.off")
@pytest.mark.parametrize(("method", "path", "body", "expected"), UNKEPT.values(), ids=UNKEPT.keys())
async def test_a_gateway_that_keeps_nothing_refuses_what_needs_it(
    forgetful: Bridge, method: str, path: str, body: JsonObject, expected: tuple[int, str, str | None]
) -> None:
    forgetful.script()
    response = await forgetful.http.request(method, path, json=body or None)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == expected
    assert NOTHING_KEPT in error["message"] or error["code"] == "item_not_found"
    assert forgetful.model.requests == []


@pytest.mark.promise("state.off")
async def test_a_gateway_that_keeps_nothing_has_nothing_on_disk(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_STORE_TTL_DAYS=0) as bridge:
        bridge.says("hello")
        await respond(bridge, "hi")
    store = await open_store(store_url(tmp_path))
    assert await exported(store) == []
    await store.aclose()


async def add(data_dir: Path, ages_days: dict[str, float], size: int = 10) -> None:
    """Keep responses of different ages."""
    store = await open_store(store_url(data_dir))
    for name, days in ages_days.items():
        made: JsonObject = {"id": name, "status": "completed", "output": [], "text": "x" * size}
        await store.add_response(
            ResponseRecord(
                id=name,
                owner=client_with(API_KEY.encode()).id,
                created_at=int(time.time() - days * DAY_S),
                status="completed",
                body=made,
            ),
            continues=None,
            inputs=[KeptItem(id=f"msg_{name}", body={"role": "user", "content": "hi"})],
        )
    await store.aclose()


async def left(bridge: Bridge, names: list[str]) -> list[str]:
    """Return which of the responses are there."""
    statuses = {name: (await bridge.http.get(f"/v1/responses/{name}")).status_code for name in names}
    assert set(statuses.values()) <= {200, 404}
    return [name for name, status in statuses.items() if status == 200]


async def until_left(bridge: Bridge, names: list[str], expected: list[str]) -> None:
    while await left(bridge, names) != expected:
        pass


@pytest.mark.promise("state.retention")
async def test_what_is_too_old_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "PRUNING_INTERVAL_S", 0.05)
    ages = {"resp_29": 29.0, "resp_31": 31.0, "resp_400": 400.0}
    await add(tmp_path, ages)
    async with running_bridge(tmp_path) as bridge:
        await until_left(bridge, [*ages], ["resp_29"])
    async with running_bridge(tmp_path, PROXY_STORE_TTL_DAYS=7) as bridge:
        await until_left(bridge, [*ages], [])


@pytest.mark.promise("state.retention")
async def test_the_oldest_make_room_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "PRUNING_INTERVAL_S", 0.05)
    ages = {"resp_4": 4.0, "resp_3": 3.0, "resp_2": 2.0, "resp_1": 1.0}
    await add(tmp_path, ages, size=400_000)
    async with running_bridge(tmp_path, PROXY_STORE_MAX_MB=1) as bridge:
        await until_left(bridge, [*ages], ["resp_2", "resp_1"])


@pytest.fixture
async def broken(tmp_path: Path) -> AsyncIterator[Bridge]:
    """Return a gateway whose store fails: somebody has taken its tables away."""
    async with running_bridge(tmp_path) as running:
        running.says("before")
        await respond(running, "hi")
        with sqlite3.connect(tmp_path / STORE_FILE) as meddler:
            for table in ("responses", "items", "chats"):
                meddler.execute(f"ALTER TABLE {table} RENAME TO gone_{table}")
        meddler.close()
        yield running


@pytest.mark.promise("state.broken-store")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_store_that_fails_costs_nobody_an_answer(broken: Bridge, stream: bool) -> None:
    broken.says("hello")
    with capture_logs() as logs:
        if stream:
            events = [e async for e in await broken.client.responses.create(model=MODEL, input="hi", stream=True)]
            last: Any = events[-1]
            response = last.response
            assert [e.sequence_number for e in events] == list(range(len(events)))
        else:
            response, _ = await respond(broken, "hi")
    assert (response.status, response.output_text, response.to_dict()["store"]) == ("completed", "hello", False)
    (noted,) = [log for log in logs if log["event"] == "response_not_kept"]
    assert (noted["log_level"], noted["response"]) == ("error", response.id)
    assert "no such table" in noted["reason"]


@pytest.mark.promise("state.broken-store")
async def test_a_store_that_fails_costs_no_chat_an_answer(broken: Bridge) -> None:
    broken.says("hello")
    with capture_logs() as logs:
        chat = await broken.client.chat.completions.create(model=MODEL, messages=HI, store=True)
    assert chat.choices[0].message.content == "hello"
    assert [log["completion"] for log in logs if log["event"] == "chat_not_kept"] == [chat.id]


@pytest.mark.promise("state.broken-store")
async def test_clients_that_keep_their_own_history_need_no_store(broken: Bridge) -> None:
    broken.says("Sunny.")
    history: Any = [
        {"role": "user", "content": "weather?"},
        {"type": "function_call", "call_id": "call_own", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_own", "output": "sun"},
    ]
    response, _ = await respond(broken, history, tools=declared("responses"), store=False)
    assert response.output_text == "Sunny."


@pytest.mark.promise("state.broken-store")
async def test_a_store_that_fails_is_told_to_those_who_need_it(broken: Bridge) -> None:
    broken.script()
    responses = broken.client.responses
    for call in (
        responses.retrieve("resp_1"),
        responses.delete("resp_1"),
        responses.create(model=MODEL, input="hi", previous_response_id="resp_1"),
        responses.create(model=MODEL, input="hi", background=True),
        broken.client.chat.completions.retrieve("chatcmpl-1"),
    ):
        with pytest.raises(openai.InternalServerError, match="The store cannot be used") as caught:
            await call
        assert told(caught.value) == (503, "store_unavailable", None)
    assert broken.model.requests == []


@pytest.mark.promise("state.stored")
async def test_a_client_that_leaves_as_its_answer_ends_finds_it_kept(bridge: Bridge) -> None:
    bridge.script(answer(message("one")), answer(message("two")))
    stream = await bridge.client.responses.create(model=MODEL, input="first", stream=True)
    response_id = ""
    async for event in stream:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.completed":
            # Kept before its client heard of the end: the next request may come at once.
            await respond(bridge, "second", previous_response_id=response_id)
    assert shown(bridge)[0] == user("first")  # type: ignore[index]
