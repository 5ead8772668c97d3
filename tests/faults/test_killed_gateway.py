"""A gateway that is killed at any moment: what it kept is whole, and what it was making has failed, with a reason."""

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.support.gateway import running_bridge
from tests.support.gateway_process import API_KEY, gateway_process
from tests.support.plain_http import RESPONSES, client
from tests.support.waiting import LOOK_AGAIN_S
from turnbridge.api.responses import background
from turnbridge.api.responses.endings import LOST
from turnbridge.engine.records import History
from turnbridge.scripted_model.replies import (
    Pause,
    Reply,
    Wait,
    answer,
    message,
    reasoning,
)
from turnbridge.scripted_model.server import ScriptedModel
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import open_store
from turnbridge.turn.items import JsonObject
from turnbridge.web.middleware.keyring import client_with

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PATIENCE_S = 40
HOUR_S = 3600
ONE = {"WORKER_COUNT": 1}


async def ended(http: httpx2.AsyncClient, response_id: str) -> JsonObject:
    """Poll until a response has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: JsonObject = (await http.get(f"{RESPONSES}/{response_id}")).json()
            if found["status"] not in ("queued", "in_progress"):
                return found
            await asyncio.sleep(LOOK_AGAIN_S)


@pytest.mark.promise("state.background.lost")
async def test_a_response_in_the_background_has_failed_after_its_gateway_was_killed(
    started_before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "RENEWAL_S", 0.05)
    monkeypatch.setattr(background, "GRACE_S", 0.2)
    endless = answer(message("begun", pieces=["begun", Wait(gate=asyncio.Event())]))
    async with (
        ScriptedModel(lambda _: endless) as model,
        gateway_process(started_before, model.base_url, ONE) as gateway,
        gateway.client() as http,
    ):
        await gateway.ready()
        asked: JsonObject = {"model": "gpt-5.5", "input": "hi", "background": True}
        begun = (await http.post(RESPONSES, json=asked)).json()
        await model.until(lambda model: model.active == 1)
        gateway.send(signal.SIGKILL)
        await gateway.process.wait()
    # However long the other one takes to start.
    await set_lease(started_before / "data", begun["id"], HOUR_S)
    async with (
        running_bridge(started_before / "data", api_key=API_KEY) as bridge,
        client(bridge.url, API_KEY) as http,
    ):
        # Its gateway might still be there, for all that the other one knows.
        assert (await http.get(f"{RESPONSES}/{begun['id']}")).json()["status"] == "queued"
        await set_lease(started_before / "data", begun["id"], -1)
        failed = await ended(http, begun["id"])
        error: JsonObject = {"code": "server_error", "message": LOST}
        assert failed == {**begun, "status": "failed", "error": error}
        bridge.says("Well.")
        after = {"model": "gpt-5.5", "input": "again", "previous_response_id": begun["id"]}
        assert (await http.post(RESPONSES, json=after)).json()["status"] == "completed"


async def set_lease(data_dir: Path, response_id: str, lease_s: float) -> None:
    """Let the lease of a response end so long from now: it is what the other gateway waits for."""
    store = await open_store(store_url(data_dir))
    try:
        assert await store.extend_leases([response_id], lease_s) == {response_id}
    finally:
        await store.aclose()


def text_for(question: str) -> str:
    return f"Answer to {question}: {'x' * 5000}"


def respond(request: JsonObject) -> Reply:
    """Answer the last question, some time or other."""
    items = request["input"]
    assert isinstance(items, list)
    last = items[-1]
    assert isinstance(last, dict)
    question = json.loads(json.dumps(last["content"]))[0]["text"]
    number = int(question.split()[-1])
    thought = reasoning([f"About {question}"], encrypted=f"sealed {question}")
    return answer(thought, Pause(seconds=number % 5 / 100), message(text_for(question)))


def asked_for(times: int) -> Callable[[ScriptedModel], bool]:
    return lambda model: model.received >= times


async def ask_on(http: httpx2.AsyncClient, name: str, heard: dict[str, JsonObject]) -> None:
    """Go on with a conversation until the gateway is gone; note every answer that was read to its end."""
    previous: str | None = None
    number = 0
    with contextlib.suppress(httpx2.HTTPError):
        while True:
            asked: JsonObject = {"model": "gpt-5.5", "input": f"{name} {number}", "previous_response_id": previous}
            response = (await http.post(RESPONSES, json=asked)).json()
            assert response["status"] == "completed"
            heard[response["id"]] = response
            previous, number = response["id"], number + 1


@pytest.mark.promise("state.killed")
async def test_every_answer_that_was_read_is_kept_and_none_is_half_there(started_before: Path) -> None:
    heard: dict[str, JsonObject] = {}
    async with ScriptedModel(respond) as model:
        for moment in (10, 35):
            async with gateway_process(started_before, model.base_url, ONE) as gateway, gateway.client() as http:
                await gateway.ready()
                clients = [asyncio.ensure_future(ask_on(http, f"{moment}-{n}", heard)) for n in range(4)]
                async with asyncio.timeout(PATIENCE_S):
                    await model.until(asked_for(moment))
                gateway.send(signal.SIGKILL)
                await asyncio.gather(*clients)
    store = await open_store(store_url(started_before / "data"))
    try:
        kept = [line["body"] async for line in store.export() if line["kind"] == "response"]
        for response in kept:
            assert isinstance(response, dict)
            history = await store.response_history(client_with(API_KEY.encode()).id, str(response["id"]))
            assert history is not None
            check_whole(response, history)
    finally:
        await store.aclose()
    by_id = {str(response["id"]): response for response in kept if isinstance(response, dict)}
    assert heard
    assert {response_id: by_id.get(response_id) for response_id in heard} == heard


def check_whole(response: JsonObject, history: History) -> None:
    """Assert that a response is complete, and that its history has every question and answer up to it."""
    *before, asked = history.inputs
    question = str(asked.body["content"])
    name, number = question.split()
    assert response["status"] == "completed"
    told = [str(item.body.get("content") or item.body.get("encrypted_content")) for item in before]
    expected = [
        text
        for earlier in (f"{name} {n}" for n in range(int(number)))
        for text in (earlier, f"sealed {earlier}", text_for(earlier))
    ]
    assert len(told) == len(expected)
    assert all(text in entry for text, entry in zip(expected, told, strict=True))
    thought, spoken = (item.body for item in history.outputs)
    assert (thought["encrypted_content"], spoken["status"]) == (f"sealed {question}", "completed")
    shown = {name: value for name, value in thought.items() if name != "encrypted_content"}
    assert response["output"] == [shown, spoken]
    assert text_for(question) in str(spoken["content"])
