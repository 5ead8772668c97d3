"""Function calls through the real Codex, from clients that keep no state: each scenario parked, and replayed."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Bridge, running_bridge
from tests.support.tool_clients import (
    HI,
    MODEL,
    ROUTES,
    Api,
    ask,
    chat_round,
    converse,
    converse_both_ways,
    declared,
    inputs,
    output_item,
    shown_outputs,
    threads,
    weather_call,
)
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.scripted_model.replies import (
    OutputItem,
    Reply,
    Usage,
    answer,
    custom_tool_call,
    error_reply,
    function_call,
    message,
    reasoning,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
def bridge(either_bridge: Bridge) -> Bridge:
    """Return a gateway for each transport to the provider."""
    return either_bridge


ONE, TWO = weather_call("Rome", "call_1"), weather_call("Oslo", "call_2")

SCENARIOS: dict[str, list[Reply]] = {
    "one call": [answer(ONE), answer(message("Sunny."))],
    "two parallel": [answer(ONE, TWO), answer(message("Both."))],
    "five parallel": [answer(*(weather_call(f"City{i}", f"call_{i}") for i in range(5))), answer(message("All."))],
    "three rounds": [
        answer(ONE),
        answer(message("And now"), TWO),
        answer(weather_call("Bern", "call_3"), weather_call("Graz", "call_4")),
        answer(message("Done.")),
    ],
    "text and calls": [answer(message("Let me look."), ONE), answer(message("Sunny."))],
    "narration and calls": [
        answer(message("Looking it up.", phase="commentary"), ONE),
        answer(message("Sunny.", phase="final_answer")),
    ],
    "reasoning and calls": [
        answer(reasoning(["I need the weather."], encrypted="SECRET"), ONE, TWO),
        answer(reasoning(["Now I know."], encrypted="MORE"), message("Sunny.")),
    ],
    "reasoning between calls": [
        answer(reasoning(["First Rome."], encrypted="A"), ONE, reasoning(["Then Oslo."], encrypted="B"), TWO),
        answer(message("Sunny.")),
    ],
    "renamed tools": [
        answer(
            function_call("client_mcp__clock__now", "{}", call_id="call_r1"),
            function_call("files_read", "{}", call_id="call_r2"),
        ),
        answer(message("Renamed.")),
    ],
}


@pytest.mark.promise("tools.declared", "tools.parked", "tools.replay", "tools.replay.reasoning")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_parked_and_replayed_turns_cannot_be_told_apart(
    bridge: Bridge, scenario: str, api: Api, stream: bool
) -> None:
    seen = await converse_both_ways(bridge, SCENARIOS[scenario], api=api, stream=stream)
    assert "client_" not in json.dumps(seen.client)


# Names that Codex refuses or keeps for itself, that collide once they are changed, or that are its own tools'.
AWKWARD = """mcp mcp__a__b mcp..b files.read files_read files/read exec_command client_exec_command shell_command
    天気 気候 shell local_shell apply_patch update_plan view_image web_search request_user_input spawn_agent exec wait
    write_stdin tool_search functions multi_tool_use parallel python container image_generation list_mcp_resources
    sleep"""
NAMES = [*AWKWARD.split(), "a" * 200, "a" * 200 + "b", "with space", "x" * 128]


@pytest.mark.promise("tools.names")
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_however_functions_are_named_every_call_reaches_the_client_under_its_own_name(
    bridge: Bridge, api: Api
) -> None:
    every = [*NAMES, *(f"plain_{number}" for number in range(300))]
    in_codex = ToolNames(every)
    tools: list[JsonObject] = [
        {"name": name, "description": f"It is {name}.", "parameters": {"type": "object", "properties": {}}}
        for name in every
    ]
    calls = [function_call(in_codex.to_codex(name), "{}", call_id=f"call_{n}") for n, name in enumerate(NAMES)]
    seen = await converse_both_ways(
        bridge, [answer(*calls), answer(message("All."))], api=api, tools=declared(api, tools)
    )
    assert seen.client[0] == {"text": "", "calls": [[f"call_{n}", name, "{}"] for n, name in enumerate(NAMES)]}
    assert shown_outputs(seen.model[1]) == [f"{name} says {{}}" for name in NAMES]
    given: Any = bridge.model.requests[0].body["tools"]
    assert [tool["description"] for tool in given] == [f"It is {name}." for name in every]


GHOST = function_call("ghost", {"boo": 1}, call_id="call_g")
GARBLED = function_call("weather", '{"city": Rome', call_id="call_b")


@pytest.mark.promise("tools.unfit")
@pytest.mark.parametrize("unfit", [GHOST, GARBLED], ids=["undeclared function", "arguments that are no JSON"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_call_that_no_client_can_serve_is_answered_by_codex_and_hidden(
    bridge: Bridge, api: Api, unfit: OutputItem
) -> None:
    bridge.script(answer(unfit), answer(message("Sunny.")))
    shown, _ = await ask(bridge, api, [HI])
    assert shown == {"text": "Sunny.", "calls": []}
    (output,) = shown_outputs(inputs(bridge)[-1])
    assert isinstance(output, str)
    assert output.startswith(("unsupported call", "failed to parse function arguments"))


@pytest.mark.promise("tools.unfit")
@pytest.mark.parametrize("unfit", [GHOST, GARBLED], ids=["undeclared function", "arguments that are no JSON"])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_batch_with_a_call_that_no_client_can_serve_goes_on_with_the_others(
    bridge: Bridge, unfit: OutputItem, place: int
) -> None:
    calls = [ONE, TWO]
    calls.insert(place, unfit)
    seen = await converse(bridge, [answer(*calls), answer(message("Sunny."))], api="chat", way="parked")
    arguments = ['{"city": "Rome"}', '{"city": "Oslo"}']
    assert seen.client == [
        {"text": "", "calls": [["call_1", "weather", arguments[0]], ["call_2", "weather", arguments[1]]]},
        {"text": "Sunny.", "calls": []},
    ]
    outputs = [f"weather says {each}" for each in arguments]
    assert [output for output in shown_outputs(seen.model[-1]) if output in outputs] == outputs
    assert len(shown_outputs(seen.model[-1])) == 3
    assert threads(bridge) == 1


@pytest.mark.promise("tools.batch.responses")
async def test_a_call_is_streamed_on_responses_as_an_item_whose_argument_deltas_concatenate(bridge: Bridge) -> None:
    pieces = ['{"ci', 'ty": "R', 'ome"}']
    slow = function_call("weather", '{"city": "Rome"}', call_id="call_1", id="fc_1", pieces=pieces)
    bridge.script(answer(message("Let me look.", id="msg_1"), slow, function_call("files_read", "", call_id="call_2")))
    asked: Any = {"model": MODEL, "input": "hi", "tools": declared("responses")}
    stream: Any = await bridge.client.responses.create(**asked, stream=True)
    events = [event.model_dump(exclude_none=True) async for event in stream]
    item: JsonObject = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather"}
    arguments = '{"city": "Rome"}'
    of_call = [event for event in events if event.get("output_index") == 1]
    deltas = [event for event in of_call if event["type"].endswith("arguments.delta")]
    assert "".join(event["delta"] for event in deltas) == arguments
    assert all(event["delta"] and event["item_id"] == "fc_1" for event in deltas)
    assert [_without(event, "sequence_number") for event in of_call if event not in deltas] == [
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {**item, "arguments": "", "status": "in_progress"},
        },
        {
            "type": "response.function_call_arguments.done",
            "output_index": 1,
            "item_id": "fc_1",
            "name": item["name"],
            "arguments": arguments,
        },
        {
            "type": "response.output_item.done",
            "output_index": 1,
            "item": {**item, "arguments": arguments, "status": "completed"},
        },
    ]


@pytest.mark.promise("chat.finish-reason", "tools.batch.chat")
async def test_calls_are_streamed_on_chat_with_their_heads_in_the_first_fragments(bridge: Bridge) -> None:
    bridge.script(answer(message("Let me look."), ONE, function_call("files_read", "{}", call_id="call_2")))
    asked: Any = {"model": MODEL, "messages": [HI], "tools": declared("chat")}
    stream: Any = await bridge.client.chat.completions.create(**asked, stream=True)
    chunks = [chunk async for chunk in stream]
    fragments = [f.model_dump(exclude_none=True) for c in chunks for f in c.choices[0].delta.tool_calls or []]
    assert fragments == [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city": "Rome"}'}},
        {"index": 1, "id": "call_2", "type": "function", "function": {"name": "files.read", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["tool_calls"]


@pytest.mark.promise("tools.usage")
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_usage_is_that_of_each_leg(bridge: Bridge, api: Api) -> None:
    bridge.script(
        answer(ONE, usage=Usage(input_tokens=100, cached_tokens=7, output_tokens=10, reasoning_tokens=3)),
        answer(message("Sunny."), usage=Usage(input_tokens=200, cached_tokens=8, output_tokens=20, reasoning_tokens=4)),
    )
    history: list[Any] = [{"role": "user", "content": "hi"}]
    counts = []
    for _ in range(2):
        sent = {"messages" if api == "chat" else "input": history, "model": MODEL, "tools": declared(api)}
        answered = (await bridge.http.post(ROUTES[api], json=sent)).json()
        counts.append([count for count in _numbers(answered["usage"]) if count])
        history += [answered["choices"][0]["message"]] if api == "chat" else answered["output"]
        history.append(output_item(api, "call_1", "sunny"))
    assert [sorted(count) for count in counts] == [[3, 7, 10, 100, 110], [4, 8, 20, 200, 220]]


SCRIPTING_MODEL = "gpt-6.1-sol"
SCRIPT = """
const rome = await tools.weather({city: "Rome"});
const rest = await Promise.all([tools.weather({city: "Oslo"}), tools.weather({city: "Bern"})]);
text(JSON.stringify([rome, ...rest]));
"""


@pytest.fixture(scope="module")
async def native(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that leaves the models as Codex ships them."""
    del anyio_backend  # Named so that its scope fits.
    async with running_bridge(tmp_path_factory.mktemp("native"), PROXY_TOOL_MODE="native") as running:
        yield running


@pytest.mark.promise("tools.mode.native")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_calls_from_a_models_script_reach_the_client_as_ordinary_ones(
    native: Bridge, api: Api, stream: bool
) -> None:
    native.script(answer(custom_tool_call("exec", SCRIPT)), answer(message("All sunny.")))
    history: list[Any] = [HI]
    cities = []
    while True:
        shown, calls = await ask(native, api, history, stream=stream, model=SCRIPTING_MODEL)
        if not calls:
            break
        for call_id, name, arguments in calls:
            cities.append((name, json.loads(arguments)["city"]))
            history.append(output_item(api, call_id, f"sunny in {cities[-1][1]}"))
    # Codex asks for what a script does at once in any order; up to 0.163 for one after another.
    assert [cities[0], *sorted(cities[1:])] == [("weather", "Rome"), ("weather", "Bern"), ("weather", "Oslo")]
    assert shown == {"text": "All sunny.", "calls": []}
    _, second = native.model.requests
    output: Any = second.body["input"]
    assert '["sunny in Rome","sunny in Oslo","sunny in Bern"]' in json.dumps(output[-1]["output"]).replace("\\", "")


@pytest.mark.promise("tools.mode.native")
async def test_a_script_whose_turn_is_gone_is_replayed_as_the_calls_that_it_made(native: Bridge) -> None:
    native.script(answer(custom_tool_call("exec", SCRIPT)), answer(message("Sunny in Rome.")))
    history: list[Any] = [HI]
    _, ((call_id, name, arguments),) = await chat_round(native, history, model=SCRIPTING_MODEL)
    history.append(output_item("chat", call_id, "sunny"))
    native.gateway.calls.close()
    shown, _ = await chat_round(native, history, model=SCRIPTING_MODEL)
    assert shown == {"text": "Sunny in Rome.", "calls": []}
    told: Any = inputs(native)[-1]
    assert told[-2:] == [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": "sunny"},
    ]


@pytest.mark.promise("tools.mode.auto")
async def test_a_model_whose_direct_tools_the_provider_refuses_is_left_native(tmp_path: Path) -> None:
    def respond(request: JsonObject) -> Reply:
        if request.get("tools"):
            return error_reply(400, "Function tools are not supported with this model.")
        return answer(message("Served natively."))

    async with running_bridge(tmp_path) as bridge:
        bridge.model.respond = respond
        for _ in range(2):
            shown, _ = await chat_round(bridge, [{"role": "user", "content": "hi"}], model=SCRIPTING_MODEL)
            assert shown == {"text": "Served natively.", "calls": []}
        assert [bool(request.body.get("tools")) for request in bridge.model.requests] == [True, False, False]


@pytest.mark.promise("tools.mode.auto")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_each_answer_says_what_codex_added_in_the_mode_in_which_it_was_given(
    tmp_path: Path, stream: bool
) -> None:
    def respond(request: JsonObject) -> Reply:
        refused = request.get("tools") and request["model"] == SCRIPTING_MODEL
        return error_reply(400, "Function tools are not supported.") if refused else answer(message("Hi."))

    async with running_bridge(tmp_path) as bridge:
        bridge.model.respond = respond
        told = []
        for model in (SCRIPTING_MODEL, "gpt-5.5"):
            body = {"model": model, "messages": [HI], "tools": declared("chat"), "stream": stream}
            told.append((await bridge.http.post("/v1/chat/completions", json=body)).headers["x-turnbridge-fidelity"])
    assert told == [
        "extra=exec,list_mcp_resource_templates,list_mcp_resources,read_mcp_resource,wait,no-image-detail",
        "exact",
    ]


def _without(event: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


def _numbers(value: object) -> list[int]:
    if isinstance(value, dict):
        return [number for inner in value.values() for number in _numbers(inner)]
    return [value] if isinstance(value, int) else []
