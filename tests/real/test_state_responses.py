"""A conversation goes on from any response that is kept, through the real Codex."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.real.test_fidelity import whole_request
from tests.support.gateway import Bridge
from tests.support.state_clients import (
    MODEL,
    assistant,
    keeping_bridge,
    respond,
    shown,
    thought,
    user,
)
from tests.support.tool_clients import declared, weather_call
from turnbridge.scripted_model.replies import (
    Hangup,
    Pause,
    StreamReply,
    answer,
    created,
    message,
    reasoning,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

TOOLS = declared("responses")


@pytest.fixture(scope="module", params=[0, 64], ids=["replayed", "warm"])
async def kept(
    tmp_path_factory: pytest.TempPathFactory, anyio_backend: object, request: pytest.FixtureRequest
) -> AsyncIterator[Bridge]:
    """Return a gateway without and with threads that are kept."""
    del anyio_backend
    async with keeping_bridge(tmp_path_factory.mktemp("kept"), PROXY_WARM_THREADS_MAX=request.param) as running:
        yield running


def goes_on(bridge: Bridge) -> str:
    """Return how a request is served that only adds something."""
    return "warm" if bridge.gateway.warm.most > 0 else "replayed"


def output(call_id: str, weather: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": weather}


def rome(call_id: str) -> JsonObject:
    """Return what the model sees of its call."""
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": '{"city": "Rome"}'}


async def continued(bridge: Bridge, response_id: str, text: str, reply: str) -> tuple[str, str]:
    """Continue a response, and return the id of the next one and how it was served."""
    bridge.script(answer(message(reply)))
    response, way = await respond(bridge, text, previous_response_id=response_id)
    assert (response.output_text, response.previous_response_id) == (reply, response_id)
    return response.id, way


@pytest.mark.promise("state.continued", "state.reasoning", "threads.warm")
async def test_a_conversation_goes_on_from_any_response_and_branches(kept: Bridge) -> None:
    kept.script(answer(reasoning(["Hm."], encrypted="E1"), message("one")))
    first, way = await respond(kept, "first")
    assert way == "fresh"
    second, way = await continued(kept, first.id, "second", "two")
    begun = [user("first"), thought("E1", "Hm."), assistant("one")]
    assert (way, shown(kept)) == (goes_on(kept), [*begun, user("second")])
    third, way = await continued(kept, second, "third", "three")
    history = [*begun, user("second"), assistant("two"), user("third")]
    assert (way, shown(kept)) == (goes_on(kept), history)
    branch, way = await continued(kept, first.id, "other second", "other two")
    assert (way, shown(kept)) == ("replayed", [*begun, user("other second")])
    _, way = await continued(kept, branch, "other third", "other three")
    other = [*begun, user("other second"), assistant("other two"), user("other third")]
    assert (way, shown(kept)) == (goes_on(kept), other)
    _, way = await continued(kept, third, "fourth", "four")
    assert (way, shown(kept)) == (goes_on(kept), [*history, assistant("three"), user("fourth")])


@pytest.mark.promise("state.continued")
async def test_a_continued_request_is_the_one_that_the_whole_conversation_would_have_made(kept: Bridge) -> None:
    kept.script(answer(reasoning(["Hm."], encrypted="E1"), message("one")), answer(message("two")))
    first, _ = await respond(kept, "first")
    await respond(kept, "second", previous_response_id=first.id)
    whole = whole_request([], model=MODEL, reasoning={"effort": "medium"}, metadata={}, extra={})
    history = [user("first"), thought("E1", "Hm."), assistant("one"), user("second")]
    assert {**kept.model.requests[1].body, "input": shown(kept)} == {**whole, "input": history}


@pytest.mark.promise("state.instructions")
async def test_instructions_do_not_carry_over(kept: Bridge) -> None:
    kept.script(answer(message("one")))
    first, _ = await respond(kept, "first", instructions="Be brief.")
    _, way = await continued(kept, first.id, "second", "two")
    assert (way, shown(kept)) == ("replayed", [user("first"), assistant("one"), user("second")])


@pytest.mark.promise("state.tools")
async def test_outputs_of_calls_resume_the_turn_that_waits_for_them(kept: Bridge) -> None:
    kept.script(
        answer(reasoning(["Hm."], encrypted="E1"), weather_call("Rome", "call_resumed")),
        answer(message("Sunny.")),
        answer(message("Still sunny.")),
    )
    called, first_way = await respond(kept, "weather?", tools=TOOLS)
    sun = output("call_resumed", "sun")
    answered, second_way = await respond(kept, [sun], tools=TOOLS, previous_response_id=called.id)
    _, third_way = await respond(kept, "and now?", tools=TOOLS, previous_response_id=answered.id)
    assert [first_way, second_way, third_way] == ["fresh", "parked", goes_on(kept)]
    history = [user("weather?"), thought("E1", "Hm."), rome("call_resumed"), sun]
    assert shown(kept, 1) == history
    assert shown(kept, 2) == [*history, assistant("Sunny."), user("and now?")]


@pytest.mark.promise("state.tools")
async def test_other_outputs_for_the_same_call_are_a_branch(kept: Bridge) -> None:
    kept.script(answer(weather_call("Rome", "call_twice")), answer(message("Sunny.")), answer(message("Rainy.")))
    called, _ = await respond(kept, "weather?", tools=TOOLS)
    ways = []
    for number, weather in enumerate(("sun", "rain"), start=1):
        given = output("call_twice", weather)
        _, way = await respond(kept, [given], tools=TOOLS, previous_response_id=called.id)
        assert shown(kept, number) == [user("weather?"), rome("call_twice"), given]
        ways.append(way)
    assert ways == ["parked", "replayed"]


@pytest.mark.promise("state.tools")
async def test_a_call_without_its_output_is_not_continued(bridge: Bridge) -> None:
    bridge.script(answer(weather_call("Rome", "call_open")))
    called, _ = await respond(bridge, "weather?", tools=TOOLS)
    with pytest.raises(openai.BadRequestError, match="call_open") as caught:
        await respond(bridge, "never mind", tools=TOOLS, previous_response_id=called.id)
    assert caught.value.param == "input"
    assert len(bridge.model.requests) == 1


@pytest.mark.promise("state.restart")
@pytest.mark.parametrize("warm", [0, 64], ids=["replayed", "warm"])
async def test_a_conversation_goes_on_after_a_restart_of_gateway_and_codex(tmp_path: Path, warm: int) -> None:
    async with keeping_bridge(tmp_path, PROXY_WARM_THREADS_MAX=warm) as bridge:
        bridge.script(
            answer(reasoning(["Hm."], encrypted="E1"), message("one"), key="a"),
            answer(message("two"), key="b"),
            answer(reasoning([], encrypted="E3"), weather_call("Rome", "call_before"), key="c"),
        )
        first, _ = await respond(bridge, "first")
        second, _ = await respond(bridge, "second", previous_response_id=first.id)
        called, _ = await respond(bridge, "weather?", previous_response_id=first.id, tools=TOOLS)
    async with keeping_bridge(tmp_path, PROXY_WARM_THREADS_MAX=warm) as bridge:
        assert (await bridge.client.responses.retrieve(second.id)).to_dict() == second.to_dict()
        third, way = await continued(bridge, second.id, "third", "three")
        begun = [user("first"), thought("E1", "Hm."), assistant("one")]
        history = [*begun, user("second"), assistant("two"), user("third")]
        assert (way, shown(bridge)) == ("replayed", history)
        _, way = await continued(bridge, third, "fourth", "four")
        assert (way, shown(bridge)) == (goes_on(bridge), [*history, assistant("three"), user("fourth")])
        sun = output("call_before", "sun")
        bridge.script(answer(message("Sunny.")))
        _, way = await respond(bridge, [sun], previous_response_id=called.id, tools=TOOLS)
        assert (way, shown(bridge)) == (
            "replayed",
            [*begun, user("weather?"), thought("E3"), rome("call_before"), sun],
        )


@pytest.mark.promise("state.reasoning")
async def test_thoughts_around_calls_are_put_back_for_chat_clients_after_a_restart(tmp_path: Path) -> None:
    async with keeping_bridge(tmp_path) as bridge:
        bridge.script(answer(reasoning(["Hm."], encrypted="E1"), weather_call("Rome", "call_told")))
        await respond(bridge, "weather?", tools=TOOLS)
    async with keeping_bridge(tmp_path) as bridge:
        bridge.script(answer(message("Sunny.")))
        function = {"name": "weather", "arguments": '{"city":"Rome"}'}
        messages: Any = [
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "tool_calls": [{"id": "call_told", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "call_told", "content": "sun"},
        ]
        tools: Any = declared("chat")
        await bridge.client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
        assert shown(bridge) == [
            user("weather?"),
            thought("E1", "Hm."),
            rome("call_told"),
            output("call_told", "sun"),
        ]


@pytest.mark.promise("items.references")
async def test_references_to_items_resolve(kept: Bridge) -> None:
    kept.script(answer(reasoning(["Hm."], encrypted="E1"), message("one"), key="referred"))
    first, _ = await respond(kept, "first")
    asked = (await kept.client.responses.input_items.list(first.id)).data[0]
    kept.script(answer(message("two")))
    reasoned, spoken = first.output
    given: list[JsonObject] = [
        {"type": "item_reference", "id": str(asked.id)},
        {"type": "item_reference", "id": str(reasoned.id)},
        {"id": str(spoken.id)},
        {"role": "user", "content": "second"},
    ]
    second, _ = await respond(kept, given)
    history = [user("first"), thought("E1", "Hm."), assistant("one"), user("second")]
    assert shown(kept) == history
    # What was referred to belongs to the later response too: it does not vanish with the first.
    await kept.client.responses.delete(first.id)
    await continued(kept, second.id, "third", "three")
    assert shown(kept) == [*history, assistant("two"), user("third")]


@pytest.mark.promise("state.reasoning")
async def test_thoughts_that_come_back_without_their_content_get_it_again(kept: Bridge) -> None:
    kept.script(answer(reasoning(["Hm."], encrypted="E1"), message("one"), key="sealed"), answer(message("two")))
    first, _ = await respond(kept, "first")
    back = [item.to_dict() for item in first.output]
    assert "encrypted_content" not in back[0]
    await respond(kept, [{"role": "user", "content": "first"}, *back, {"role": "user", "content": "second"}])
    assert shown(kept) == [user("first"), thought("E1", "Hm."), assistant("one"), user("second")]


@pytest.mark.promise("state.continued")
async def test_a_response_may_be_continued_without_any_input(bridge: Bridge) -> None:
    bridge.script(answer(message("one")), answer(message("two")))
    first, _ = await respond(bridge, "first")
    second = await bridge.client.responses.create(model=MODEL, previous_response_id=first.id)
    assert second.output_text == "two"
    assert shown(bridge) == [user("first"), assistant("one")]


@pytest.mark.promise("state.continued")
async def test_a_continued_response_need_not_be_kept_itself(kept: Bridge) -> None:
    kept.script(answer(message("one")), answer(message("two")))
    first, _ = await respond(kept, "first")
    second, _ = await respond(kept, "second", previous_response_id=first.id, store=False)
    assert (second.output_text, second.to_dict()["store"]) == ("two", False)
    with pytest.raises(openai.NotFoundError):
        await kept.client.responses.retrieve(second.id)
    await continued(kept, first.id, "third", "three")
    assert shown(kept) == [user("first"), assistant("one"), user("third")]


@pytest.mark.promise("state.failed")
async def test_half_a_thought_of_a_response_that_failed_is_not_said_again(kept: Bridge) -> None:
    thinking = reasoning(["Half a thought"])
    broken = replace(thinking, beats=(*thinking.beats[:2], Pause(seconds=0.1), Hangup()))
    kept.script(StreamReply(steps=(created(), broken)))
    wishes: JsonObject = {"model": MODEL, "input": "first", "stream": True, "reasoning": {"summary": "auto"}}
    told = (await kept.http.post("/v1/responses", json=wishes)).text
    ending = json.loads(told.rstrip().rpartition("data: ")[2])
    assert (ending["type"], [item["type"] for item in ending["response"]["output"]]) == (
        "response.failed",
        ["reasoning"],
    )
    await continued(kept, ending["response"]["id"], "second", "two")
    assert shown(kept) == [user("first"), user("second")]
