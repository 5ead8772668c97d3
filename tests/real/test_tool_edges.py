"""What can happen to a call between its two legs, through the real Codex: nothing is lost, nothing is mixed up."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from dirty_equals import IsStr

from tests.support.gateway import Bridge, running_bridge
from tests.support.tool_clients import (
    HI,
    MODEL,
    ROUTES,
    TOOLS,
    Api,
    Call,
    ask,
    bare,
    converse,
    converse_both_ways,
    declared,
    inputs,
    output_item,
    shown_outputs,
    threads,
    weather_call,
)
from turnbridge.codex.process.thread import CodexThread
from turnbridge.scripted_model.replies import (
    Hangup,
    Reply,
    StreamReply,
    Wait,
    answer,
    created,
    function_call,
    message,
    reasoning,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

BOTH_APIS = pytest.mark.parametrize("api", ["chat", "responses"])
ROME, OSLO = weather_call("Rome", "call_1"), weather_call("Oslo", "call_2")
SUNNY = answer(message("Sunny."))

PATIENCE_S = 25
"""Far longer than anything here takes; less than the test's own limit, so that a failure names its place."""


def text_part(api: Api, text: str) -> JsonObject:
    return {"type": "text" if api == "chat" else "input_text", "text": text}


def given(output: object) -> Callable[[Sequence[Call]], Mapping[str, object]]:
    """Return a client all of whose functions answer so."""
    return lambda calls: {call_id: output for call_id, _, _ in calls}


@pytest.mark.promise("items.long", "tools.output.text")
@pytest.mark.parametrize(
    "output",
    ["", "Error: no such city.", "x" * 200_000, "für 天気 🌦\n\t\u0000 \\u0041", '{"sun": true}'],
    ids=["empty", "error", "200 KB", "odd characters", "JSON"],
)
@BOTH_APIS
async def test_an_output_arrives_as_it_is(bridge: Bridge, api: Api, output: str) -> None:
    seen = await converse_both_ways(bridge, [answer(ROME), SUNNY], api=api, answers=given(output))
    assert shown_outputs(seen.model[-1]) == [output]


@pytest.mark.promise("tools.output.parts")
@BOTH_APIS
async def test_an_output_may_be_a_list_of_texts(bridge: Bridge, api: Api) -> None:
    parts = [text_part(api, "sunny"), text_part(api, "and warm")]
    seen = await converse_both_ways(bridge, [answer(ROME, OSLO), SUNNY], api=api, answers=given(parts))
    listed = [{"type": "input_text", "text": "sunny"}, {"type": "input_text", "text": "and warm"}]
    assert shown_outputs(seen.model[-1]) == [listed, listed]


@pytest.mark.promise("tools.output.parts")
@pytest.mark.parametrize(("texts", "shown"), [(["sunny"], "sunny"), ([], [])], ids=["one text", "nothing"])
@BOTH_APIS
async def test_a_list_of_one_text_is_that_text_and_an_empty_one_stays(
    bridge: Bridge, api: Api, texts: list[str], shown: Json
) -> None:
    parts = [text_part(api, text) for text in texts]
    seen = await converse_both_ways(bridge, [answer(ROME), SUNNY], api=api, answers=given(parts))
    assert shown_outputs(seen.model[-1]) == [shown]


# A red dot; and the beginning of a picture.
PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
BROKEN_PNG = "data:image/png;base64,iVBORw0KGgo="


def image_part(api: Api, url: str, detail: str | None) -> JsonObject:
    details: JsonObject = {} if detail is None else {"detail": detail}
    if api == "chat":
        return {"type": "image_url", "image_url": {"url": url, **details}}
    return {"type": "input_image", "image_url": url, **details}


@pytest.mark.promise("tools.output.images")
@pytest.mark.parametrize("detail", [None, "auto", "high"])
@BOTH_APIS
async def test_an_output_with_an_image_is_replayed_since_codex_would_change_its_detail(
    bridge: Bridge, api: Api, detail: str | None
) -> None:
    parts = [text_part(api, "look"), image_part(api, PNG, detail)]
    replies = [answer(ROME, OSLO), SUNNY]
    seen = await converse(bridge, replies, api=api, way="parked", answers=given(parts))
    image = image_part("responses", PNG, detail)
    assert shown_outputs(seen.model[-1]) == [[{"type": "input_text", "text": "look"}, image]] * 2
    assert threads(bridge) == 2
    assert len(bridge.gateway.calls) == 0


@pytest.mark.promise("tools.output.images")
async def test_a_broken_image_in_an_output_is_refused(bridge: Bridge) -> None:
    bridge.script(answer(ROME))
    history: list[Any] = [HI]
    await ask(bridge, "responses", history)
    history.append(output_item("responses", "call_1", [image_part("responses", BROKEN_PNG, "high")]))
    refused = await bridge.http.post("/v1/responses", json={"model": MODEL, "input": history})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_image")


@pytest.mark.promise("tools.parked.any-order")
@BOTH_APIS
async def test_outputs_may_come_in_any_order(bridge: Bridge, api: Api) -> None:
    seen = await converse_both_ways(
        bridge,
        [answer(ROME, OSLO), SUNNY],
        api=api,
        answers=lambda calls: {call_id: f"output of {call_id}" for call_id, _, _ in reversed(calls)},
    )
    assert shown_outputs(seen.model[-1]) == ["output of call_1", "output of call_2"]


@pytest.mark.promise("tools.parked.rewritten")
@BOTH_APIS
async def test_arguments_that_the_client_writes_anew_are_still_the_same_call(bridge: Bridge, api: Api) -> None:
    written = '{"city" : "R\\u00f6m", "n": 1}'
    bridge.script(answer(function_call("weather", written, call_id="call_1")), SUNNY)
    history: list[Any] = [HI]
    await ask(bridge, api, history)
    call = history[-1]["tool_calls"][0]["function"] if api == "chat" else history[-1]
    call["arguments"] = '{"n":1,"city":"Röm"}'
    history.append(output_item(api, "call_1", "sunny"))
    await ask(bridge, api, history)
    assert threads(bridge) == 1
    model: Any = inputs(bridge)[-1]
    assert model[1]["arguments"] == written


THOUGHTFUL = answer(
    reasoning(["Hm."], encrypted="SECRET"), message("Let me look."), weather_call("Rome", "call_1"), OSLO
)
Edit = Callable[[list[Any]], object]
EDITS: dict[str, Edit] = {
    "the user's text": lambda history: history[0].update(content="Never mind."),
    "the model's text": lambda history: history[2]["content"][0].update(text="Let me not look."),
    "a thought": lambda history: history[1]["summary"][0].update(text="Hm!"),
    "a secret thought": lambda history: history[1].update(encrypted_content="OTHER"),
    "the arguments of a call": lambda history: history[3].update(arguments='{"city": "Bonn"}'),
    "the name of a call": lambda history: history[3].update(name="other"),
    "a dropped call": lambda history: (history.pop(3), history.pop(4)),
    "calls in another order": lambda history: history.insert(3, history.pop(4)),
    "text after the outputs": lambda history: history.append({"role": "user", "content": "And hurry."}),
    "text before the calls": lambda history: history.insert(1, {"role": "user", "content": "Hurry."}),
    "text amid the model's": lambda history: history.insert(2, {"role": "user", "content": "Hurry."}),
    "an earlier message": lambda history: history.insert(0, {"role": "developer", "content": "Be brief."}),
}


def as_shown(history: list[Any], *, instructions: Json = "Be kind.") -> Json:
    """Return a client's items as the model must see them."""
    return [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": instructions}]},
        *(
            {**item, "type": "message", "content": [{"type": "input_text", "text": item["content"]}]}
            if isinstance(item.get("content"), str)
            else bare({key: value for key, value in item.items() if (key, value) != ("content", [])})
            for item in history
        ),
    ]


async def asked_and_answered(bridge: Bridge) -> list[Any]:
    """Return a history whose turn waits for the outputs at its end."""
    bridge.script(THOUGHTFUL, SUNNY)
    history: list[Any] = [dict(HI)]
    _, calls = await ask(bridge, "responses", history, instructions="Be kind.")
    return history + [output_item("responses", call_id, f"output of {call_id}") for call_id, _, _ in calls]


@pytest.mark.promise("tools.edited")
@pytest.mark.parametrize("edit", EDITS)
async def test_a_history_that_was_edited_is_replayed_as_the_client_tells_it(bridge: Bridge, edit: str) -> None:
    history = await asked_and_answered(bridge)
    EDITS[edit](history)
    told = as_shown(history)
    shown, _ = await ask(bridge, "responses", history, instructions="Be kind.")
    assert shown == {"text": "Sunny.", "calls": []}
    assert threads(bridge) == 2
    assert inputs(bridge)[-1] == told


@pytest.mark.promise("tools.edited")
@pytest.mark.parametrize(
    "changed",
    [
        {"instructions": "Be rude."},
        {"tools": declared("responses", TOOLS[:2])},
        {"tools": declared("responses", [{**TOOLS[0], "description": "Another one."}, *TOOLS[1:]])},
        {"tool_choice": "none"},
        {"model": "gpt-5.6-luna"},
        {"reasoning": {"effort": "low"}},
        {"text": {"verbosity": "low"}},
    ],
    ids=["instructions", "a tool less", "a tool's description", "tool_choice", "model", "effort", "verbosity"],
)
async def test_a_turn_that_is_to_go_on_differently_is_replayed(bridge: Bridge, changed: dict[str, Any]) -> None:
    history = await asked_and_answered(bridge)
    told = as_shown(history, instructions=changed.get("instructions", "Be kind."))
    shown, _ = await ask(bridge, "responses", history, **{"instructions": "Be kind.", **changed})
    assert shown == {"text": "Sunny.", "calls": []}
    assert threads(bridge) == 2
    assert inputs(bridge)[-1] == told


@pytest.mark.promise("tools.parked.between")
@pytest.mark.parametrize("unnoticed", [{"stream": True}, {"max_output_tokens": 99}, {"metadata": {"leg": "2"}}])
async def test_what_concerns_only_the_answer_may_change_between_the_legs(
    bridge: Bridge, unnoticed: dict[str, Any]
) -> None:
    history = await asked_and_answered(bridge)
    shown, _ = await ask(bridge, "responses", history, instructions="Be kind.", **unnoticed)
    assert shown == {"text": "Sunny.", "calls": []}
    assert threads(bridge) == 1


@pytest.mark.promise("tools.replay.reasoning")
async def test_thoughts_that_the_client_leaves_out_are_still_there(bridge: Bridge) -> None:
    history = await asked_and_answered(bridge)
    whole = as_shown(history)
    await ask(
        bridge, "responses", [item for item in history if item.get("type") != "reasoning"], instructions="Be kind."
    )
    assert threads(bridge) == 1
    assert inputs(bridge)[-1] == whole


@pytest.mark.promise("tools.replay.reasoning")
async def test_thoughts_that_come_back_without_their_summary_are_the_same_thoughts(bridge: Bridge) -> None:
    history = await asked_and_answered(bridge)
    whole = as_shown(history)
    told = [{**item, "summary": []} if item.get("type") == "reasoning" else item for item in history]
    await ask(bridge, "responses", told, instructions="Be kind.")
    assert threads(bridge) == 1
    assert inputs(bridge)[-1] == whole


@pytest.mark.promise("tools.replay.reasoning")
async def test_a_blank_text_beside_a_call_does_not_cost_the_thoughts(bridge: Bridge) -> None:
    bridge.script(answer(reasoning(["Hm."], encrypted="SECRET"), ROME), SUNNY)
    history: list[Any] = [HI]
    await ask(bridge, "chat", history)
    history[-1]["content"] = "\n"
    await ask(bridge, "chat", [*history, output_item("chat", "call_1", "sunny")])
    first, last = inputs(bridge)
    assert threads(bridge) == 1
    assert last == [
        *(first if isinstance(first, list) else []),
        bare(reasoning(["Hm."], encrypted="SECRET").item),
        bare(ROME.item),
        output_item("responses", "call_1", "sunny"),
    ]


@pytest.mark.promise("tools.mismatch")
@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({"call_1": "sunny"}, {"responses": "function call call_2.", "chat": "response messages: call_2"}),
        ({}, {"responses": "function call call_1.", "chat": "response messages: call_1, call_2"}),
        (
            {"call_1": "sunny", "call_2": "rain", "call_9": "snow"},
            {"responses": "with call_id call_9.", "chat": "with the tool_call_id call_9."},
        ),
    ],
    ids=["one missing", "all missing", "one unknown"],
)
@BOTH_APIS
async def test_outputs_that_do_not_fit_the_calls_are_refused_and_the_turn_still_waits(
    bridge: Bridge, api: Api, outputs: dict[str, str], words: dict[str, str]
) -> None:
    bridge.script(answer(ROME, OSLO), SUNNY)
    history: list[Any] = [HI]
    await ask(bridge, api, history)
    field = "messages" if api == "chat" else "input"
    wrong = [*history, *(output_item(api, call_id, output) for call_id, output in outputs.items())]
    refused = await bridge.http.post(ROUTES[api], json={"model": MODEL, "tools": declared(api), field: wrong})
    assert (refused.status_code, refused.json()["error"]) == (
        400,
        {"message": IsStr(), "type": "invalid_request_error", "param": field, "code": None},
    )
    assert refused.json()["error"]["message"].endswith(words[api])
    history += [output_item(api, call_id, "fine") for call_id in ("call_1", "call_2")]
    shown, _ = await ask(bridge, api, history)
    assert shown == {"text": "Sunny.", "calls": []}
    assert threads(bridge) == 1


@pytest.mark.promise("tools.sent-twice")
@BOTH_APIS
async def test_a_second_leg_that_is_sent_twice_is_answered_twice(bridge: Bridge, api: Api) -> None:
    bridge.script(answer(ROME), SUNNY, SUNNY)
    history: list[Any] = [HI]
    await ask(bridge, api, history)
    history.append(output_item(api, "call_1", "sunny"))
    both = await asyncio.gather(*(ask(bridge, api, list(history)) for _ in range(2)))
    assert both == [({"text": "Sunny.", "calls": []}, [])] * 2
    _, one, other = inputs(bridge)
    assert one == other
    assert threads(bridge) == 2


@pytest.fixture(scope="module")
async def mortal(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway whose Codex may be killed."""
    del anyio_backend  # Named so that its scope fits.
    async with running_bridge(tmp_path_factory.mktemp("mortal")) as running:
        yield running


def kill_codex(bridge: Bridge) -> None:
    (worker,) = bridge.gateway.pool.workers
    os.kill(worker.process.pid, signal.SIGKILL)


@pytest.mark.promise("tools.replay.killed")
@BOTH_APIS
async def test_a_turn_whose_codex_is_killed_between_the_legs_is_replayed_and_nobody_notices(
    mortal: Bridge, api: Api
) -> None:
    replies = [answer(reasoning(["Hm."], encrypted="SECRET"), ROME, OSLO), SUNNY]
    expected = await converse(mortal, replies, api=api, way="parked")
    mortal.script(*replies)
    history: list[Any] = [HI]
    shown, calls = await ask(mortal, api, history)
    history += [output_item(api, call_id, f"weather says {arguments}") for call_id, _, arguments in calls]
    kill_codex(mortal)
    assert [shown, (await ask(mortal, api, history))[0]] == expected.client
    assert inputs(mortal) == expected.model


@pytest.mark.promise("faults.death.unseen")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_turn_whose_codex_is_killed_before_any_output_begins_again(mortal: Bridge, stream: bool) -> None:
    mortal.script(answer(Wait(gate=asyncio.Event())), answer(ROME))
    asked = asyncio.ensure_future(ask(mortal, "chat", [HI], stream=stream))
    await mortal.model.until(lambda model: model.active == 1)
    kill_codex(mortal)
    assert await asked == (
        {"text": "", "calls": [["call_1", "weather", '{"city": "Rome"}']]},
        [("call_1", "weather", '{"city": "Rome"}')],
    )
    first, second = inputs(mortal)
    assert first == second


@pytest.mark.promise("tools.replay.expired")
async def test_a_client_that_never_comes_back_has_its_turn_interrupted_and_may_still_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_bridge(tmp_path, PROXY_PARKED_TURN_TTL_S=2) as bridge:
        connection = bridge.gateway.pool.workers[0].connection
        told: asyncio.Queue[str] = asyncio.Queue()
        cast = connection.cast

        def overheard(method: str, params: Json) -> None:
            cast(method, params)
            told.put_nowait(method)

        monkeypatch.setattr(connection, "cast", overheard)
        bridge.script(answer(ROME), SUNNY)
        history: list[Any] = [HI]
        await ask(bridge, "chat", history)
        assert len(bridge.gateway.calls) == 1
        async with asyncio.timeout(PATIENCE_S):
            assert await told.get() == "turn/interrupt"
        assert len(bridge.gateway.calls) == 0
        history.append(output_item("chat", "call_1", "sunny"))
        shown, _ = await ask(bridge, "chat", history)
        assert shown == {"text": "Sunny.", "calls": []}
        assert threads(bridge) == 2


@pytest.mark.promise("tools.batch.together", "tools.batch.text", "tools.interleaved")
async def test_twenty_conversations_at_once_are_never_mixed_up(bridge: Bridge) -> None:
    def respond(request: JsonObject) -> Reply:
        items: Any = request["input"]
        number = items[0]["content"][0]["text"]
        done = [item["output"] for item in items if item["type"] == "function_call_output"]
        if len(done) == 4:
            return answer(message(f"{number}: {', '.join(done)}"))
        first, second = (weather_call(f"{number}.{len(done) + i}", f"call_{number}_{len(done) + i}") for i in (0, 1))
        return answer(message(f"{number} asks"), first, second)

    async def talk(number: int) -> list[Json]:
        api: Api = "chat" if number % 2 else "responses"
        history: list[Any] = [{"role": "user", "content": str(number)}]
        seen: list[Json] = []
        while True:
            shown, calls = await ask(bridge, api, history, stream=number % 4 < 2)
            seen.append(shown)
            if not calls:
                return seen
            history += [output_item(api, call_id, json.loads(arguments)["city"]) for call_id, _, arguments in calls]

    bridge.script()
    bridge.model.respond = respond
    talks = await asyncio.gather(*map(talk, range(20)))
    for number, seen in enumerate(talks):
        calls = [[f"call_{number}_{i}", "weather", json.dumps({"city": f"{number}.{i}"})] for i in range(4)]
        assert seen == [
            {"text": f"{number} asks", "calls": calls[:2]},
            {"text": f"{number} asks", "calls": calls[2:]},
            {"text": f"{number}: {number}.0, {number}.1, {number}.2, {number}.3", "calls": []},
        ]
    assert threads(bridge) == 20


@pytest.mark.promise("tools.broken-off")
async def test_calls_of_an_answer_that_broke_off_are_passed_on_and_not_waited_for(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CodexThread, "rest_of_calls_s", 0.2)
    call = weather_call("Rome", "call_broken_off")
    bridge.script(StreamReply(steps=(created(), call, Hangup())), answer(message("Sunny.")))
    history: list[Any] = [{"role": "user", "content": "weather?"}]
    shown, calls = await ask(bridge, "chat", history)
    assert [call_id for call_id, _, _ in calls] == ["call_broken_off"]
    history.append(output_item("chat", "call_broken_off", "sun"))
    shown, _ = await ask(bridge, "chat", history)
    assert shown["text"] == "Sunny."
