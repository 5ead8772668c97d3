"""The scripted model over HTTP, seen from the peer's side."""

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx2
import pytest

from turnbridge.scripted_model.replies import (
    Hangup,
    HttpReply,
    JsonObject,
    Pause,
    Reply,
    StreamReply,
    Wait,
    answer,
    created,
    error_reply,
    message,
)
from turnbridge.scripted_model.server import ModelRequest, ScriptedModel, in_order

pytestmark = pytest.mark.anyio

ASKED: JsonObject = {"model": "m", "stream": True, "input": []}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield client


def sse(reply: StreamReply, ordinal: int = 1) -> list[JsonObject]:
    return [beat for beat in reply.render(ordinal) if isinstance(beat, dict)]


def parsed(body: str) -> list[JsonObject]:
    """Return the events of an SSE body, each of which must name its type on the line above."""
    events = []
    for block in body.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


async def ask(client: httpx2.AsyncClient, model: ScriptedModel) -> httpx2.Response:
    return await client.post(f"{model.base_url}/responses", json=ASKED)


async def test_a_stream_is_sent_as_server_sent_events(client: httpx2.AsyncClient) -> None:
    reply = answer(message("Grüß dich", pieces=["Grüß ", Pause(seconds=0), "dich"]))
    async with ScriptedModel(lambda _: reply) as model:
        response = await ask(client, model)
    assert response.headers["content-type"] == "text/event-stream"
    assert parsed(response.text) == sse(reply)


async def test_missing_ids_are_made_of_the_ordinal_of_the_request(client: httpx2.AsyncClient) -> None:
    reply = answer(message("Hi"))
    async with ScriptedModel(lambda _: reply) as model:
        bodies = [(await ask(client, model)).text for _ in range(2)]
    assert [parsed(body) for body in bodies] == [sse(reply, 1), sse(reply, 2)]


async def test_a_plain_reply_has_its_status_headers_and_body(client: httpx2.AsyncClient) -> None:
    reply = HttpReply(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after": "7"})
    async with ScriptedModel(lambda _: reply) as model:
        response = await ask(client, model)
    assert (response.status_code, response.json()) == (429, reply.body)
    assert response.headers["retry-after"] == "7"


async def test_a_script_gives_its_replies_in_order_and_then_fails(client: httpx2.AsyncClient) -> None:
    replies = [HttpReply(status=401, body={}), HttpReply(status=403, body={})]
    async with ScriptedModel(in_order(*replies)) as model:
        statuses = [(await ask(client, model)).status_code for _ in range(3)]
    assert statuses == [401, 403, 500]


async def test_a_script_that_raises_is_a_server_error(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_request: JsonObject) -> Reply:
        raise LookupError("a mistake in the script")

    async with ScriptedModel(broken) as model:
        response = await ask(client, model)
    assert (response.status_code, "a mistake in the script" in caplog.text) == (500, True)


async def test_requests_are_recorded_only_if_that_is_asked_for(client: httpx2.AsyncClient) -> None:
    def respond(request: JsonObject) -> Reply:
        return HttpReply(status=200, body=request)

    async with ScriptedModel(respond, record=True) as model, ScriptedModel(respond) as forgetful:
        response = await ask(client, model)
        await ask(client, forgetful)
    assert response.json() == ASKED
    assert model.requests == [ModelRequest(headers=dict(response.request.headers), body=ASKED)]
    assert (forgetful.requests, forgetful.received) == ([], 1)


@pytest.mark.parametrize(
    ("method", "path", "headers", "content", "expected"),
    [
        ("GET", "/responses", {}, b"", error_reply(404, "The scripted model has no GET /v1/responses.")),
        ("POST", "/models", {}, b"{}", error_reply(404, "The scripted model has no POST /v1/models.")),
        (
            "POST",
            "/responses",
            {"content-encoding": "zstd"},
            b"{}",
            error_reply(415, "The scripted model reads plain JSON: send it without a content encoding."),
        ),
        (
            "POST",
            "/responses",
            {},
            b"[]",
            error_reply(400, "The body is not a JSON object: Expected `object`, got `array`."),
        ),
        (
            "POST",
            "/responses",
            {},
            b"{}",
            error_reply(400, "The scripted model only streams: set `stream` to true."),
        ),
    ],
)
async def test_what_it_does_not_speak_is_refused(
    client: httpx2.AsyncClient,
    method: str,
    path: str,
    headers: dict[str, str],
    content: bytes,
    expected: HttpReply,
) -> None:
    async with ScriptedModel(in_order()) as model:
        response = await client.request(method, model.base_url + path, headers=headers, content=content)
    assert (response.status_code, response.json(), model.received) == (expected.status, expected.body, 0)


async def test_a_held_stream_goes_on_when_it_is_released(client: httpx2.AsyncClient) -> None:
    release = asyncio.Event()
    reply = answer(message("ab", pieces=["a", Wait(gate=release), "b"]))
    async with (
        ScriptedModel(lambda _: reply) as model,
        client.stream("POST", f"{model.base_url}/responses", json=ASKED) as response,
    ):
        chunks = response.aiter_text()
        seen = ""
        while '"delta":"a"' not in seen:
            seen += await anext(chunks)
        assert (model.active, '"delta":"b"' in seen) == (1, False)
        release.set()
        async for chunk in chunks:
            seen += chunk
        await model.until(lambda model: model.active == 0)
    assert (parsed(seen), model.dropped) == (sse(reply), 0)


async def test_a_peer_that_leaves_drops_its_stream(client: httpx2.AsyncClient) -> None:
    reply = answer(message("a", pieces=[Wait(gate=asyncio.Event())]))
    async with ScriptedModel(lambda _: reply) as model:
        async with client.stream("POST", f"{model.base_url}/responses", json=ASKED):
            await model.until(lambda model: model.active == 1)
            assert model.dropped == 0
        await model.until(lambda model: model.active == 0)
        assert (model.received, model.dropped) == (1, 1)


async def test_a_peer_that_leaves_after_the_last_event_has_dropped_nothing() -> None:
    async with ScriptedModel(lambda _: answer(message("a"))) as model:
        reader, writer = await raw_request(model)
        await reader.readuntil(b"response.completed")
        writer.transport.abort()
        await model.until(lambda model: model.active == 0)
        assert (model.received, model.dropped) == (1, 0)


async def test_a_hangup_breaks_the_connection_without_a_word(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedModel(lambda _: StreamReply(steps=(created(), Hangup(), created()))) as model:
        with pytest.raises(httpx2.TransportError):
            await ask(client, model)
        await model.until(lambda model: model.active == 0)
    assert (model.dropped, [r.getMessage() for r in caplog.records if r.name.startswith("uvicorn")]) == (
        0,
        [],
    )


async def test_a_stream_without_a_terminal_event_just_ends(client: httpx2.AsyncClient) -> None:
    reply = StreamReply(steps=(created(),))
    async with ScriptedModel(lambda _: reply) as model:
        assert parsed((await ask(client, model)).text) == sse(reply)


async def test_leaving_the_model_breaks_every_open_stream(client: httpx2.AsyncClient) -> None:
    held = answer(Wait(gate=asyncio.Event()))
    async with ScriptedModel(lambda _: held) as model:
        asked = [asyncio.ensure_future(ask(client, model)) for _ in range(3)]
        await model.until(lambda model: model.active == 3)
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(result, httpx2.TransportError) for result in results] == [True] * 3
    assert model.active == 0


async def test_many_streams_run_at_once(client: httpx2.AsyncClient) -> None:
    release = asyncio.Event()
    reply = answer(message("ab", pieces=["a", Wait(gate=release), "b"]), key="k")
    async with ScriptedModel(lambda _: reply) as model:
        asked = [asyncio.ensure_future(ask(client, model)) for _ in range(50)]
        await model.until(lambda model: model.active == 50)
        release.set()
        bodies = [(await response).text for response in asked]
    assert [parsed(body) for body in bodies] == [sse(reply)] * 50


@pytest.mark.parametrize("burst", [False, True])
async def test_ten_thousand_deltas_arrive_in_order(client: httpx2.AsyncClient, burst: bool) -> None:
    pieces = [f"{number} " for number in range(10_000)]
    reply = answer(message("".join(pieces), pieces=pieces), burst=burst)
    async with ScriptedModel(lambda _: reply) as model:
        response = await ask(client, model)
    assert parsed(response.text) == sse(reply)


@pytest.mark.parametrize(("burst", "writes"), [(False, [1, 1, 1, 1]), (True, [2, 2])])
async def test_a_burst_joins_the_events_between_two_silences(burst: bool, writes: list[int]) -> None:
    steps = (created(), created(), Pause(seconds=0), created(), created())
    async with ScriptedModel(lambda _: StreamReply(steps=steps, burst=burst)) as model:
        reader, writer = await raw_request(model)
        await reader.readuntil(b"\r\n\r\n")
        events_per_write = []
        while size := int(await reader.readline(), 16):
            chunk = await reader.readexactly(size + len(b"\r\n"))
            events_per_write.append(chunk.count(b"event: "))
        writer.close()
        await writer.wait_closed()
    assert events_per_write == writes


async def raw_request(model: ScriptedModel) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask over a bare connection, where the chunks of the response can be seen."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(model.base_url).port)
    body = json.dumps(ASKED).encode()
    writer.write(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    return reader, writer
