"""A client that leaves, at whatever stage, interrupts its turn: the real Codex drops the model's stream."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.support.gateway import API_KEY, Bridge, running_bridge
from turnbridge.scripted_model.replies import (
    JsonObject,
    Reply,
    StreamReply,
    Wait,
    answer,
    message,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
BOTH_APIS = pytest.mark.parametrize("path", [CHAT, RESPONSES])
ASK: dict[str, JsonObject] = {
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": MODEL, "input": "hi"},
}

PATIENCE_S = 25
"""Far longer than anything here takes; less than the test's own limit, so that a failure names its place."""


def silence() -> StreamReply:
    """Return an answer that never begins: only an interrupt ends it."""
    return answer(Wait(gate=asyncio.Event()))


def begun() -> StreamReply:
    """Return an answer that begins and never ends."""
    return answer(message("begun", pieces=["begun", Wait(gate=asyncio.Event())]))


async def all_dropped(bridge: Bridge, before: int, streams: int = 1) -> None:
    """Return once the model's streams were dropped, and the gateway has served another request."""
    async with asyncio.timeout(PATIENCE_S):
        await bridge.model.until(lambda model: model.dropped == before + streams and model.active == 0)
    bridge.says("next")
    response = await bridge.client.responses.create(model=MODEL, input="hi")
    assert response.output_text == "next"


@pytest.mark.promise("faults.leaving")
@pytest.mark.parametrize("reply", [silence, begun])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@BOTH_APIS
async def test_a_client_that_leaves_while_it_waits_interrupts_its_turn(
    bridge: Bridge, path: str, stream: bool, reply: Callable[[], Reply]
) -> None:
    before = bridge.model.dropped
    bridge.script(reply())
    asked = asyncio.ensure_future(bridge.http.post(path, json={**ASK[path], "stream": stream}))
    await bridge.model.until(lambda model: model.active == 1)
    asked.cancel()
    await asyncio.wait([asked])
    await all_dropped(bridge, before)


@pytest.fixture(scope="module")
async def eager(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that sends a stream's headers at once."""
    del anyio_backend  # Named so that its scope fits.
    async with running_bridge(tmp_path_factory.mktemp("eager"), PROXY_STREAM_HOLD_MS=0) as running:
        yield running


@pytest.mark.promise("faults.leaving")
@BOTH_APIS
async def test_a_client_that_leaves_after_the_headers_interrupts_its_turn(eager: Bridge, path: str) -> None:
    before = eager.model.dropped
    eager.script(silence())
    async with eager.http.stream("POST", path, json={**ASK[path], "stream": True}) as response:
        assert response.status_code == 200
        await eager.model.until(lambda model: model.active == 1)
    await all_dropped(eager, before)


@pytest.mark.promise("faults.leaving")
async def test_a_client_that_leaves_between_two_pieces_of_a_response_interrupts_its_turn(bridge: Bridge) -> None:
    before = bridge.model.dropped
    bridge.script(begun())
    async with await bridge.client.responses.create(model=MODEL, input="hi", stream=True) as events:
        async for event in events:
            if event.type == "response.output_text.delta":
                break
    await all_dropped(bridge, before)


@pytest.mark.promise("faults.leaving")
async def test_a_client_that_leaves_between_two_pieces_of_a_chat_interrupts_every_choice(bridge: Bridge) -> None:
    before = bridge.model.dropped
    bridge.script(begun(), begun(), begun())
    async with await bridge.client.chat.completions.create(model=MODEL, messages=HI, n=3, stream=True) as chunks:
        await bridge.model.until(lambda model: model.active == 3)
        async for chunk in chunks:
            if chunk.choices[0].delta.content:
                break
    await all_dropped(bridge, before, streams=3)


@pytest.mark.promise("faults.leaving")
async def test_a_client_that_has_waited_long_enough_interrupts_its_turn(bridge: Bridge) -> None:
    before = bridge.model.dropped
    bridge.script(begun())
    # Long enough for the model to be asked.
    hasty = bridge.client.with_options(timeout=3)
    with pytest.raises(openai.APITimeoutError):
        await hasty.responses.create(model=MODEL, input="hi")
    await all_dropped(bridge, before)


@pytest.mark.promise("faults.leaving")
async def test_a_client_that_leaves_during_a_repair_interrupts_it(bridge: Bridge) -> None:
    before = bridge.model.dropped
    bridge.script(answer(message("no JSON")), silence())
    wanted: JsonObject = {"format": {"type": "json_object"}}
    body: JsonObject = {"model": MODEL, "input": "Some JSON, please.", "text": wanted}
    asked = asyncio.ensure_future(bridge.http.post(RESPONSES, json=body))
    await bridge.model.until(lambda _: len(bridge.model.requests) == 2 and bridge.model.active == 1)
    asked.cancel()
    await asyncio.wait([asked])
    await all_dropped(bridge, before)


@pytest.mark.promise("faults.leaving")
@BOTH_APIS
async def test_clients_that_leave_before_their_turn_has_begun_leave_nothing_behind(bridge: Bridge, path: str) -> None:
    bridge.script()
    bridge.model.respond = lambda request: (
        answer(message("next")) if "somebody else" in json.dumps(request) else begun()
    )
    address = urlsplit(bridge.url)
    body = json.dumps({**ASK[path], "stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {API_KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    for _ in range(8):
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    response = await bridge.client.responses.create(model=MODEL, input="somebody else")
    assert response.output_text == "next"
    async with asyncio.timeout(PATIENCE_S):
        await bridge.model.until(lambda model: model.active == 0)
