"""The Responses API over WebSocket, on the real Codex: handshake, events, errors, continuation, life."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from dirty_equals import IsStr
from websockets.exceptions import InvalidStatus

from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.logs import logged_requests
from tests.support.sockets import (
    PATIENCE_S,
    Socket,
    connected,
    error_of,
    response_id,
    response_of,
    text_of,
)
from tests.support.state_clients import assistant, keeping_bridge, shown, stranger, user
from tests.support.tool_clients import HI
from tests.support.tool_clients import WEATHER as PARAMETERS
from turnbridge.api.responses import websocket
from turnbridge.api.responses.websocket import Connection
from turnbridge.scripted_model.replies import (
    Hangup,
    Pause,
    Reply,
    StreamReply,
    Wait,
    answer,
    error_reply,
    function_call,
    message,
    reasoning,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
WEATHER: JsonObject = {"type": "function", "name": "get_weather", "parameters": PARAMETERS}


@pytest.fixture
async def socket(bridge: Bridge) -> AsyncIterator[Socket]:
    """Return an open connection."""
    async with connected(bridge.url) as opened:
        yield opened


def echo(request: JsonObject) -> Reply:
    """Answer with the last text of the request."""
    items = request["input"]
    assert isinstance(items, list)
    last = items[-1]
    assert isinstance(last, dict)
    parts = last["content"]
    assert isinstance(parts, list)
    part = parts[0]
    assert isinstance(part, dict)
    return answer(message(str(part["text"])))


def begun(gate: asyncio.Event) -> StreamReply:
    """Return an answer that begins, and goes on when the gate opens."""
    return answer(message("Begun, done.", pieces=["Begun", Wait(gate=gate), ", done."]))


def is_delta(event: JsonObject) -> bool:
    return event["type"] == "response.output_text.delta"


# Handshake


@pytest.mark.promise("websocket.handshake")
@pytest.mark.parametrize("path", ["/v1/responses", "/responses", "/v1//responses/"])
async def test_a_socket_is_opened_with_and_without_v1(bridge: Bridge, path: str) -> None:
    bridge.says("hello")
    async with connected(bridge.url, path=path) as socket:
        assert text_of(await socket.ask()) == "hello"


async def refused(bridge: Bridge, **options: object) -> tuple[int, Json]:
    """Return the status and the code that a handshake is refused with."""
    with pytest.raises(InvalidStatus) as caught:
        async with connected(bridge.url, **options):  # type: ignore[arg-type]
            pass
    response = caught.value.response
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    error = json.loads(response.body)["error"]
    return response.status_code, error["code"]


@pytest.mark.promise("websocket.handshake")
async def test_a_handshake_with_a_wrong_key_is_refused(bridge: Bridge) -> None:
    assert await refused(bridge, key="sk-wrong-0123456789abcdef") == (401, "invalid_api_key")


@pytest.mark.promise("websocket.handshake")
async def test_a_page_of_another_origin_cannot_open_a_socket_even_with_the_key(bridge: Bridge) -> None:
    assert await refused(bridge, headers={"origin": "https://evil.example"}) == (403, "forbidden")


@pytest.mark.promise("websocket.handshake")
async def test_a_page_of_an_allowed_origin_can(bridge: Bridge) -> None:
    bridge.says("hello")
    async with connected(bridge.url, headers={"origin": "http://localhost:3000"}) as socket:
        assert text_of(await socket.ask()) == "hello"


@pytest.mark.promise("websocket.handshake", "websocket.bounds")
async def test_connections_are_bounded_per_key_and_in_all(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MOST_OF_CLIENT", 1)
    async with connected(bridge.url) as socket:
        assert await refused(bridge) == (429, "too_many_connections")
        monkeypatch.setattr(websocket, "MOST_OF_CLIENT", 2)
        monkeypatch.setattr(websocket, "MOST_CONNECTIONS", 1)
        assert await refused(bridge) == (503, "gateway_overloaded")
        bridge.says("hello")
        assert text_of(await socket.ask()) == "hello"


@pytest.mark.promise("websocket.bounds")
async def test_a_connection_without_a_first_message_is_closed(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "first_message_s", 0.1)
    async with connected(bridge.url) as socket:
        assert await socket.closed() == 1008


# Events


def without_ids(event: JsonObject) -> Json:
    """Return an event without what differs between two responses to the same request."""

    def bare(value: Json) -> Json:
        if isinstance(value, dict):
            return {
                name: bare(each)
                for name, each in value.items()
                if name not in ("id", "item_id", "created_at", "completed_at")
            }
        return [bare(each) for each in value] if isinstance(value, list) else value

    return bare(event)


CASES: dict[str, tuple[Callable[[], Reply], JsonObject]] = {
    "text": (lambda: answer(message("hello", pieces=["hel", "lo"])), {}),
    "reasoning": (lambda: answer(reasoning("thought"), message("hello")), {"reasoning": {"summary": "auto"}}),
    "call": (lambda: answer(function_call("get_weather", '{"city":"Rome"}', call_id="call_1")), {"tools": [WEATHER]}),
    "incomplete": (
        lambda: answer(message("", pieces=["one two three " * 50, Wait(gate=asyncio.Event())])),
        {"max_output_tokens": 16},
    ),
    # Long enough for the first words to have left.
    "failed": (lambda: answer(message("", pieces=["Begun", Pause(seconds=1.0), Hangup()])), {}),
}


@pytest.mark.promise("websocket.same-events")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lane", [None, "lane"])
async def test_a_socket_has_the_events_of_the_stream_over_http(bridge: Bridge, case: str, lane: str | None) -> None:
    reply, fields = CASES[case]
    body = {"model": MODEL, "input": "hi", "store": False, **fields}
    bridge.script(reply(), reply())
    stream = await bridge.client.responses.create(**body, stream=True)  # type: ignore[call-overload]
    on_http: list[JsonObject] = [
        json.loads(line.removeprefix("data: "))
        async for line in stream.response.aiter_lines()
        if line.startswith("data: ")
    ]
    async with connected(bridge.url) as socket:
        named = {} if lane is None else {"stream_id": lane}
        events = await _asked(socket, {**body, **named})
    assert [event.pop("stream_id", None) for event in events] == [lane] * len(events)
    for event in on_http:
        if event["type"] == "error":
            for flat in ("code", "message", "param"):
                del event[flat]
    assert list(map(without_ids, events)) == list(map(without_ids, on_http))


async def _asked(socket: Socket, body: JsonObject) -> list[JsonObject]:
    await socket.send({"type": "response.create", **body})
    return await socket.response()


@pytest.mark.promise("websocket.same-events")
@pytest.mark.parametrize("stream", [True, False, "yes"])
async def test_stream_may_have_any_value(bridge: Bridge, socket: Socket, stream: Json) -> None:
    bridge.says("hello")
    assert text_of(await socket.ask(stream=stream)) == "hello"


@pytest.mark.promise("websocket.same-events", "websocket.limits")
async def test_a_binary_message_is_read_as_json(bridge: Bridge, socket: Socket) -> None:
    bridge.says("hello")
    await socket.send(b'{"type": "response.create", "model": "gpt-5.5", "input": "hi"}')
    assert text_of(await socket.response()) == "hello"


@pytest.mark.promise("websocket.keepalive")
async def test_while_the_model_is_silent_the_response_is_told_to_be_in_progress(tmp_path: Path) -> None:
    gate = asyncio.Event()
    settings: dict[str, Any] = {"PROXY_SSE_KEEPALIVE_MS": 50, "PROXY_STREAM_HOLD_MS": 10}
    async with running_bridge(tmp_path, **settings) as bridge, connected(bridge.url) as socket:
        bridge.script(answer(Wait(gate=gate), message("hello")))
        await socket.create()
        repeated = [await socket.event() for _ in range(5)]
        assert [event["type"] for event in repeated] == ["response.created", *["response.in_progress"] * 4]
        gate.set()
        events = repeated + await socket.response()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


# Errors


@pytest.mark.promise("websocket.errors")
@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ("no JSON", (400, "invalid_json", None)),
        ("[]", (400, "invalid_json", None)),
        ({"type": "response.cancel"}, (400, "unsupported_event_type", "type")),
        ({}, (400, "unsupported_event_type", "type")),
        ({"type": "response.create", "stream_id": ""}, (400, "invalid_stream_id", "stream_id")),
        ({"type": "response.create", "stream_id": "a b"}, (400, "invalid_stream_id", "stream_id")),
        ({"type": "response.create", "model": MODEL}, (400, "missing_required_parameter", "input")),
        ({"type": "response.create", "model": "unknown", "input": "hi"}, (404, "model_not_found", "model")),
        (
            {"type": "response.create", "model": MODEL, "input": "hi", "background": True},
            (400, "unsupported_parameter", "background"),
        ),
        (
            {"type": "response.create", "model": MODEL, "input": "hi", "previous_response_id": "resp_nobody"},
            (400, "previous_response_not_found", "previous_response_id"),
        ),
    ],
    ids=[
        *("no JSON", "no object", "unknown type", "no type", "empty lane", "wrong lane", "no input", "unknown model"),
        *("background", "unknown response"),
    ],
)
async def test_a_message_that_cannot_be_served_is_an_error_and_the_connection_stays(
    bridge: Bridge, socket: Socket, sent: JsonObject | str, told: tuple[Json, Json, Json]
) -> None:
    bridge.says("hello")
    await socket.send(sent)
    events = await socket.response()
    assert error_of(events) == told
    assert "stream_id" not in events[0]
    assert bridge.model.requests == []
    assert text_of(await socket.ask()) == "hello"


@pytest.mark.promise("websocket.errors", "websocket.echo")
async def test_an_error_has_its_lane_and_a_request_id(bridge: Bridge, socket: Socket) -> None:
    bridge.script(error_reply(429, "Slow down."))
    (event,) = await socket.ask(stream_id="a")
    headers = {"retry-after": "5", "x-request-id": IsStr()}
    assert event == {
        "type": "error",
        "status": 429,
        "error": {
            "message": IsStr(),
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
            "headers": headers,
        },
        "headers": headers,
        "stream_id": "a",
    }


# Continuation


@pytest.mark.promise("websocket.memory")
async def test_a_response_that_is_not_stored_is_continued_on_its_connection_and_nowhere_else(
    bridge: Bridge, socket: Socket
) -> None:
    bridge.script(*(answer(message(text)) for text in ("one", "two", "three")))
    first = response_id(await socket.ask("a"))
    second = response_id(await socket.ask("b", previous_response_id=first))
    assert text_of(await socket.ask("c", previous_response_id=second, stream_id="fork")) == "three"
    assert shown(bridge) == [user("a"), assistant("one"), user("b"), assistant("two"), user("c")]
    not_found = (400, "previous_response_not_found", "previous_response_id")
    # It is the latest of no lane any more.
    assert error_of(await socket.ask("d", previous_response_id=first)) == not_found
    async with connected(bridge.url) as other:
        assert error_of(await other.ask("d", previous_response_id=second)) == not_found
    on_http = await bridge.http.post(
        "/v1/responses", json={"model": MODEL, "input": "d", "previous_response_id": second}
    )
    assert (on_http.status_code, on_http.json()["error"]["code"]) == (400, "previous_response_not_found")
    assert (await bridge.http.get(f"/v1/responses/{second}")).status_code == 404


@pytest.mark.promise("websocket.memory")
async def test_a_stored_response_is_continued_from_anywhere(bridge: Bridge, socket: Socket) -> None:
    bridge.script(*(answer(message(text)) for text in ("one", "two", "three")))
    first = await bridge.client.responses.create(model=MODEL, input="a")
    second = response_id(await socket.ask("b", previous_response_id=first.id, store=True))
    third = await bridge.client.responses.create(model=MODEL, input="c", previous_response_id=second)
    assert third.output_text == "three"
    assert shown(bridge) == [user("a"), assistant("one"), user("b"), assistant("two"), user("c")]


@pytest.mark.promise("websocket.memory")
async def test_what_was_not_stored_is_part_of_a_stored_response_that_continues_it(
    bridge: Bridge, socket: Socket
) -> None:
    bridge.script(*(answer(message(text)) for text in ("one", "two", "three")))
    first = response_id(await socket.ask("a"))
    second = response_id(await socket.ask("b", previous_response_id=first, store=True))
    await bridge.client.responses.create(model=MODEL, input="c", previous_response_id=second)
    assert shown(bridge) == [user("a"), assistant("one"), user("b"), assistant("two"), user("c")]


@pytest.mark.promise("websocket.memory")
async def test_another_key_does_not_find_it(tmp_path: Path) -> None:
    async with keeping_bridge(tmp_path) as bridge, connected(bridge.url) as socket:
        bridge.script(answer(message("one")), answer(message("two")))
        first = response_id(await socket.ask("a", store=True))
        async with connected(bridge.url, key=stranger(bridge).api_key) as other:
            assert error_of(await other.ask("b", previous_response_id=first))[1] == "previous_response_not_found"
            assert bridge.model.received == 1


@pytest.mark.promise("websocket.eviction")
async def test_a_failed_continuation_is_forgotten_in_its_own_lane(bridge: Bridge, socket: Socket) -> None:
    bridge.script(answer(message("one")), error_reply(400, "No."))
    first = response_id(await socket.ask("a", stream_id="a"))
    assert error_of(await socket.ask("b", previous_response_id=first, stream_id="a"))[0] == 400
    assert (
        error_of(await socket.ask("b", previous_response_id=first, stream_id="a"))[1] == "previous_response_not_found"
    )


@pytest.mark.promise("websocket.eviction")
async def test_a_failed_fork_is_not(bridge: Bridge, socket: Socket) -> None:
    bridge.script(answer(message("one")), error_reply(400, "No."), answer(message("two")))
    first = response_id(await socket.ask("a", stream_id="a"))
    assert error_of(await socket.ask("b", previous_response_id=first, stream_id="b"))[0] == 400
    assert text_of(await socket.ask("b", previous_response_id=first, stream_id="a")) == "two"


@pytest.mark.promise("websocket.eviction")
async def test_an_unrelated_failure_evicts_nothing(bridge: Bridge, socket: Socket) -> None:
    bridge.script(answer(message("one")), error_reply(400, "No."), answer(message("two")))
    first = response_id(await socket.ask("a"))
    assert error_of(await socket.ask("b"))[0] == 400
    assert text_of(await socket.ask("b", previous_response_id=first)) == "two"


@pytest.mark.promise("websocket.warm-up")
@pytest.mark.parametrize("store", [True, False])
async def test_a_warm_up_asks_nothing_of_the_model_and_can_be_continued(
    bridge: Bridge, socket: Socket, store: bool
) -> None:
    bridge.script(answer(message("hello")))
    warm = await socket.ask([{"role": "user", "content": "a"}], generate=False, store=store)
    assert [event["type"] for event in warm] == ["response.created", "response.in_progress", "response.completed"]
    response = response_of(warm)
    assert (response["status"], response["output"], response["usage"]["total_tokens"]) == ("completed", [], 0)
    assert bridge.model.requests == []
    assert text_of(await socket.ask("b", previous_response_id=response["id"], store=store)) == "hello"
    assert shown(bridge) == [user("a"), user("b")]


@pytest.mark.promise("websocket.warm-up")
async def test_a_warm_up_may_be_empty(bridge: Bridge, socket: Socket) -> None:
    bridge.script(answer(message("hello")))
    warm = response_id(await socket.ask([], generate=False))
    assert error_of(await socket.ask([], previous_response_id=warm))[2] == "input"
    warm = response_id(await socket.ask([], generate=False))
    assert text_of(await socket.ask("b", previous_response_id=warm)) == "hello"


@pytest.mark.promise("websocket.memory")
async def test_outputs_of_calls_resume_the_turn_that_waits_for_them(bridge: Bridge, socket: Socket) -> None:
    bridge.script(
        answer(function_call("get_weather", '{"city":"Rome"}', call_id="call_1")),
        answer(function_call("get_weather", '{"city":"Oslo"}', call_id="call_2")),
        answer(message("Warm and cold.")),
    )
    events = await socket.ask([HI], tools=[WEATHER])
    with structlog.testing.capture_logs() as logs:
        for call in ("call_1", "call_2"):
            output: JsonObject = {"type": "function_call_output", "call_id": call, "output": "20"}
            events = await socket.ask([output], tools=[WEATHER], previous_response_id=response_id(events))
        lines = await logged_requests(logs, 2)
    assert text_of(events) == "Warm and cold."
    assert [line["served_by"] for line in lines] == ["parked", "parked"]


# Life


@pytest.mark.promise("websocket.leaving")
async def test_a_client_that_leaves_interrupts_all_its_turns(bridge: Bridge) -> None:
    before = bridge.model.dropped
    bridge.script(*(begun(asyncio.Event()) for _ in range(3)))
    async with connected(bridge.url) as socket:
        for lane in "abc":
            await socket.create(stream_id=lane)
            await socket.until(is_delta)
        with structlog.testing.capture_logs() as logs:
            await socket.connection.close()
            async with asyncio.timeout(PATIENCE_S):
                await bridge.model.until(lambda model: model.dropped == before + 3)
            lines = await logged_requests(logs, 3)
    assert [line["outcome"] for line in lines] == ["client_gone"] * 3


@pytest.mark.promise("websocket.age")
async def test_an_old_connection_lets_running_responses_end_and_begins_no_other(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    bridge.script(begun(gate))
    monkeypatch.setattr(Connection, "age_s", 0.5)
    async with connected(bridge.url) as socket:
        await socket.create(stream_id="a")
        await socket.until(is_delta)
        while "response" in (refusal := await socket.ask(stream_id="b", generate=False))[-1]:
            pass  # It is not old enough.
        assert error_of(refusal) == (400, "websocket_connection_limit_reached", None)
        assert refusal[0]["stream_id"] == "b"
        gate.set()
        assert text_of(await socket.response()) == "Begun, done."
        assert await socket.closed() == 1001


@pytest.mark.promise("websocket.age")
async def test_an_old_connection_that_is_idle_is_closed(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "age_s", 0.05)
    monkeypatch.setattr(Connection, "retirement_s", 0.05)
    async with connected(bridge.url) as socket:
        assert await socket.closed() == 1001


@pytest.mark.promise("websocket.limits")
async def test_each_response_counts_for_the_rate_limit_and_is_logged(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_RATE_LIMIT="2/minute") as bridge, connected(bridge.url) as socket:
        bridge.script(answer(message("one")), answer(message("two")))
        with structlog.testing.capture_logs() as logs:
            assert [text_of(await socket.ask()) for _ in range(2)] == ["one", "two"]
            (refusal,) = await socket.ask()
            lines = await logged_requests(logs, 3)
        metrics = (await bridge.http.get("/metrics")).text
    counted = re.findall(
        r'^turnbridge_requests_total{.*route="/v1/responses",status_class="(.*)"} (.*)$', metrics, re.MULTILINE
    )
    # The connection itself is one, too; it has not ended for the log.
    assert counted == [("1xx", "1.0"), ("2xx", "2.0"), ("4xx", "1.0")]
    headers = refusal["headers"]
    assert isinstance(headers, dict)
    assert (refusal["status"], headers["x-ratelimit-remaining-requests"], "retry-after" in headers) == (429, "0", True)
    assert [(line["status"], line["stream"], line["model"]) for line in lines] == [
        (200, True, MODEL),
        (200, True, MODEL),
        (429, False, None),
    ]
    ids = [line["request_id"] for line in lines]
    assert len({each.rpartition("-")[0] for each in ids}) == 1
    assert len(set(ids)) == 3


@pytest.mark.promise("websocket.limits")
async def test_a_full_queue_refuses_a_response_and_the_connection_stays(tmp_path: Path) -> None:
    gate = asyncio.Event()
    settings: dict[str, Any] = {"PROXY_MAX_TURNS": 1, "PROXY_QUEUE_MAX": 0}
    async with running_bridge(tmp_path, **settings) as bridge, connected(bridge.url) as socket:
        bridge.script(begun(gate), answer(message("well")))
        await socket.create(stream_id="a")
        await socket.until(is_delta)
        assert error_of(await socket.ask(stream_id="b"))[:2] == (429, "queue_full")
        gate.set()
        assert text_of(await socket.response()) == "Begun, done."
        assert text_of(await socket.ask(stream_id="b")) == "well"


@pytest.mark.promise("websocket.bounds")
async def test_a_message_that_is_too_large_ends_the_connection(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_MAX_BODY_MB=1) as bridge:
        async with connected(bridge.url) as socket:
            await socket.send("x" * (2**20 + 1))
            assert await socket.closed() == 1009
        bridge.says("hello")
        async with connected(bridge.url) as socket:
            assert text_of(await socket.ask("x" * 500_000)) == "hello"


@pytest.mark.promise("websocket.handshake", "ingress.key")
async def test_the_keys_of_requests_are_those_of_the_handshake(bridge: Bridge, socket: Socket) -> None:
    bridge.says("hello")
    with structlog.testing.capture_logs() as logs:
        await socket.ask()
        (line,) = await logged_requests(logs, 1)
    assert line["client"] is not None
    assert API_KEY not in str(logs)


@pytest.mark.promise("websocket.limits", "trace.attribution")
async def test_the_wire_trace_has_each_response_as_a_request(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_LOG_PROTO=True) as bridge, connected(bridge.url) as socket:
        bridge.says("hello")
        with structlog.testing.capture_logs() as logs:
            await socket.ask()
            (line,) = await logged_requests(logs, 1)
    lines = [json.loads(each) for each in (tmp_path / "trace" / "wire.ndjson").read_text("utf-8").splitlines()]
    own = [each for each in lines if each.get("request_id") == line["request_id"]]
    assert (own[0]["method"], own[0]["payload"]["body"]["type"]) == ("POST /v1/responses", "response.create")
    assert [each["method"] for each in own if each["kind"] == "sse"][-1] == "response.completed"
    assert any(each["phase"] not in ("http_ingress", "client_egress") for each in own)
