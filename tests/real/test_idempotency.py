"""Repeats and limits, on the whole gateway: the real Codex runs a repeated request once, and no more than a key may."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import openai
import pytest

from tests.support.gateway import Bridge, running_bridge
from turnbridge.scripted_model.replies import (
    JsonObject,
    Wait,
    answer,
    message,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
ASK: dict[str, JsonObject] = {
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": MODEL, "input": "hi"},
}
BOTH_APIS = pytest.mark.parametrize("path", [CHAT, RESPONSES])
MARK = "x-turnbridge-idempotent"
PATIENCE_S = 25
"""Far longer than anything here takes; less than the test's own limit, so that a failure names its place."""


@pytest.mark.promise("limits.idempotency")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@BOTH_APIS
async def test_a_repeat_gets_the_very_same_answer_and_the_model_is_asked_once(
    bridge: Bridge, path: str, stream: bool
) -> None:
    bridge.says("once")
    key = {"idempotency-key": f"repeat {path} {stream}"}
    body = {**ASK[path], "stream": stream}
    first, again = [await bridge.http.post(path, json=body, headers=key) for _ in range(2)]
    assert (first.status_code, first.headers.get(MARK)) == (200, None)
    assert (again.status_code, again.headers.get(MARK)) == (200, "replayed")
    assert again.content == first.content
    assert b"once" in first.content
    assert len(bridge.model.requests) == 1
    other = await bridge.http.post(path, json={**body, "user": "somebody"}, headers=key)
    in_text = await bridge.http.post(path, json=body, headers={**key, "x-proxy-output-mode": "obsidian-xml"})
    for refused in (other, in_text):
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "idempotency_key_reused")


@pytest.mark.promise("limits.idempotency")
async def test_what_is_created_is_created_once(bridge: Bridge) -> None:
    key = {"idempotency-key": "create"}
    first, again = [await bridge.http.post("/v1/conversations", json={}, headers=key) for _ in range(2)]
    assert (again.json(), again.headers.get(MARK)) == (first.json(), "replayed")
    items = f"/v1/conversations/{first.json()['id']}/items"
    said: JsonObject = {"items": [{"role": "user", "content": "hi"}]}
    for _ in range(2):
        assert (await bridge.http.post(items, json=said, headers=key)).status_code == 200
    assert len((await bridge.http.get(items)).json()["data"]) == 1


@pytest.mark.promise("limits.idempotency")
@BOTH_APIS
async def test_a_client_whose_connection_broke_joins_the_stream_from_its_beginning(bridge: Bridge, path: str) -> None:
    dropped = bridge.model.dropped
    gate = asyncio.Event()
    bridge.script(answer(message("begun and done", pieces=["begun", Wait(gate=gate), " and done"])))
    key = {"idempotency-key": f"join {path}"}
    body = {**ASK[path], "stream": True}
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        async with bridge.http.stream("POST", path, json=body, headers=key) as first:
            begun = await anext(piece async for piece in first.aiter_text() if "begun" in piece)
            joined = await stack.enter_async_context(bridge.http.stream("POST", path, json=body, headers=key))
        # The first one is gone.
        gate.set()
        text = (await joined.aread()).decode()
    assert (joined.status_code, joined.headers[MARK]) == (200, "joined")
    assert begun in text
    assert " and done" in text
    assert (len(bridge.model.requests), bridge.model.dropped) == (1, dropped)


@pytest.mark.promise("limits.idempotency")
async def test_the_turn_is_interrupted_when_the_last_client_leaves(bridge: Bridge) -> None:
    dropped = bridge.model.dropped
    bridge.script(answer(message("begun", pieces=["begun", Wait(gate=asyncio.Event())])))
    key = {"idempotency-key": "leave"}
    asked = [asyncio.ensure_future(bridge.http.post(CHAT, json=ASK[CHAT], headers=key)) for _ in range(2)]
    async with asyncio.timeout(PATIENCE_S):
        await bridge.model.until(lambda model: model.active == 1)
        for client in asked:
            client.cancel()
        await asyncio.wait(asked)
        await bridge.model.until(lambda model: model.dropped == dropped + 1 and model.active == 0)
    bridge.says("anew")
    again = await bridge.http.post(CHAT, json=ASK[CHAT], headers=key)
    assert (again.headers.get(MARK), again.json()["choices"][0]["message"]["content"]) == (None, "anew")


@pytest.mark.promise("limits.key-turns", "limits.rate")
async def test_a_key_that_goes_too_far_is_told_so_as_the_sdk_understands_it(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_KEY_MAX_TURNS=1, PROXY_RATE_LIMIT="2/hour") as bridge:
        gate = asyncio.Event()
        bridge.script(answer(message("done", pieces=[Wait(gate=gate), "done"])))
        running = asyncio.ensure_future(bridge.client.responses.with_raw_response.create(model=MODEL, input="hi"))
        await bridge.model.until(lambda model: model.active == 1)
        with pytest.raises(openai.RateLimitError, match="running or queued") as one_too_many:
            await bridge.client.responses.create(model=MODEL, input="hi")
        with pytest.raises(openai.RateLimitError, match="2 requests per hour") as too_often:
            await bridge.client.responses.create(model=MODEL, input="hi")
        gate.set()
        served = await running
    assert one_too_many.value.response.headers["retry-after"] == "2"
    assert int(too_often.value.response.headers["retry-after"]) > 3500
    assert [
        answered.headers["x-ratelimit-remaining-requests"]
        for answered in (served, one_too_many.value.response, too_often.value.response)
    ] == ["1", "0", "0"]
