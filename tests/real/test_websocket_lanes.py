"""Lanes of a WebSocket on the real Codex: order, concurrency, limits, and no lane in another's stream."""

import asyncio
import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.gateway import Bridge
from tests.support.sockets import connected, error_of, text_of
from turnbridge.api.responses.lanes import MOST_NAMED, MOST_RUNNING
from turnbridge.scripted_model.replies import Reply, Wait, answer, message
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def asked(request: JsonObject) -> str:
    """Return the last text of a request."""
    items = request["input"]
    assert isinstance(items, list)
    return str(json.loads(json.dumps(items[-1]))["content"][0]["text"])


def lane_of(event: JsonObject) -> Json:
    return event.get("stream_id")


@pytest.mark.promise("websocket.lanes", "websocket.echo")
async def test_one_lane_is_served_in_order_and_without_overlap(bridge: Bridge) -> None:
    bridge.model.respond = lambda request: answer(message(asked(request), pieces=list(asked(request))))
    async with connected(bridge.url) as socket:
        for number in range(4):
            await socket.create(f"number {number}", stream_id="a")
        texts = [text_of(await socket.response()) for _ in range(4)]
    assert texts == [f"number {number}" for number in range(4)]
    assert {lane_of(event) for event in socket.seen} == {"a"}
    numbers = [event["sequence_number"] for event in socket.seen]
    # Each response counts from 0, and none begins before the one before has ended.
    assert [number for number in numbers if number == 0] == [0] * 4
    pairs = itertools.pairwise(map(int, map(str, numbers)))
    assert all(after in (0, before + 1) for before, after in pairs)


@pytest.mark.promise("websocket.lanes", "websocket.echo")
async def test_lanes_do_not_wait_for_one_another(bridge: Bridge) -> None:
    gate = asyncio.Event()

    def respond(request: JsonObject) -> Reply:
        if asked(request) == "slow":
            return answer(message("", pieces=["Begun", Wait(gate=gate), ", done."]))
        return answer(message("quick"))

    bridge.model.respond = respond
    async with connected(bridge.url) as socket:
        await socket.create("slow")
        await socket.until(lambda event: event["type"] == "response.output_text.delta")
        await socket.create("behind")
        assert text_of(await socket.ask("beside", stream_id="a")) == "quick"
        gate.set()
        assert text_of(await socket.response()) == "Begun, done."
        assert text_of(await socket.response()) == "quick"
    assert all(("stream_id" in event) == (lane_of(event) == "a") for event in socket.seen)


@pytest.mark.promise("websocket.lane-limits")
async def test_the_seventeenth_response_waits(bridge: Bridge) -> None:
    gates = {str(number): asyncio.Event() for number in range(MOST_RUNNING + 1)}
    before = bridge.model.received

    def respond(request: JsonObject) -> Reply:
        return answer(message(asked(request), pieces=[asked(request), Wait(gate=gates[asked(request)])]))

    bridge.model.respond = respond
    async with connected(bridge.url) as socket:
        for name in gates:
            await socket.create(name, stream_id=name)
        begun = [
            (await socket.until(lambda event: event["type"] == "response.output_text.delta"))[-1]["stream_id"]
            for _ in range(MOST_RUNNING)
        ]
        assert set(begun) == set(list(gates)[:MOST_RUNNING])
        assert bridge.model.received == before + MOST_RUNNING
        for gate in gates.values():
            gate.set()
        lanes = await socket.responses(MOST_RUNNING + 1)
    assert {lane: text_of(events) for lane, events in lanes.items()} == {name: name for name in gates}


@pytest.mark.promise("websocket.lane-limits", "websocket.echo")
async def test_the_thirty_third_name_is_refused_with_its_name(bridge: Bridge) -> None:
    bridge.model.respond = lambda request: answer(message(asked(request)))
    async with connected(bridge.url) as socket:
        for number in range(MOST_NAMED):
            await socket.create("hi", stream_id=f"lane-{number}", generate=False)
        assert len(await socket.responses(MOST_NAMED)) == MOST_NAMED
        refusal = await socket.ask("hi", stream_id="one-more")
        assert error_of(refusal) == (400, "websocket_stream_limit_reached", "stream_id")
        assert lane_of(refusal[0]) == "one-more"
        assert text_of(await socket.ask("default")) == "default"
        assert text_of(await socket.ask("known", stream_id="lane-3")) == "known"


PIECES = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4)
REQUESTS = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), PIECES), min_size=1, max_size=8)


@pytest.mark.promise("websocket.lanes", "websocket.same-events")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=REQUESTS)
async def test_in_any_interleaving_each_lane_has_the_stream_that_it_has_alone(
    bridge: Bridge, requests: list[tuple[str | None, list[str]]]
) -> None:
    bridge.model.respond = lambda request: answer(message("", pieces=json.loads(asked(request))))
    lanes = {lane: [pieces for own, pieces in requests if own == lane] for lane, _ in requests}
    async with connected(bridge.url) as together:
        for lane, pieces in requests:
            await together.create(json.dumps(pieces), **({} if lane is None else {"stream_id": lane}))
        ended = 0
        while ended < len(requests):
            ended += (await together.event())["type"] == "response.completed"
    for lane, asked_for in lanes.items():
        async with connected(bridge.url) as alone:
            for pieces in asked_for:
                await alone.ask(json.dumps(pieces), **({} if lane is None else {"stream_id": lane}))
        mixed = [event for event in together.seen if lane_of(event) == lane]
        assert list(map(outline, mixed)) == list(map(outline, alone.seen))


def outline(event: JsonObject) -> tuple[Json, ...]:
    """Return what of an event does not depend on the moment; deltas of one message may be joined differently."""
    return event["type"], event.get("sequence_number"), event.get("delta"), event.get("text"), event.get("stream_id")
