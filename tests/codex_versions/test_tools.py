"""The client's functions through Codex 0.92.0: declared in v2-early, explained in v1."""

import json
from typing import Any

import pytest

from tests.codex_versions.seen import (
    BUILT_IN_TOOLS,
    MODEL,
    as_seen,
    text,
)
from tests.support.gateway import Bridge
from turnbridge.codex.legacy.flat_text import PREAMBLE, example_call
from turnbridge.scripted_model.replies import answer, function_call, message
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CITY: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "name": "weather", "description": "Tell it.", "parameters": CITY, "strict": False}
CLOCK: Any = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}, "strict": False}
ASKED: Any = {"role": "user", "content": "Weather in Rome, and the time?"}


def called(*calls: tuple[str, str, JsonObject]) -> list[JsonObject]:
    """Return calls as a client keeps them: id, name and arguments of each."""
    return [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}
        for call_id, name, arguments in calls
    ]


def output(call_id: str, said: str) -> JsonObject:
    """Return the output of a call."""
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def last_items(bridge: Bridge, count: int) -> Json:
    """Return the end of what the model was shown last."""
    items = bridge.model.requests[-1].body["input"]
    assert isinstance(items, list)
    return items[-count:]


@pytest.mark.promise("versions.tools")
async def test_parallel_calls_wait_in_their_turn_for_their_outputs(early: Bridge) -> None:
    early.script(
        answer(
            message("Let me see."),
            function_call("weather", '{"city": "Rome"}', call_id="c1"),
            function_call("clock", "{}", call_id="c2"),
        ),
        answer(message("Sunny, noon.")),
    )
    first = await early.client.responses.create(model=MODEL, input=[ASKED], tools=[WEATHER, CLOCK])
    assert [item.type for item in first.output] == ["message", "function_call", "function_call"]
    assert as_seen(early.seen()) == ([], [text(ASKED["content"])], ["weather", "clock"])
    history: Any = [ASKED, *(item.to_dict() for item in first.output), output("c1", "sunny"), output("c2", "noon")]
    second = await early.client.responses.with_raw_response.create(model=MODEL, input=history, tools=[WEATHER, CLOCK])
    assert second.headers["x-turnbridge-thread"] == "parked"
    assert (await _parsed(second)).output_text == "Sunny, noon."
    assert last_items(early, 5) == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "name": "weather", "arguments": '{"city": "Rome"}', "call_id": "c1"},
        {"type": "function_call", "name": "clock", "arguments": "{}", "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2", "output": "noon"},
    ]


async def _parsed(raw: Any) -> Any:
    return raw.parse()


@pytest.mark.promise("versions.tools")
async def test_calls_and_outputs_of_a_history_are_told_with_their_ids(old: Bridge) -> None:
    old.says("Sunny.")
    history: Any = [ASKED, *called(("c1", "weather", {"city": "</turn>"})), output("c1", "<turn>sunny")]
    response = await old.client.responses.create(model=MODEL, input=history)
    assert response.output_text == "Sunny."
    flat = (
        f'{PREAMBLE}\n<turn role="user">\n{ASKED["content"]}\n</turn>\n'
        '<tool_call>{"call_id":"c1","name":"weather",'
        '"arguments":"{\\"city\\": \\"\\u003c/turn\\u003e\\"}"}</tool_call>\n'
        '<tool_output>{"call_id":"c1","name":"weather","output":"\\u003cturn\\u003esunny"}</tool_output>'
    )
    assert as_seen(old.seen()) == ([], [text(flat)], [])


@pytest.mark.promise("versions.tools.in-words")
async def test_a_schema_that_this_codex_would_bend_is_told_in_words(early: Bridge) -> None:
    early.says("Well.")
    schema: JsonObject = {"type": "object", "properties": {"unit": {"type": "string", "enum": ["C", "F"]}}}
    tool: Any = {
        "type": "function",
        "name": "weather",
        "description": "Tell it.",
        "parameters": schema,
        "strict": False,
    }
    await early.client.responses.create(model=MODEL, input="hi", tools=[tool])
    tools = early.seen()["tools"]
    assert isinstance(tools, list)
    assert tools[len(BUILT_IN_TOOLS) :] == [
        {
            "type": "function",
            "name": "weather",
            "description": f"Tell it.\n\nThe arguments conform to this JSON Schema: {json.dumps(schema)}",
            "strict": False,
            "parameters": {"type": "object", "properties": {"unit": {"type": "string"}}},
        }
    ]


@pytest.mark.promise("versions.tools")
@pytest.mark.parametrize("name", ["update_plan", "view_image", "apply_patch", "shell", "mcp__a.b"])
async def test_a_function_may_be_called_like_a_tool_of_codexs_own(old: Bridge, name: str) -> None:
    old.model.requests.clear()
    tool: Any = {"type": "function", "name": name, "parameters": CITY, "strict": False}

    def respond(request: JsonObject) -> Any:
        tools = request["tools"]
        assert isinstance(tools, list)
        declared = [str(each.get("name")) for each in tools[len(BUILT_IN_TOOLS) :] if isinstance(each, dict)]
        assert len({*declared, *BUILT_IN_TOOLS}) == len(declared) + len(BUILT_IN_TOOLS)
        spoken = message(example_call(name, {"city": "Rome"}))
        return answer(function_call(declared[0], '{"city":"Rome"}') if declared else spoken)

    old.model.respond = respond
    response = await old.client.responses.create(model=MODEL, input="hi", tools=[tool])
    (call,) = response.output
    assert call.type == "function_call"
    assert (call.name, call.arguments) == (name, '{"city":"Rome"}')


@pytest.mark.promise("versions.tools")
async def test_a_client_that_never_answers_a_call_has_its_turn_ended(early: Bridge) -> None:
    early.gateway.calls.close()
    early.script(answer(function_call("clock", "{}", call_id="c1")), answer(message("Anew.")))
    await early.client.responses.create(model=MODEL, input=[ASKED], tools=[CLOCK])
    assert len(early.gateway.calls) == 1
    early.gateway.calls.close()
    history: Any = [ASKED, *called(("c1", "clock", {})), output("c1", "noon")]
    response = await early.client.responses.create(model=MODEL, input=history, tools=[CLOCK])
    assert response.output_text == "Anew."
    assert [worker.parked for worker in early.gateway.pool.workers] == [0]


SPOKEN = f"Let me see.\n\n{example_call('weather', {'city': 'Rome'})}\n{example_call('clock', {})}"


@pytest.mark.promise("versions.tools.in-words")
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_calls_in_the_text_are_calls_to_the_client(v1: Bridge, size: int) -> None:
    pieces = [SPOKEN[start : start + size] for start in range(0, len(SPOKEN), size)]
    v1.script(answer(message(SPOKEN, pieces=pieces)))
    async with v1.client.responses.stream(model=MODEL, input=[ASKED], tools=[WEATHER, CLOCK]) as stream:
        said = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
        response = await stream.get_final_response()
    assert said == response.output_text == "Let me see."
    calls = [(item.name, item.arguments) for item in response.output if item.type == "function_call"]
    assert calls == [("weather", '{"city":"Rome"}'), ("clock", "{}")]


@pytest.mark.promise("versions.tools.in-words")
async def test_functions_are_explained_and_their_outputs_go_back_as_text(v1: Bridge) -> None:
    v1.script(answer(message(example_call("weather", {"city": "Rome"}))), answer(message("Sunny.")))
    first = await v1.client.responses.create(model=MODEL, input=[ASKED], tools=[WEATHER])
    (call,) = first.output
    assert call.type == "function_call"
    developer, asked, declared = as_seen(v1.model.requests[0].body)
    assert (developer[0].startswith("Tool calling instructions:"), asked, declared) == (
        True,
        [text(ASKED["content"])],
        [],
    )
    history: Any = [ASKED, call.to_dict(), output(call.call_id, "sunny")]
    second = await v1.client.responses.with_raw_response.create(model=MODEL, input=history, tools=[WEATHER])
    assert second.headers["x-turnbridge-thread"] == "replayed"
    _, asked, _ = as_seen(v1.model.requests[1].body)
    assert asked == [
        text(
            f'{PREAMBLE}\n<turn role="user">\n{ASKED["content"]}\n</turn>\n'
            f'<tool_call>{{"call_id":"{call.call_id}","name":"weather","arguments":"{{\\"city\\":\\"Rome\\"}}"}}</tool_call>\n'
            f'<tool_output>{{"call_id":"{call.call_id}","name":"weather","output":"sunny"}}</tool_output>'
        )
    ]
    assert len(v1.gateway.calls) == 0


@pytest.mark.promise("versions.tools.in-words")
async def test_a_call_that_is_required_is_asked_for_once_more(v1: Bridge) -> None:
    v1.script(answer(message("No.")), answer(message(example_call("clock", {}))))
    response = await v1.client.responses.create(model=MODEL, input="hi", tools=[CLOCK], tool_choice="required")
    assert [item.type for item in response.output] == ["message", "function_call"]


@pytest.mark.promise("versions.tools.in-words")
async def test_invalid_arguments_of_a_strict_function_are_corrected(v1: Bridge) -> None:
    strict: Any = {**WEATHER, "strict": True, "parameters": {**CITY, "additionalProperties": False}}
    v1.script(
        answer(message(example_call("weather", {"town": "Rome"}))),
        answer(message(example_call("weather", {"city": "Rome"}))),
    )
    response = await v1.client.responses.create(model=MODEL, input="hi", tools=[strict])
    (call,) = response.output
    assert call.type == "function_call"
    assert call.arguments == '{"city":"Rome"}'
    assert "<tool_output>" in json.dumps(last_items(v1, 1))
