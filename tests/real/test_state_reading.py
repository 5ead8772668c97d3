"""Responses that are kept: read again, listed, deleted, by their own key only; and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseItem

from tests.api.shared.official import unknown_fields
from tests.support.gateway import Bridge
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
from turnbridge.scripted_model.replies import (
    Hangup,
    StreamReply,
    Wait,
    answer,
    created,
    error_reply,
    message,
    reasoning,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ENCRYPTED: Any = ["reasoning.encrypted_content"]


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that two keys use."""
    del anyio_backend
    async with keeping_bridge(tmp_path_factory.mktemp("shared"), PROXY_WARM_THREADS_MAX=64) as running:
        yield running


@pytest.mark.promise("state.stored", "state.sdks")
async def test_a_response_is_kept_by_default_and_read_again_as_it_was(bridge: Bridge) -> None:
    bridge.script(answer(reasoning(["Hm."], encrypted="E1"), message("one")))
    made = await bridge.client.responses.create(model=MODEL, input="first", metadata={"ticket": "42"})
    again = await bridge.client.responses.retrieve(made.id)
    assert again.to_dict() == made.to_dict()
    assert (again.metadata, again.to_dict()["store"]) == ({"ticket": "42"}, True)
    assert unknown_fields(Response, (await bridge.http.get(f"/v1/responses/{made.id}")).json()) == {
        *("store", "frequency_penalty", "presence_penalty")
    }


@pytest.mark.promise("state.stored")
async def test_a_streamed_response_is_read_again_as_its_last_event_told_it(bridge: Bridge) -> None:
    bridge.script(answer(message("one", pieces=["o", "ne"])))
    events = [event async for event in await bridge.client.responses.create(model=MODEL, input="first", stream=True)]
    last: Any = events[-1]
    again = await bridge.client.responses.retrieve(last.response.id)
    assert (again.output_text, again.to_dict()) == ("one", last.response.to_dict())


@pytest.mark.promise("state.include")
async def test_encrypted_reasoning_is_shown_again_only_to_those_who_ask(bridge: Bridge) -> None:
    bridge.script(answer(reasoning(["Hm."], encrypted="E1"), message("one")), answer(message("two")))
    made, _ = await respond(bridge, "first")
    plain = await bridge.client.responses.retrieve(made.id)
    asked = await bridge.client.responses.retrieve(made.id, include=ENCRYPTED)
    assert [getattr(each.output[0], "encrypted_content", None) for each in (made, plain, asked)] == [None, None, "E1"]
    after, _ = await respond(bridge, "second", previous_response_id=made.id)
    items = bridge.client.responses.input_items
    listed = [await items.list(after.id, order="asc"), await items.list(after.id, order="asc", include=ENCRYPTED)]
    assert [getattr(each.data[1], "encrypted_content", None) for each in listed] == [None, "E1"]


def text_of(item: ResponseItem) -> str:
    content: Any = getattr(item, "content", None)
    return str(content[0].text)


@pytest.mark.promise("state.input-items")
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_what_a_response_was_made_from_is_listed_page_by_page(bridge: Bridge, order: Any) -> None:
    bridge.script(*(answer(message(f"answer {n}")) for n in range(3)))
    response, _ = await respond(bridge, "question 0")
    for n in (1, 2):
        response, _ = await respond(bridge, f"question {n}", previous_response_id=response.id)
    told_so_far = ["question 0", "answer 0", "question 1", "answer 1", "question 2"]
    expected = told_so_far if order == "asc" else told_so_far[::-1]
    items = bridge.client.responses.input_items
    first = await items.list(response.id, order=order, limit=2)
    assert ([text_of(item) for item in first.data], first.has_more) == (expected[:2], True)
    everything = [item async for item in items.list(response.id, order=order, limit=2)]
    assert [text_of(item) for item in everything] == expected
    assert len({item.id for item in everything}) == len(expected)
    usual = await items.list(response.id)
    assert ([text_of(item) for item in usual.data], usual.has_more) == (told_so_far[::-1], False)


@pytest.mark.promise("state.deleted")
async def test_a_deleted_response_is_gone_and_those_after_it_stay(bridge: Bridge) -> None:
    bridge.script(answer(message("one")), answer(message("two")), answer(message("three")))
    first, _ = await respond(bridge, "first")
    second, _ = await respond(bridge, "second", previous_response_id=first.id)
    deleted = await bridge.http.delete(f"/v1/responses/{first.id}")
    assert deleted.json() == {"id": first.id, "object": "response", "deleted": True}
    responses = bridge.client.responses
    for call in (
        responses.retrieve(first.id),
        responses.delete(first.id),
        responses.input_items.list(first.id),
        responses.cancel(first.id),
    ):
        with pytest.raises(openai.NotFoundError, match=f"Response with id '{first.id}' not found") as caught:
            await call
        assert told(caught.value) == (404, "not_found", "response_id")
    with pytest.raises(openai.BadRequestError, match=f"Previous response with id '{first.id}' not found"):
        await respond(bridge, "x", previous_response_id=first.id)
    await respond(bridge, "third", previous_response_id=second.id)
    assert shown(bridge) == [user("first"), assistant("one"), user("second"), assistant("two"), user("third")]


@pytest.mark.promise("state.keys")
async def test_another_key_finds_nothing(shared: Bridge) -> None:
    shared.script(answer(reasoning(["Hm."], encrypted="E1"), message("one"), key="mine"), answer(message("two")))
    mine, _ = await respond(shared, "first")
    theirs = stranger(shared).responses
    for call in (
        theirs.retrieve(mine.id),
        theirs.retrieve(mine.id, stream=True),
        theirs.delete(mine.id),
        theirs.cancel(mine.id),
        theirs.input_items.list(mine.id),
    ):
        with pytest.raises(openai.NotFoundError, match=f"Response with id '{mine.id}' not found") as caught:
            await call
        assert told(caught.value) == (404, "not_found", "response_id")
    with pytest.raises(openai.BadRequestError, match=f"Previous response with id '{mine.id}' not found") as bad:
        await theirs.create(model=MODEL, input="x", previous_response_id=mine.id)
    assert told(bad.value) == (400, "previous_response_not_found", "previous_response_id")
    reference: Any = {"type": "item_reference", "id": mine.output[1].id}
    with pytest.raises(openai.NotFoundError) as caught:
        await theirs.create(model=MODEL, input=[reference])
    assert told(caught.value) == (404, "item_not_found", "input[0]")
    # A thought of somebody else's is not filled in either.
    back: Any = [mine.output[0].to_dict(), {"role": "user", "content": "x"}]
    await theirs.create(model=MODEL, input=back)
    assert "E1" not in str(shown(shared))
    assert (await shared.client.responses.retrieve(mine.id)).output_text == "one"


REFUSED: dict[str, tuple[JsonObject, tuple[int, str, str]]] = {
    "no such response": (
        {"previous_response_id": "resp_none"},
        (400, "previous_response_not_found", "previous_response_id"),
    ),
    "no such conversation": ({"conversation": "conv_none"}, (404, "not_found", "conversation")),
    "no such conversation, as an object": ({"conversation": {"id": "conv_none"}}, (404, "not_found", "conversation")),
    "a conversation without an id": ({"conversation": {}}, (400, "missing_required_parameter", "conversation.id")),
    "both": (
        {"previous_response_id": "resp_1", "conversation": "conv_1"},
        (400, "mutually_exclusive_parameters", "conversation"),
    ),
    "no such item": ({"input": [{"type": "item_reference", "id": "msg_none"}]}, (404, "item_not_found", "input[0]")),
    "in the background, not kept": ({"background": True, "store": False}, (400, "invalid_value", "store")),
    "not a truth value": ({"store": "yes"}, (400, "invalid_type", "store")),
    "an id that is none": ({"previous_response_id": 7}, (400, "invalid_type", "previous_response_id")),
    "an id of odd characters": (
        {"previous_response_id": "résp\u0000\n'; --"},
        (400, "previous_response_not_found", "previous_response_id"),
    ),
}


@pytest.mark.promise("state.errors")
@pytest.mark.parametrize(("fields", "expected"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_continued_is_refused_before_the_model_is_asked(
    bridge: Bridge, fields: JsonObject, expected: tuple[int, str, str]
) -> None:
    bridge.script()
    response = await bridge.http.post("/v1/responses", json={"model": MODEL, "input": "hi", **fields})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == expected
    assert error["type"] == "invalid_request_error"
    assert bridge.model.requests == []


MANY_NINES = "9" * 5000


@pytest.mark.promise("state.input-items")
@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        (f"limit={MANY_NINES}", "limit"),
        ("order=up", "order"),
        ("after=msg_none", "after"),
    ],
    ids=["too few", "too many", "endless", "no order", "after nothing"],
)
async def test_a_page_that_cannot_be_is_refused(bridge: Bridge, query: str, param: str) -> None:
    bridge.says("one")
    made, _ = await respond(bridge, "first")
    response = await bridge.http.get(f"/v1/responses/{made.id}/input_items?{query}")
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_value", param)


@pytest.mark.promise("state.background.streamed")
@pytest.mark.parametrize("after", ["-1", "x", MANY_NINES], ids=["negative", "no number", "endless"])
async def test_the_number_of_an_event_is_a_number(bridge: Bridge, after: str) -> None:
    response = await bridge.http.get(f"/v1/responses/resp_1?stream=true&starting_after={after}")
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_value", "starting_after")


@pytest.mark.promise("state.background.streamed")
async def test_only_responses_made_in_the_background_are_streamed_again_or_cancelled(bridge: Bridge) -> None:
    bridge.says("one")
    made, _ = await respond(bridge, "first")
    for call in (bridge.client.responses.retrieve(made.id, stream=True), bridge.client.responses.cancel(made.id)):
        with pytest.raises(openai.BadRequestError, match="background: true") as caught:
            await call
        assert told(caught.value) == (400, "not_in_background", None)


@pytest.mark.promise("state.failed")
async def test_an_answer_that_fails_in_its_stream_is_kept_as_failed_without_its_half(bridge: Bridge) -> None:
    was_read = asyncio.Event()
    half = message("whole", pieces=["ha", Wait(gate=was_read), Hangup()])
    bridge.script(StreamReply(steps=(created(), half)), answer(message("two")))
    ids: list[str] = []

    async def read() -> None:
        async for event in await bridge.client.responses.create(model=MODEL, input="first", stream=True):
            if event.type == "response.created":
                ids.append(event.response.id)
            if event.type == "response.output_text.delta":
                was_read.set()

    with pytest.raises(openai.APIError) as raised:
        await read()
    again = await bridge.client.responses.retrieve(ids[0])
    assert again.error is not None
    assert (again.status, again.error.message) == ("failed", raised.value.message)
    await respond(bridge, "second", previous_response_id=again.id)
    assert shown(bridge) == [user("first"), user("second")]


@pytest.mark.promise("state.failed")
async def test_an_answer_that_was_cut_off_is_kept_and_continued_as_far_as_it_went(bridge: Bridge) -> None:
    bridge.script(answer(message("one two three STOP four")), answer(message("more")))
    cut, _ = await respond(bridge, "count", extra_body={"stop": "STOP"})
    assert cut.output_text == "one two three "
    await respond(bridge, "go on", previous_response_id=cut.id)
    assert shown(bridge) == [user("count"), assistant("one two three "), user("go on")]


@pytest.mark.promise("state.no-trace")
async def test_an_answer_whose_id_nobody_has_is_not_kept(bridge: Bridge) -> None:
    bridge.script(error_reply(500, "Broken."))
    response = await bridge.http.post("/v1/responses", json={"model": MODEL, "input": "first"})
    assert (response.status_code, "resp_" in response.text) == (502, False)
