"""Responses that are made in the background: polled, streamed, resumed, cancelled, and ended with their gateway."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent

from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.state_clients import (
    MODEL,
    assistant,
    keeping_bridge,
    respond,
    shown,
    stranger,
    told,
    user,
)
from turnbridge.api.responses import background, endings
from turnbridge.engine.records import KeptItem, ResponseRecord
from turnbridge.scripted_model.replies import (
    Reply,
    Wait,
    answer,
    error_reply,
    message,
    reasoning,
)
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import SqlStore, open_store
from turnbridge.turn.items import JsonObject
from turnbridge.web.middleware.keyring import client_with

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PATIENCE_S = 25
"""Far longer than anything here takes; less than the test's own limit, so that a failure names its place."""

WHOLE = [
    *("created", "queued", "in_progress", "output_item.added", "content_part.added"),
    *("output_text.delta", "output_text.delta", "output_text.done", "content_part.done", "output_item.done"),
    "completed",
]
"""The stream of an answer in two pieces."""


@pytest.fixture
def gate() -> asyncio.Event:
    """Return what the model waits for in the middle of its answer."""
    return asyncio.Event()


def halting(gate: asyncio.Event) -> Reply:
    """Return an answer that stops halfway until the gate is open."""
    return answer(message("one two", pieces=["one ", Wait(gate=gate), "two"]))


async def begin(bridge: Bridge, **options: object) -> Response:
    """Start a response in the background."""
    wanted: dict[str, Any] = {"model": MODEL, "input": "hi", "background": True, **options}
    response: Response = await bridge.client.responses.create(**wanted)
    return response


async def ended(bridge: Bridge, response_id: str) -> Response:
    """Poll until a response has ended, as clients do."""
    async with asyncio.timeout(PATIENCE_S):
        while (response := await bridge.client.responses.retrieve(response_id)).status in ("queued", "in_progress"):
            pass
    return response


def names(events: list[ResponseStreamEvent]) -> list[str]:
    return [event.type.removeprefix("response.") for event in events]


def numbers(events: list[ResponseStreamEvent]) -> list[int]:
    return [event.sequence_number for event in events]


async def stream_of(bridge: Bridge, response_id: str, **options: Any) -> list[ResponseStreamEvent]:
    """Read a response's stream to its end."""
    async with asyncio.timeout(PATIENCE_S):
        stream = await bridge.client.responses.retrieve(response_id, stream=True, **options)
        return [event async for event in stream]


async def halfway(stream: openai.AsyncStream[ResponseStreamEvent]) -> list[ResponseStreamEvent]:
    """Read a stream up to the first piece of text."""
    events: list[ResponseStreamEvent] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta":
                break
    return events


@pytest.mark.promise("state.background.polled")
async def test_a_response_is_made_while_nobody_waits_and_found_by_polling(bridge: Bridge, gate: asyncio.Event) -> None:
    bridge.script(halting(gate))
    begun = await begin(bridge)
    assert (begun.status, begun.background, begun.output) == ("queued", True, [])
    await bridge.model.until(lambda model: model.active == 1)
    running = await bridge.client.responses.retrieve(begun.id)
    assert (running.status, running.id) == ("in_progress", begun.id)
    gate.set()
    done = await ended(bridge, begun.id)
    assert (done.status, done.output_text) == ("completed", "one two")
    assert done.usage is not None
    assert done.usage.total_tokens == 15


@pytest.mark.promise("state.background.polled")
async def test_it_is_continued_like_any_other(bridge: Bridge) -> None:
    bridge.script(answer(message("one")), answer(message("two")))
    first, _ = await respond(bridge, "first")
    second = await ended(bridge, (await begin(bridge, input="second", previous_response_id=first.id)).id)
    bridge.script(answer(message("three")))
    await respond(bridge, "third", previous_response_id=second.id)
    assert shown(bridge) == [user("first"), assistant("one"), user("second"), assistant("two"), user("third")]
    listed = (await bridge.client.responses.input_items.list(second.id)).data
    assert len(listed) == 3


@pytest.mark.promise("state.background.polled")
@pytest.mark.parametrize("streamed", [False, True], ids=["polled", "streamed"])
async def test_whoever_hears_of_its_end_can_continue_it_at_once(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    keeping, may_keep = asyncio.Event(), asyncio.Event()
    finish = SqlStore.finish_response

    async def finish_response(store: SqlStore, record: ResponseRecord, **ending: Any) -> bool:
        keeping.set()
        await may_keep.wait()
        return await finish(store, record, **ending)

    monkeypatch.setattr(SqlStore, "finish_response", finish_response)
    bridge.script(answer(message("one")), answer(message("two")))
    begun = await begin(bridge)

    async def hear_of_its_end() -> None:
        if not streamed:
            await ended(bridge, begun.id)
            return
        stream: Any = await bridge.client.responses.retrieve(begun.id, stream=True)
        while (await anext(stream)).type != "response.completed":
            pass
        await stream.close()

    async with asyncio.timeout(PATIENCE_S):
        await keeping.wait()
        hearing = asyncio.ensure_future(hear_of_its_end())
        # Whatever the gateway would tell has been heard by then.
        for _ in range(5):
            await bridge.http.get("/healthz")
        heard_too_early = hearing.done()
        may_keep.set()
        await hearing
    assert not heard_too_early
    await respond(bridge, "and?", previous_response_id=begun.id)
    assert shown(bridge) == [user("hi"), assistant("one"), user("and?")]


@pytest.mark.promise("state.include", "state.background.polled")
async def test_its_encrypted_reasoning_is_kept(bridge: Bridge) -> None:
    bridge.script(answer(reasoning(["Hm."], encrypted="E1"), message("one")))
    done = await ended(bridge, (await begin(bridge)).id)
    asked = await bridge.client.responses.retrieve(done.id, include=["reasoning.encrypted_content"])
    assert [getattr(each.output[0], "encrypted_content", None) for each in (done, asked)] == [None, "E1"]


@pytest.mark.promise("state.background.streamed")
async def test_it_is_streamed_to_whoever_starts_it(bridge: Bridge) -> None:
    bridge.script(answer(message("one two", pieces=["one ", "two"])))
    stream: Any = await begin(bridge, stream=True)
    events = [event async for event in stream]
    assert (names(events), numbers(events)) == (WHOLE, list(range(11)))
    assert events[-1].response.output_text == "one two"
    done = await bridge.client.responses.retrieve(events[-1].response.id)
    assert done.to_dict() == events[-1].response.to_dict()


@pytest.mark.promise("state.background.streamed")
@pytest.mark.parametrize("after", [None, 0, 4, 9, 10, 99])
async def test_its_stream_can_be_read_again_from_any_event_on(bridge: Bridge, after: int | None) -> None:
    bridge.script(answer(message("one two", pieces=["one ", "two"])))
    done = await ended(bridge, (await begin(bridge)).id)
    events = await stream_of(bridge, done.id, **({} if after is None else {"starting_after": after}))
    rest = range(0 if after is None else after + 1, 11)
    assert (names(events), numbers(events)) == ([WHOLE[n] for n in rest], list(rest))


@pytest.mark.promise("state.background.streamed")
async def test_a_stream_that_broke_off_goes_on_over_another_connection(bridge: Bridge, gate: asyncio.Event) -> None:
    bridge.script(halting(gate))
    stream: Any = await begin(bridge, stream=True)
    events = await halfway(stream)
    await stream.close()
    # The client has left, and the response is made all the same.
    first: Any = events[0]
    other = await bridge.client.responses.retrieve(
        first.response.id, stream=True, starting_after=events[-1].sequence_number
    )
    gate.set()
    async with asyncio.timeout(PATIENCE_S):
        events += [event async for event in other]
    assert (names(events), numbers(events)) == (WHOLE, list(range(11)))
    assert (await ended(bridge, first.response.id)).output_text == "one two"


@pytest.mark.promise("state.background.streamed")
async def test_several_readers_read_the_same(bridge: Bridge, gate: asyncio.Event) -> None:
    bridge.script(halting(gate))
    begun = await begin(bridge)
    readers = [asyncio.ensure_future(stream_of(bridge, begun.id)) for _ in range(3)]
    await bridge.model.until(lambda model: model.active == 1)
    late = asyncio.ensure_future(stream_of(bridge, begun.id, starting_after=2))
    gate.set()
    for events in await asyncio.gather(*readers):
        assert (names(events), numbers(events)) == (WHOLE, list(range(11)))
    assert names(await late) == WHOLE[3:]


@pytest.mark.promise("state.background.cancelled")
async def test_it_is_cancelled_as_often_as_one_likes(bridge: Bridge, gate: asyncio.Event) -> None:
    before = bridge.model.dropped
    bridge.script(halting(gate))
    stream: Any = await begin(bridge, stream=True)
    events = await halfway(stream)
    first: Any = events[0]
    response_id = first.response.id
    cancelled = await bridge.client.responses.cancel(response_id)
    assert (cancelled.status, cancelled.output_text) == ("cancelled", "one ")
    async with asyncio.timeout(PATIENCE_S):
        events += [event async for event in stream]
        await bridge.model.until(lambda model: model.dropped == before + 1)
    assert names(events)[-1] == "incomplete"
    assert numbers(events) == list(range(len(events)))
    again = [await bridge.client.responses.cancel(response_id), await bridge.client.responses.retrieve(response_id)]
    assert [each.to_dict() for each in again] == [cancelled.to_dict()] * 2
    assert names(await stream_of(bridge, response_id)) == names(events)


@pytest.mark.promise("state.background.cancelled")
async def test_one_that_has_ended_is_not_changed_by_a_cancel(bridge: Bridge) -> None:
    bridge.says("one")
    done = await ended(bridge, (await begin(bridge)).id)
    assert (await bridge.client.responses.cancel(done.id)).to_dict() == done.to_dict()


@pytest.mark.promise("state.background.cancelled")
async def test_what_was_cancelled_leaves_nothing_half_in_a_history(bridge: Bridge, gate: asyncio.Event) -> None:
    bridge.script(halting(gate), answer(message("three")))
    stream: Any = await begin(bridge, stream=True)
    first: Any = (await halfway(stream))[0]
    await bridge.client.responses.cancel(first.response.id)
    await stream.close()
    await respond(bridge, "go on", previous_response_id=first.response.id)
    assert shown(bridge) == [user("hi"), user("go on")]


@pytest.mark.promise("state.background.polled")
async def test_one_that_still_runs_cannot_be_continued(bridge: Bridge, gate: asyncio.Event) -> None:
    bridge.script(halting(gate))
    begun = await begin(bridge)
    with pytest.raises(openai.BadRequestError, match="still being made") as caught:
        await respond(bridge, "go on", previous_response_id=begun.id)
    assert told(caught.value) == (400, "previous_response_in_progress", "previous_response_id")
    gate.set()
    await ended(bridge, begun.id)


@pytest.mark.promise("state.background.cancelled")
async def test_one_that_is_deleted_while_it_runs_is_ended_and_gone(bridge: Bridge, gate: asyncio.Event) -> None:
    before = bridge.model.dropped
    bridge.script(halting(gate))
    stream: Any = await begin(bridge, stream=True)
    events = await halfway(stream)
    first: Any = events[0]
    await bridge.client.responses.delete(first.response.id)
    async with asyncio.timeout(PATIENCE_S):
        rest = [event async for event in stream]
        await bridge.model.until(lambda model: model.dropped == before + 1)
    assert names(rest)[-1] == "incomplete"
    with pytest.raises(openai.NotFoundError):
        await bridge.client.responses.retrieve(first.response.id)


@pytest.mark.promise("state.background.polled")
async def test_a_turn_that_fails_is_kept_as_failed(bridge: Bridge) -> None:
    bridge.script(error_reply(429, "Too fast."))
    done = await ended(bridge, (await begin(bridge)).id)
    assert done.error is not None
    assert (done.status, done.error.code) == ("failed", "rate_limit_exceeded")
    with pytest.raises(openai.APIError) as raised:
        await stream_of(bridge, done.id)
    assert raised.value.code == "rate_limit_exceeded"


@pytest.mark.promise("state.background.polled", "state.errors")
async def test_a_request_that_cannot_be_served_is_refused_at_once(bridge: Bridge) -> None:
    bridge.script()
    with pytest.raises(openai.NotFoundError) as caught:
        await begin(bridge, model="no-such-model")
    assert told(caught.value) == (404, "model_not_found", "model")


@pytest.mark.promise("state.keys")
async def test_only_its_own_key_reads_or_cancels_it(tmp_path: Path, gate: asyncio.Event) -> None:
    async with keeping_bridge(tmp_path) as bridge:
        bridge.script(halting(gate))
        begun = await begin(bridge)
        await bridge.model.until(lambda model: model.active == 1)
        theirs = stranger(bridge).responses
        for call in (
            theirs.retrieve(begun.id),
            theirs.retrieve(begun.id, stream=True),
            theirs.cancel(begun.id),
            theirs.delete(begun.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        gate.set()
        assert (await ended(bridge, begun.id)).status == "completed"


@pytest.fixture(scope="module")
async def narrow(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that runs one turn at a time, and keeps silent for no longer than a moment."""
    del anyio_backend
    async with running_bridge(
        tmp_path_factory.mktemp("narrow"), PROXY_MAX_TURNS=1, PROXY_SSE_KEEPALIVE_MS=50
    ) as running:
        yield running


@pytest.mark.promise("state.background.cancelled")
async def test_those_that_wait_for_their_turn_are_queued_and_may_be_cancelled(
    narrow: Bridge, gate: asyncio.Event
) -> None:
    narrow.script(halting(gate), answer(message("later")))
    running, waiting, unwanted = [await begin(narrow) for _ in range(3)]
    await narrow.model.until(lambda model: model.active == 1)
    assert (await narrow.client.responses.retrieve(waiting.id)).status == "queued"
    assert (await narrow.client.responses.cancel(unwanted.id)).status == "cancelled"
    gate.set()
    assert [(await ended(narrow, each.id)).output_text for each in (running, waiting)] == ["one two", "later"]
    assert len(narrow.model.requests) == 2


@pytest.mark.promise("limits.keepalive", "state.background.streamed")
async def test_a_stream_that_is_silent_says_that_it_is_alive(narrow: Bridge, gate: asyncio.Event) -> None:
    narrow.script(halting(gate))
    begun = await begin(narrow)
    heard = ""
    async with (
        asyncio.timeout(PATIENCE_S),
        narrow.http.stream("GET", f"/v1/responses/{begun.id}?stream=true") as response,
    ):
        async for text in response.aiter_text():
            heard += text
            if ": keepalive\n\n" in heard:
                gate.set()
    assert "event: response.completed" in heard
    # Keepalives are comments here: events are numbered, and a reader elsewhere must be told the same ones.
    assert heard.count("event: ") == len(WHOLE)


@pytest.mark.promise("limits.keepalive.off")
@pytest.mark.parametrize(
    ("headers", "query"), [({"x-no-keepalive": "1"}, ""), ({}, "?no_keepalive=1")], ids=["header", "query"]
)
async def test_a_reader_that_wants_no_signs_of_life_gets_none(
    narrow: Bridge, gate: asyncio.Event, headers: dict[str, str], query: str
) -> None:
    narrow.script(halting(gate))
    asked: JsonObject = {"model": MODEL, "input": "hi", "background": True, "stream": True}
    async with (
        asyncio.timeout(PATIENCE_S),
        narrow.http.stream("POST", f"/v1/responses{query}", json=asked, headers=headers) as silent,
    ):
        lines = silent.aiter_lines()
        created = await anext(line async for line in lines if line.startswith("data: "))
        path = f"/v1/responses/{json.loads(created.removeprefix('data: '))['response']['id']}"
        async with narrow.http.stream("GET", path, params={"stream": "true"}) as usual:
            usual_lines = usual.aiter_lines()
            for _ in range(2):
                await anext(line async for line in usual_lines if line == ": keepalive")
        gate.set()
        heard = [line async for line in lines]
    assert "event: response.completed" in heard
    assert ": keepalive" not in heard


@pytest.mark.promise("state.background.lost")
async def test_those_that_run_when_the_gateway_is_stopped_have_failed_and_say_why(
    tmp_path: Path, gate: asyncio.Event
) -> None:
    async with running_bridge(tmp_path) as bridge:
        bridge.script(halting(gate))
        begun = await begin(bridge)
        await bridge.model.until(lambda model: model.active == 1)
        await bridge.gateway.drain(0)
    async with running_bridge(tmp_path) as bridge:
        done = await bridge.client.responses.retrieve(begun.id)
        assert done.error is not None
        assert (done.status, done.error.code) == ("failed", "server_error")
        assert done.error.message == "The gateway is shutting down."
        with pytest.raises(openai.APIError) as raised:
            await stream_of(bridge, begun.id)
        assert raised.value.code == "shutting_down"


@pytest.mark.promise("faults.drain", "state.background.polled")
async def test_those_that_end_while_the_gateway_drains_are_whole(tmp_path: Path, gate: asyncio.Event) -> None:
    async with running_bridge(tmp_path) as bridge:
        bridge.script(halting(gate))
        begun = await begin(bridge)
        await bridge.model.until(lambda model: model.active == 1)
        draining = asyncio.ensure_future(bridge.gateway.drain(PATIENCE_S))
        gate.set()
        await draining
        assert (await bridge.client.responses.retrieve(begun.id)).output_text == "one two"


def left_behind(response_id: str, body: JsonObject) -> ResponseRecord:
    """Return what a gateway that was killed leaves of a response."""
    left: JsonObject = {**body, "id": response_id, "status": "in_progress", "output": []}
    return ResponseRecord(
        id=response_id,
        owner=client_with(API_KEY.encode()).id,
        created_at=1,
        status="in_progress",
        background=True,
        body=left,
    )


@pytest.mark.promise("state.background.lost")
async def test_those_of_a_gateway_that_is_gone_have_failed_once_their_lease_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "RENEWAL_S", 0.05)
    monkeypatch.setattr(background, "GRACE_S", 0.2)
    async with running_bridge(tmp_path) as bridge:
        bridge.says("one")
        made, _ = await respond(bridge, "hi")
    body: JsonObject = made.to_dict()  # type: ignore[assignment]
    store = await open_store(store_url(tmp_path))
    asked = [KeptItem(id="msg_left", body={"role": "user", "content": "hi"})]
    for name, lease_s in (("resp_lost", -1), ("resp_elsewhere", 600)):
        await store.add_response(left_behind(name, body), continues=None, inputs=asked, lease_s=lease_s)
    await store.aclose()
    async with running_bridge(tmp_path) as bridge:
        lost = await ended(bridge, "resp_lost")
        assert lost.error is not None
        assert (lost.status, lost.error.code, lost.error.message) == ("failed", "server_error", endings.LOST)
        with pytest.raises(openai.APIError, match=endings.LOST):
            await stream_of(bridge, lost.id)
        bridge.script(answer(message("two")))
        await respond(bridge, "again", previous_response_id=lost.id)
        assert shown(bridge) == [user("hi"), user("again")]
        elsewhere = await bridge.client.responses.retrieve("resp_elsewhere")
        assert elsewhere.status == "in_progress"
        with pytest.raises(openai.BadRequestError, match="another gateway") as caught:
            await bridge.client.responses.retrieve(elsewhere.id, stream=True)
        assert told(caught.value) == (400, "made_elsewhere", "stream")


@pytest.mark.promise("state.background.cancelled", "state.background.streamed")
async def test_one_that_another_gateway_makes_is_read_and_cancelled_through_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: asyncio.Event
) -> None:
    monkeypatch.setattr(background, "RENEWAL_S", 0.05)
    shared = store_url(tmp_path)
    async with (
        running_bridge(tmp_path / "one", PROXY_DATABASE_URL=shared) as one,
        running_bridge(tmp_path / "two", PROXY_DATABASE_URL=shared) as two,
    ):
        one.script(halting(gate))
        begun = await begin(one)
        await one.model.until(lambda model: model.active == 1)
        assert (await two.client.responses.retrieve(begun.id)).status == "queued"
        assert (await two.client.responses.cancel(begun.id)).status == "cancelled"
        async with asyncio.timeout(PATIENCE_S):
            await one.model.until(lambda model: model.dropped == 1)
        assert (await ended(one, begun.id)).status == "cancelled"
        assert [event.type for event in await stream_of(two, begun.id)] == ["response.incomplete"]
