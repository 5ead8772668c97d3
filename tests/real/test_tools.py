"""Function calls through the real Codex, from clients that keep no state: each scenario parked, and replayed."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam

from tests.support.gateway import Bridge, running_bridge
from turnbridge.demo.replies import (
    OutputItem,
    Reply,
    answer,
    custom_tool_call,
    error_reply,
    function_call,
    message,
    reasoning,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

Way = Literal["parked", "replayed"]
Api = Literal["chat", "responses"]

WEATHER: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where."}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[JsonObject] = [
    {"name": "weather", "description": "The weather of a city.", "parameters": WEATHER},
    {"name": "mcp__clock__now", "description": "", "parameters": {"type": "object", "properties": {}}},
    {"name": "files.read", "description": "Reads a file.", "parameters": {"type": "object", "properties": {}}},
]


@dataclass
class Seen:
    """What a conversation looked like from both ends."""

    model: list[Json] = field(default_factory=list)
    client: list[Json] = field(default_factory=list)


def bare(value: Json) -> Json:
    """Return what the model can tell apart: ids that Codex makes up and marks without a meaning are left out."""
    if isinstance(value, list):
        return [bare(inner) for inner in value]
    if isinstance(value, dict):
        dull = ("id", "status", "annotations", "logprobs")
        return {key: bare(inner) for key, inner in value.items() if key not in dull and inner is not None}
    return value


def outputs_of(calls: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """Run the client's functions: each answers with what it was called with."""
    return {call_id: f"{name} says {arguments}" for call_id, name, arguments in calls}


async def chat_round(
    bridge: Bridge, messages: list[ChatCompletionMessageParam], *, stream: bool, **options: Any
) -> tuple[JsonObject, list[tuple[str, str, str]]]:
    tools: Any = [{"type": "function", "function": tool} for tool in TOOLS]
    options = {"model": "gpt-5.5", "tools": tools, **options}
    if stream:
        async with bridge.client.chat.completions.stream(messages=messages, **options) as events:
            completion: Any = await events.get_final_completion()
    else:
        completion = await bridge.client.chat.completions.create(messages=messages, **options)
    (choice,) = completion.choices
    calls = [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
    assert choice.finish_reason == ("tool_calls" if calls else "stop")
    replayed: Any = {"role": "assistant", "content": choice.message.content}
    if calls:
        replayed["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls
        ]
    messages.append(replayed)
    return {"text": choice.message.content or "", "calls": [list(call) for call in calls]}, calls


async def responses_round(
    bridge: Bridge, items: list[ResponseInputItemParam], *, stream: bool, **options: Any
) -> tuple[JsonObject, list[tuple[str, str, str]]]:
    tools: Any = [{"type": "function", **tool} for tool in TOOLS]
    options = {"tools": tools, "include": ["reasoning.encrypted_content"], **options}
    if stream:
        async with bridge.client.responses.stream(model="gpt-5.5", input=items, **options) as events:
            response: Any = await events.get_final_response()
    else:
        response = await bridge.client.responses.create(model="gpt-5.5", input=items, **options)
    assert response.status == "completed"
    calls = [(item.call_id, item.name, item.arguments) for item in response.output if item.type == "function_call"]
    items += [item.model_dump(exclude_none=True) for item in response.output]
    return {"text": response.output_text, "calls": [list(call) for call in calls]}, calls


async def converse(
    bridge: Bridge,
    replies: Sequence[Reply],
    *,
    api: Api,
    way: Way,
    stream: bool = False,
    answers: Callable[[Sequence[tuple[str, str, str]]], dict[str, Any]] = outputs_of,
    **options: Any,
) -> Seen:
    """Let a client talk to the model until no call is left, and return what both saw."""
    bridge.script(*replies)
    seen = Seen()
    history: list[Any] = [{"role": "user", "content": "What is the weather?"}]
    for _ in replies:
        run = chat_round if api == "chat" else responses_round
        shown, calls = await run(bridge, history, stream=stream, **options)
        seen.client.append(shown)
        if not calls:
            break
        for call_id, output in answers(calls).items():
            if api == "chat":
                history.append({"role": "tool", "tool_call_id": call_id, "content": output})
            else:
                history.append({"type": "function_call_output", "call_id": call_id, "output": output})
        if way == "replayed":
            bridge.gateway.calls.close()
    seen.model = [bare(request.body["input"]) for request in bridge.model.requests]
    assert len(bridge.model.requests) == len(replies)
    return seen


def call(name: str, city: str, number: int, conversation: str) -> OutputItem:
    return function_call(name, {"city": city}, call_id=f"call_{conversation}_{number}")


def scenario_replies(name: str, unique: str) -> list[Reply]:
    one = call("weather", "Rome", 1, unique)
    two = call("weather", "Oslo", 2, unique)
    scenarios: dict[str, list[Reply]] = {
        "one call": [answer(one), answer(message("Sunny."))],
        "two parallel": [answer(one, two), answer(message("Both."))],
        "five parallel": [answer(*(call("weather", f"City{i}", i, unique) for i in range(5))), answer(message("All."))],
        "three rounds": [
            answer(one),
            answer(message("And now"), two),
            answer(call("weather", "Bern", 3, unique), call("weather", "Graz", 4, unique)),
            answer(message("Done.")),
        ],
        "text and calls": [answer(message("Let me look."), one), answer(message("Sunny."))],
        "narration and calls": [
            answer(message("Looking it up.", phase="commentary"), one),
            answer(message("Sunny.", phase="final_answer")),
        ],
        "reasoning and calls": [
            answer(reasoning(["I need the weather."], encrypted="SECRET"), one, two),
            answer(reasoning(["Now I know."], encrypted="MORE"), message("Sunny.")),
        ],
        "renamed tools": [
            answer(
                function_call("client_mcp__clock__now", "{}", call_id=f"call_{unique}_r1"),
                function_call("files_read", "{}", call_id=f"call_{unique}_r2"),
            ),
            answer(message("Renamed.")),
        ],
    }
    return scenarios[name]


SCENARIOS = [
    "one call",
    "two parallel",
    "five parallel",
    "three rounds",
    "text and calls",
    "narration and calls",
    "reasoning and calls",
    "renamed tools",
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_parked_and_replayed_turns_cannot_be_told_apart(
    bridge: Bridge, scenario: str, api: Api, stream: bool
) -> None:
    unique = f"{api}{stream}".lower()
    parked = await converse(bridge, scenario_replies(scenario, unique), api=api, way="parked", stream=stream)
    assert len({request.body["prompt_cache_key"] for request in bridge.model.requests}) == 1
    replayed = await converse(bridge, scenario_replies(scenario, unique), api=api, way="replayed", stream=stream)
    assert len({request.body["prompt_cache_key"] for request in bridge.model.requests}) == len(replayed.client)
    assert parked == replayed
    assert "client_" not in json.dumps(parked.client)


SCRIPT = """
const rome = await tools.weather({city: "Rome"});
const rest = await Promise.all([tools.weather({city: "Oslo"}), tools.weather({city: "Bern"})]);
text(JSON.stringify([rome, ...rest]));
"""


async def test_calls_from_a_models_script_reach_the_client_as_ordinary_ones(tmp_path: Path) -> None:
    async with running_bridge(tmp_path, PROXY_TOOL_MODE="native") as bridge:
        bridge.script(answer(custom_tool_call("exec", SCRIPT)), answer(message("All sunny.")))
        history: list[Any] = [{"role": "user", "content": "What is the weather?"}]
        cities = []
        while True:
            shown, calls = await chat_round(bridge, history, stream=False, model="gpt-6.1-sol")
            if not calls:
                break
            ((call_id, name, arguments),) = calls
            cities.append((name, json.loads(arguments)["city"]))
            history.append({"role": "tool", "tool_call_id": call_id, "content": f"sunny in {cities[-1][1]}"})
        assert cities == [("weather", "Rome"), ("weather", "Oslo"), ("weather", "Bern")]
        assert shown == {"text": "All sunny.", "calls": []}
        first, second = bridge.model.requests
        output: Any = second.body["input"]
        assert '["sunny in Rome","sunny in Oslo","sunny in Bern"]' in json.dumps(output[-1]["output"]).replace("\\", "")


async def test_a_model_whose_direct_tools_the_provider_refuses_is_left_native(tmp_path: Path) -> None:
    def respond(request: JsonObject) -> Reply:
        if request.get("tools"):
            return error_reply(400, "Function tools are not supported with this model.")
        return answer(message("Served natively."))

    async with running_bridge(tmp_path) as bridge:
        bridge.model.respond = respond
        for _ in range(2):
            shown, _ = await chat_round(bridge, [{"role": "user", "content": "hi"}], stream=False, model="gpt-6.1-sol")
            assert shown == {"text": "Served natively.", "calls": []}
        assert [bool(request.body.get("tools")) for request in bridge.model.requests] == [True, False, False]
