"""Clients that call functions and keep no state, on either API, and their conversations as seen from both ends."""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam

from tests.support.gateway import Bridge
from turnbridge.scripted_model.replies import OutputItem, Reply, function_call
from turnbridge.turn.items import Json, JsonObject

Way = Literal["parked", "replayed"]
Api = Literal["chat", "responses"]
Call: TypeAlias = tuple[str, str, str]
"""A call as the client sees it: its id, the function's name, the arguments."""

MODEL = "gpt-5.5"
HI: JsonObject = {"role": "user", "content": "What is the weather?"}
ROUTES: dict[Api, str] = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}

WEATHER: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where."}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[JsonObject] = [
    {"name": "weather", "description": "The weather of a city.", "parameters": WEATHER, "strict": False},
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


def inputs(bridge: Bridge) -> list[Json]:
    """Return what the model was shown in each of its requests."""
    return [bare(request.body["input"]) for request in bridge.model.requests]


def shown_outputs(items: Json) -> list[Json]:
    """Return the outputs of calls among the items that the model was shown."""
    listed: Any = items
    return [item["output"] for item in listed if item["type"] == "function_call_output"]


def threads(bridge: Bridge) -> int:
    """Return on how many threads of Codex's the model was asked: each has a cache key of its own."""
    return len({request.body["prompt_cache_key"] for request in bridge.model.requests})


def declared(api: Api, tools: Sequence[JsonObject] = TOOLS) -> list[JsonObject]:
    """Return functions in the words of an API."""
    if api == "chat":
        return [{"type": "function", "function": tool} for tool in tools]
    return [{"type": "function", **tool} for tool in tools]


def outputs_of(calls: Sequence[Call]) -> dict[str, str]:
    """Run the client's functions: each answers with what it was called with."""
    return {call_id: f"{name} says {arguments}" for call_id, name, arguments in calls}


def output_item(api: Api, call_id: str, output: object) -> dict[str, object]:
    """Return the output of a call in the words of an API."""
    if api == "chat":
        return {"role": "tool", "tool_call_id": call_id, "content": output}
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def weather_call(city: str, call_id: str) -> OutputItem:
    """Return a call of the weather function."""
    return function_call("weather", {"city": city}, call_id=call_id)


async def chat_round(
    bridge: Bridge, messages: list[ChatCompletionMessageParam], *, stream: bool = False, **options: object
) -> tuple[JsonObject, list[Call]]:
    """Ask once over the chat route, add the answer to the history, and return what it shows."""
    wanted: dict[str, Any] = {"model": MODEL, "tools": declared("chat"), **options}
    if stream:
        async with bridge.client.chat.completions.stream(messages=messages, **wanted) as events:
            completion: Any = await events.get_final_completion()
    else:
        completion = await bridge.client.chat.completions.create(messages=messages, **wanted)
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
    bridge: Bridge, items: list[ResponseInputItemParam], *, stream: bool = False, **options: object
) -> tuple[JsonObject, list[Call]]:
    """Ask once over the Responses route, add the answer to the history, and return what it shows."""
    include = ["reasoning.encrypted_content"]
    wanted: dict[str, Any] = {"model": MODEL, "tools": declared("responses"), "include": include, **options}
    if stream:
        async with bridge.client.responses.stream(input=items, **wanted) as events:
            response: Any = await events.get_final_response()
    else:
        response = await bridge.client.responses.create(input=items, **wanted)
    assert response.status == "completed"
    calls = [(item.call_id, item.name, item.arguments) for item in response.output if item.type == "function_call"]
    items += [item.model_dump(exclude_none=True) for item in response.output]
    return {"text": response.output_text, "calls": [list(call) for call in calls]}, calls


async def ask(
    bridge: Bridge, api: Api, history: list[Any], *, stream: bool = False, **options: object
) -> tuple[JsonObject, list[Call]]:
    """Ask once, add the answer to the history, and return what it shows."""
    return await (chat_round if api == "chat" else responses_round)(bridge, history, stream=stream, **options)


async def converse(
    bridge: Bridge,
    replies: Sequence[Reply],
    *,
    api: Api,
    way: Way,
    stream: bool = False,
    answers: Callable[[Sequence[Call]], Mapping[str, object]] = outputs_of,
    **options: object,
) -> Seen:
    """Let a client talk to the model until no call is left, and return what both saw."""
    bridge.script(*replies)
    seen = Seen()
    history: list[Any] = [HI]
    while True:
        shown, calls = await ask(bridge, api, history, stream=stream, **options)
        seen.client.append(shown)
        if not calls:
            break
        history += [output_item(api, call_id, output) for call_id, output in answers(calls).items()]
        if way == "replayed":
            bridge.gateway.calls.close()
    seen.model = inputs(bridge)
    assert len(bridge.model.requests) == len(replies)
    return seen


async def converse_both_ways(
    bridge: Bridge,
    replies: Sequence[Reply],
    *,
    api: Api,
    stream: bool = False,
    answers: Callable[[Sequence[Call]], Mapping[str, object]] = outputs_of,
    **options: object,
) -> Seen:
    """Have the same conversation parked and replayed, check that nobody can tell which is which, and return it."""
    parked = await converse(bridge, replies, api=api, way="parked", stream=stream, answers=answers, **options)
    assert threads(bridge) == 1, "The turn did not go on."
    replayed = await converse(bridge, replies, api=api, way="replayed", stream=stream, answers=answers, **options)
    assert threads(bridge) == len(replayed.client), "The turn was not replayed."
    assert parked == replayed, _difference(parked, replayed)
    return parked


def _difference(parked: Seen, replayed: Seen) -> str:
    one, other = (json.dumps(asdict(seen), indent=1).splitlines() for seen in (parked, replayed))
    return "\n".join(["", *difflib.unified_diff(one, other, "parked", "replayed", lineterm="", n=8)])
