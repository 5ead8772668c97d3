"""Custom (free-form) tools through the real Codex: to the client its own, to the model functions with one text."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.free_form_clients import answered, both_ways, calls_in, converse_raw
from tests.support.gateway import Bridge, running_bridge
from tests.support.tool_clients import HI, MODEL, ROUTES, Api, inputs, weather_call
from turnbridge.scripted_model.replies import answer, function_call, message, reasoning
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
async def bridge(bridge: Bridge) -> Bridge:
    """Return a gateway where no turn waits: these tests all have the same ids of calls."""
    bridge.gateway.calls.close()
    return bridge


NOTE = "Free-form tool: write its whole text, and nothing else, into the string `input`."
LARK = 'start: "SELECT " /.+/'
TEXT = 'SELECT "ü"\n\t\\ \u2028 {"a": 1}'
PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
WEATHER: JsonObject = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
TOOLS: dict[Api, list[JsonObject]] = {
    "responses": [
        {
            "type": "custom",
            "name": "db.sql",
            "description": "Runs SQL.",
            "format": {"type": "grammar", "syntax": "lark", "definition": LARK},
        },
        {"type": "custom", "name": "exec_command"},
        {"type": "function", **WEATHER},
    ],
    "chat": [
        {
            "type": "custom",
            "custom": {
                "name": "db.sql",
                "description": "Runs SQL.",
                "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": LARK}},
            },
        },
        {"type": "custom", "custom": {"name": "exec_command"}},
        {"type": "function", "function": WEATHER},
    ],
}
SQL = function_call("db_sql", {"input": TEXT}, call_id="c1")
RUN = function_call("client_exec_command", '{ "input":"ls" }', call_id="c2")
SCRIPTS = {
    "one": [answer(SQL), answer(message("Done."))],
    "beside a function": [
        answer(message("So."), weather_call("Rome", "c3"), SQL, RUN),
        answer(message("Done.")),
    ],
    "rounds and thoughts": [
        answer(reasoning(["Hm."], encrypted="A"), SQL),
        answer(reasoning(["So."], encrypted="B"), RUN),
        answer(message("Done.")),
    ],
}
BOTH_APIS = pytest.mark.parametrize("api", ["chat", "responses"])


def called(api: Api, call_id: str, name: str, text: str) -> JsonObject:
    """Return a call as a client of this API reads it."""
    if api == "chat":
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": text}}
    return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": text, "status": "completed"}


@pytest.mark.promise("tools.custom", "tools.parked", "tools.replay")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@BOTH_APIS
@pytest.mark.parametrize("script", SCRIPTS)
async def test_parked_and_replayed_custom_calls_cannot_be_told_apart(
    bridge: Bridge, script: str, api: Api, stream: bool
) -> None:
    include = {"include": ["reasoning.encrypted_content"]} if api == "responses" else {}
    seen = await both_ways(bridge, SCRIPTS[script], api=api, stream=stream, tools=TOOLS[api], **include)
    assert "client_" not in json.dumps(seen.client)
    first: Any = seen.client[0]
    (sql,) = [call for call in calls_in(first) if "sql" in json.dumps(call)]
    if api == "responses":
        # The item's own id is the model's.
        del sql["id"]
    assert sql == called(api, "c1", "db.sql", TEXT)


@pytest.mark.promise("tools.custom", "tools.custom.grammar")
@BOTH_APIS
async def test_the_model_is_given_the_tool_and_its_calls_whole(bridge: Bridge, api: Api) -> None:
    await converse_raw(bridge, SCRIPTS["one"], api=api, way="parked", tools=TOOLS[api])
    grammar = f"The text must match this Lark grammar:\n{LARK}"
    empty: JsonObject = {"type": "object", "properties": {}}
    for request in bridge.model.requests:
        assert request.body["tools"] == [
            {
                "type": "function",
                "name": "db_sql",
                "description": f"Runs SQL.\n\n{NOTE}\n\n{grammar}",
                "strict": False,
                "parameters": PARAMETERS,
            },
            {
                "type": "function",
                "name": "client_exec_command",
                "description": NOTE,
                "strict": False,
                "parameters": PARAMETERS,
            },
            {"type": "function", "name": "weather", "description": "", "strict": False, "parameters": empty},
        ]
    told: Any = inputs(bridge)[1]
    assert told[1:] == [
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "db_sql",
            "arguments": json.dumps({"input": TEXT}, ensure_ascii=False),
        },
        {"type": "function_call_output", "call_id": "c1", "output": "done c1"},
    ]


@pytest.mark.promise("tools.custom.grammar")
@BOTH_APIS
async def test_a_grammar_that_nobody_enforces_is_named(bridge: Bridge, api: Api) -> None:
    bridge.says("Hi.")
    body = {"model": MODEL, "messages" if api == "chat" else "input": [HI], "tools": TOOLS[api]}
    raw = await bridge.http.post(ROUTES[api], json=body)
    place = "tools[0].custom.format" if api == "chat" else "tools[0].format"
    assert (raw.status_code, raw.headers["x-turnbridge-ignored"]) == (200, place)


@pytest.mark.promise("tools.custom")
async def test_the_official_client_reads_the_stream_of_a_custom_call(bridge: Bridge) -> None:
    bridge.script(answer(SQL))
    asked: Any = {"model": MODEL, "input": "hi", "tools": TOOLS["responses"]}
    async with bridge.client.responses.stream(**asked) as stream:
        events: list[Any] = [event async for event in stream]
    of_call = [event for event in events if event.type.startswith("response.custom_tool_call_input")]
    assert [event.type.rpartition(".")[2] for event in of_call] == ["delta", "done"]
    assert (of_call[0].delta, of_call[1].input) == (TEXT, TEXT)
    (call,) = events[-1].response.output
    assert (call.type, call.name, call.input, call.call_id) == ("custom_tool_call", "db.sql", TEXT, "c1")


@pytest.mark.promise("tools.custom")
async def test_the_official_client_reads_a_custom_call_of_chat(bridge: Bridge) -> None:
    bridge.script(answer(SQL))
    asked: Any = {"model": MODEL, "messages": [HI], "tools": TOOLS["chat"]}
    completion = await bridge.client.chat.completions.create(**asked)
    (choice,) = completion.choices
    (call,) = choice.message.tool_calls or []
    assert call.type == "custom"
    assert (choice.finish_reason, call.id, call.custom.name, call.custom.input) == ("tool_calls", "c1", "db.sql", TEXT)


@pytest.mark.promise("tools.custom")
@BOTH_APIS
async def test_a_custom_tool_can_be_the_only_choice(bridge: Bridge, api: Api) -> None:
    bridge.script(answer(RUN))
    choice = {"type": "custom", "custom": {"name": "exec_command"}}
    options = {
        "tools": TOOLS[api],
        "tool_choice": choice if api == "chat" else {"type": "custom", "name": "exec_command"},
    }
    body = {"messages" if api == "chat" else "input": [HI], **options}
    said, _ = await answered(bridge, api, body)
    assert "exec_command" in json.dumps(said)
    given: Any = bridge.seen()["tools"]
    assert [tool["name"] for tool in given] == ["client_exec_command"]


@pytest.mark.promise("tools.custom.corrected")
@BOTH_APIS
async def test_a_call_that_is_no_text_is_corrected_inside_the_turn(bridge: Bridge, api: Api) -> None:
    wrong = function_call("db_sql", {"query": "SELECT 1"}, call_id="c0")
    bridge.script(answer(wrong), answer(SQL))
    body = {"messages" if api == "chat" else "input": [HI], "tools": TOOLS[api]}
    said, _ = await answered(bridge, api, body)
    assert "c0" not in json.dumps(said)
    told: Any = inputs(bridge)[1]
    assert told[-1]["call_id"] == "c0"
    assert told[-1]["output"].startswith("Invalid arguments, not run:")


@pytest.mark.promise("tools.custom", "threads.warm")
@BOTH_APIS
async def test_a_conversation_with_custom_calls_goes_on_in_its_thread(tmp_path: Path, api: Api) -> None:
    async with running_bridge(tmp_path, PROXY_WARM_THREADS_MAX=8) as bridge:
        bridge.script(*SCRIPTS["one"], answer(message("More.")), answer(message("More.")))
        history: list[Any] = [HI]
        ways, shown = [], []
        for more in (None, {"role": "user", "content": "And now?"}, {"role": "user", "content": "And now?"}):
            while True:
                body = {"messages" if api == "chat" else "input": history, "tools": TOOLS[api]}
                said, served = await answered(bridge, api, body)
                ways.append(served)
                history += said
                if "c1" not in json.dumps(said):
                    break
                output = {"role": "tool", "tool_call_id": "c1", "content": "done"}
                custom = {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"}
                history.append(output if api == "chat" else custom)
            shown.append(inputs(bridge)[-1])
            if len(ways) > 2:
                # The same once more, without the thread.
                history = history[: -len(said)]
                bridge.gateway.warm.close()
            elif more is None:
                history.append({"role": "user", "content": "And now?"})
    assert ways == ["fresh", "parked", "warm", "replayed"]
    assert shown[1] == shown[2]


@pytest.mark.promise("tools.custom", "state.tools")
async def test_the_output_of_a_custom_call_continues_a_stored_response(bridge: Bridge) -> None:
    bridge.script(answer(SQL), answer(message("Done.")), answer(message("Done.")))
    asked: Any = {"model": MODEL, "tools": TOOLS["responses"]}
    first = await bridge.client.responses.create(input="hi", **asked)
    output: Any = [{"type": "custom_tool_call_output", "call_id": "c1", "output": "none"}]
    for way in ("parked", "replayed"):
        raw = await bridge.client.responses.with_raw_response.create(
            input=output, previous_response_id=first.id, **asked
        )
        assert raw.headers["x-turnbridge-thread"] == way
    assert inputs(bridge)[1] == inputs(bridge)[2]
