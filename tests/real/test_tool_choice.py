"""What a client demands of calls and Codex does not know, through the real Codex: which, how many, how well formed."""

from typing import Any

import openai
import pytest

from tests.real.test_answers import CITATION, cited
from tests.support.gateway import Bridge
from tests.support.tool_clients import (
    HI,
    MODEL,
    ROUTES,
    TOOLS,
    WEATHER,
    Api,
    ask,
    converse_both_ways,
    declared,
    inputs,
    output_item,
    shown_outputs,
    threads,
    weather_call,
)
from turnbridge.api.shared.tools import WHY
from turnbridge.engine.turn_rules import CALL_NOW, NOT_RUN_ALONE, NOT_RUN_WITH_INVALID
from turnbridge.scripted_model.replies import (
    OutputItem,
    Reply,
    Usage,
    answer,
    function_call,
    message,
    reasoning,
    web_search_call,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

BOTH_APIS = pytest.mark.parametrize("api", ["chat", "responses"])
WHOLE_AND_STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
ROME, OSLO = weather_call("Rome", "call_1"), weather_call("Oslo", "call_2")
SUNNY = answer(message("Sunny."))
ALL = ["weather", "client_mcp__clock__now", "files_read"]

FLAT: JsonObject = {"type": "function", "name": "weather"}
NESTED: JsonObject = {"type": "function", "function": {"name": "weather"}}


def allowed(mode: str, *tools: JsonObject) -> JsonObject:
    return {"type": "allowed_tools", "mode": mode, "tools": [*tools]}


def nested_allowed(mode: str, *tools: JsonObject) -> JsonObject:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*tools]}}


def said(role: str, text: str) -> JsonObject:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def names_given(bridge: Bridge) -> list[str]:
    """Return the functions that the model was given in its last request."""
    tools: Any = bridge.model.requests[-1].body["tools"]
    return [tool["name"] for tool in tools]


async def refusal(bridge: Bridge, api: Api, *, stream: bool = False, **options: object) -> tuple[int, JsonObject]:
    """Return the error that a request gets instead of an answer."""
    asked = {"messages" if api == "chat" else "input": [HI], "model": MODEL, "tools": declared(api), "stream": stream}
    response = await bridge.http.post(ROUTES[api], json={**asked, **options})
    error: JsonObject = response.json()["error"]
    return response.status_code, error


@pytest.mark.promise("tools.choice")
@pytest.mark.parametrize(
    ("api", "choice", "names"),
    [
        ("chat", "auto", ALL),
        ("responses", "auto", ALL),
        ("chat", "required", ALL),
        ("responses", "required", ALL),
        ("chat", NESTED, ["weather"]),
        ("chat", FLAT, ["weather"]),
        ("responses", FLAT, ["weather"]),
        ("chat", nested_allowed("auto", NESTED), ["weather"]),
        ("chat", nested_allowed("required", NESTED), ["weather"]),
        ("responses", allowed("auto", FLAT, {"type": "function", "name": "files.read"}), ["weather", "files_read"]),
        ("responses", allowed("required", FLAT), ["weather"]),
    ],
)
async def test_the_model_is_given_the_functions_that_the_choice_allows(
    bridge: Bridge, api: Api, choice: Json, names: list[str]
) -> None:
    bridge.script(answer(ROME))
    shown, _ = await ask(bridge, api, [HI], tool_choice=choice)
    assert shown == {"text": "", "calls": [["call_1", "weather", '{"city": "Rome"}']]}
    assert names_given(bridge) == names


@pytest.mark.promise("tools.choice")
@BOTH_APIS
async def test_the_model_is_given_nothing_if_nothing_may_be_called(bridge: Bridge, api: Api) -> None:
    bridge.script(SUNNY)
    shown, _ = await ask(bridge, api, [HI], tool_choice="none")
    assert shown == {"text": "Sunny.", "calls": []}
    assert names_given(bridge) == []


MUST = [
    ("chat", "required"),
    ("chat", NESTED),
    ("chat", nested_allowed("required", NESTED)),
    ("responses", "required"),
    ("responses", FLAT),
    ("responses", allowed("required", FLAT)),
]


@pytest.mark.promise("tools.choice.required")
@pytest.mark.parametrize(("api", "choice"), MUST)
async def test_a_model_that_does_not_call_is_reminded_once_on_the_same_thread(
    bridge: Bridge, api: Api, choice: Json
) -> None:
    bridge.script(answer(message("I think it is sunny.")), answer(ROME))
    shown, _ = await ask(bridge, api, [HI], tool_choice=choice)
    assert shown == {"text": "I think it is sunny.", "calls": [["call_1", "weather", '{"city": "Rome"}']]}
    assert inputs(bridge)[-1] == [
        said("user", "What is the weather?"),
        said("assistant", "I think it is sunny."),
        said("user", CALL_NOW),
    ]
    assert threads(bridge) == 1


@pytest.mark.promise("tools.choice.required")
@WHOLE_AND_STREAMED
@BOTH_APIS
async def test_a_turn_that_needed_a_reminder_goes_on_parked_or_replayed(bridge: Bridge, api: Api, stream: bool) -> None:
    seen: list[list[Json]] = []
    for parked in (True, False):
        bridge.script(answer(reasoning(["Hm."], encrypted="S"), message("It is sunny.")), answer(ROME, OSLO), SUNNY)
        history: list[Any] = [HI]
        _, calls = await ask(bridge, api, history, stream=stream, tool_choice="required")
        history += [output_item(api, call_id, "sunny") for call_id, _, _ in calls]
        if not parked:
            bridge.gateway.calls.close()
        shown, _ = await ask(bridge, api, history, stream=stream)
        assert threads(bridge) == (1 if parked else 2)
        seen.append([shown, *inputs(bridge)])
    assert seen[0] == seen[1]


@pytest.mark.promise("tools.choice.failure")
@BOTH_APIS
async def test_a_model_that_never_calls_ends_in_an_honest_error(bridge: Bridge, api: Api) -> None:
    bridge.script(SUNNY, SUNNY)
    assert await refusal(bridge, api, tool_choice="required") == (
        422,
        {
            "message": "The model answered without the tool call that `tool_choice` requires.",
            "type": "server_error",
            "param": None,
            "code": "tool_call_missing",
        },
    )
    assert len(bridge.model.requests) == 2


@pytest.mark.promise("tools.choice.failure")
async def test_a_stream_that_has_shown_an_answer_without_a_call_ends_as_failed(bridge: Bridge) -> None:
    bridge.script(SUNNY, SUNNY)
    asked: Any = {"model": MODEL, "input": "hi", "tools": declared("responses"), "tool_choice": "required"}
    events: Any = await bridge.client.responses.create(**asked, stream=True)
    with pytest.raises(openai.APIError) as raised:
        [event async for event in events]
    assert raised.value.code == "tool_call_missing"
    bridge.script(SUNNY, SUNNY)
    with pytest.raises(openai.APIError) as raised:
        await ask(bridge, "chat", [HI], stream=True, tool_choice="required")
    assert raised.value.code == "tool_call_missing"


@pytest.mark.promise("tools.choice.required")
async def test_usage_counts_the_answer_that_had_to_be_corrected(bridge: Bridge) -> None:
    counted = Usage(input_tokens=100, output_tokens=10)
    bridge.script(answer(message("No."), usage=counted), answer(ROME, usage=counted))
    asked: Any = {"model": MODEL, "input": "hi", "tools": declared("responses"), "tool_choice": "required"}
    response: Any = await bridge.client.responses.create(**asked)
    assert (response.usage.input_tokens, response.usage.output_tokens) == (200, 20)


@pytest.mark.promise("tools.batch.text", "tools.parallel-off")
@WHOLE_AND_STREAMED
@BOTH_APIS
async def test_a_client_that_runs_one_call_at_a_time_gets_one_and_the_model_hears_of_it(
    bridge: Bridge, api: Api, stream: bool
) -> None:
    seen = await converse_both_ways(
        bridge,
        [answer(message("Both."), ROME, OSLO), answer(weather_call("Oslo", "call_3")), SUNNY],
        api=api,
        stream=stream,
        parallel_tool_calls=False,
    )
    assert seen.client == [
        {"text": "Both.", "calls": [["call_1", "weather", '{"city": "Rome"}']]},
        {"text": "", "calls": [["call_3", "weather", '{"city": "Oslo"}']]},
        {"text": "Sunny.", "calls": []},
    ]
    assert shown_outputs(seen.model[1]) == ['weather says {"city": "Rome"}', NOT_RUN_ALONE]


STRICT: list[JsonObject] = [{**TOOLS[0], "strict": True}]


def wrong(number: int) -> OutputItem:
    return function_call("weather", {"city": number}, call_id=f"call_wrong{number}")


@pytest.mark.promise("tools.batch.together", "tools.strict")
@WHOLE_AND_STREAMED
@BOTH_APIS
@pytest.mark.parametrize("times", [1, 2])
async def test_a_strict_call_with_wrong_arguments_is_corrected_before_the_client_sees_it(
    bridge: Bridge, api: Api, stream: bool, times: int
) -> None:
    replies = [*(answer(wrong(number)) for number in range(times)), answer(ROME, OSLO), SUNNY]
    seen = await converse_both_ways(bridge, replies, api=api, stream=stream, tools=declared(api, STRICT))
    assert seen.client[0] == {
        "text": "",
        "calls": [["call_1", "weather", '{"city": "Rome"}'], ["call_2", "weather", '{"city": "Oslo"}']],
    }
    told = shown_outputs(seen.model[times])
    assert len(told) == times
    assert all(isinstance(output, str) and output.startswith("Invalid arguments, not run: ") for output in told)
    assert "is not of type" in str(told[0])


@pytest.mark.promise("tools.strict")
async def test_all_calls_of_a_batch_with_a_wrong_one_are_to_be_made_again(bridge: Bridge) -> None:
    seen = await converse_both_ways(
        bridge,
        [answer(ROME, wrong(1)), answer(weather_call("Rome", "call_3")), SUNNY],
        api="chat",
        tools=declared("chat", STRICT),
    )
    assert seen.client[0] == {"text": "", "calls": [["call_3", "weather", '{"city": "Rome"}']]}
    first, second = shown_outputs(seen.model[1])
    assert first == NOT_RUN_WITH_INVALID
    assert str(second).startswith("Invalid arguments, not run: ")


@pytest.mark.promise("tools.strict.failure")
@WHOLE_AND_STREAMED
@BOTH_APIS
async def test_a_strict_call_that_stays_wrong_fails_and_nothing_of_it_was_shown(
    bridge: Bridge, api: Api, stream: bool
) -> None:
    bridge.script(*(answer(wrong(number)) for number in range(3)))
    status, error = await refusal(bridge, api, stream=stream, tools=declared(api, STRICT))
    assert (status, error["code"]) == (422, "invalid_tool_arguments")
    assert len(bridge.model.requests) == 3


@pytest.mark.promise("tools.strict")
async def test_functions_that_are_not_strict_are_called_as_the_model_likes(bridge: Bridge) -> None:
    bridge.script(answer(wrong(7)))
    shown, _ = await ask(bridge, "responses", [HI])
    assert shown == {"text": "", "calls": [["call_wrong7", "weather", '{"city": 7}']]}


UNSAID: list[JsonObject] = [{name: value for name, value in TOOLS[0].items() if name != "strict"}]


@pytest.mark.promise("tools.strict.default")
@WHOLE_AND_STREAMED
async def test_on_responses_a_function_whose_schema_allows_it_is_strict_unless_it_says_otherwise(
    bridge: Bridge, stream: bool
) -> None:
    bridge.script(answer(wrong(7)), answer(ROME))
    shown, _ = await ask(bridge, "responses", [HI], stream=stream, tools=declared("responses", UNSAID))
    assert shown == {"text": "", "calls": [["call_1", "weather", '{"city": "Rome"}']]}
    assert len(bridge.model.requests) == 2


@pytest.mark.promise("tools.strict.default")
async def test_on_chat_a_function_is_strict_only_if_it_says_so(bridge: Bridge) -> None:
    bridge.script(answer(wrong(7)))
    shown, _ = await ask(bridge, "chat", [HI], tools=declared("chat", UNSAID))
    assert shown == {"text": "", "calls": [["call_wrong7", "weather", '{"city": 7}']]}


@pytest.mark.promise("tools.strict.default")
async def test_the_response_says_which_functions_are_strict(bridge: Bridge) -> None:
    open_schema: JsonObject = {"type": "object", "properties": {}}
    functions: list[JsonObject] = [
        {"type": "function", "name": "closed", "parameters": WEATHER},
        {"type": "function", "name": "open", "parameters": open_schema},
        {"type": "function", "name": "declined", "parameters": WEATHER, "strict": False},
        {"type": "function", "name": "demanded", "parameters": WEATHER, "strict": True},
    ]
    bridge.says("ok")
    sent: JsonObject = {"model": "gpt-5.5", "input": "Hi", "tools": [*functions]}
    reply = await bridge.http.post("/v1/responses", json=sent)
    strict = {tool["name"]: tool["strict"] for tool in reply.json()["tools"]}
    assert strict == {"closed": True, "open": False, "declined": False, "demanded": True}


@pytest.mark.promise("tools.hosted")
@BOTH_APIS
async def test_all_tools_that_codex_cannot_carry_are_refused_at_once(bridge: Bridge, api: Api) -> None:
    tools: list[JsonObject] = [
        {"type": "file_search"},
        *declared(api)[:1],
        {"type": "computer_use"},
        {"type": "gesture"},
    ]
    status, error = await refusal(bridge, api, tools=tools)
    assert (status, error["code"], error["param"]) == (400, "unsupported_tool", "tools[0].type")
    for named in ("'file_search'", "'computer_use'", "'gesture'", "tools[0]", "tools[2]", "tools[3]"):
        assert named in str(error["message"])


@pytest.mark.promise("tools.legacy")
@WHOLE_AND_STREAMED
async def test_legacy_functions_are_called_in_their_own_words(bridge: Bridge, stream: bool) -> None:
    bridge.script(answer(message("Looking."), weather_call("Rome", "call_a"), weather_call("Oslo", "call_b")), SUNNY)
    function: JsonObject = {"name": "weather", "description": "The weather.", "parameters": WEATHER}
    history: list[JsonObject] = [HI]
    answered = await legacy_round(bridge, history, function, stream=stream)
    call: JsonObject = {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert answered == ({"role": "assistant", "content": "Looking.", "function_call": call}, "function_call")
    history += [answered[0], {"role": "function", "name": "weather", "content": "sunny"}]
    answered = await legacy_round(bridge, history, function, stream=stream)
    assert answered == ({"role": "assistant", "content": "Sunny."}, "stop")
    # The legacy words have no ids; the gateway gives each call one by its place.
    assert inputs(bridge)[-1] == [
        said("user", "What is the weather?"),
        said("assistant", "Looking."),
        {"type": "function_call", "call_id": "call_1", **call},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
    ]
    assert bridge.model.requests[-1].body["tools"] == [{"type": "function", **function, "strict": False}]


async def legacy_round(
    bridge: Bridge, messages: list[JsonObject], function: JsonObject, *, stream: bool
) -> tuple[JsonObject, str]:
    """Ask once in the legacy words, and return the message and why it ended."""
    asked: Any = {"model": MODEL, "messages": messages, "functions": [function]}
    if not stream:
        completion: Any = await bridge.client.chat.completions.create(**asked)
        (choice,) = completion.choices
        message: JsonObject = choice.message.model_dump(include={"role", "content", "function_call"}, exclude_none=True)
        return message, choice.finish_reason
    chunks: Any = await bridge.client.chat.completions.create(**asked, stream=True)
    content, call, reason = "", {"name": "", "arguments": ""}, ""
    async for chunk in chunks:
        (choice,) = chunk.choices
        content += choice.delta.content or ""
        reason = choice.finish_reason or reason
        if choice.delta.function_call:
            call["name"] += choice.delta.function_call.name or ""
            call["arguments"] += choice.delta.function_call.arguments or ""
    told: JsonObject = {"role": "assistant", "content": content}
    return (told | {"function_call": dict(call)} if call["name"] else told), reason


@pytest.mark.promise("tools.legacy")
@pytest.mark.parametrize(
    ("choice", "names"), [("auto", ["a", "b"]), ("none", []), ({"name": "b"}, ["b"])], ids=["auto", "none", "named"]
)
async def test_the_legacy_choice_is_met_too(bridge: Bridge, choice: Json, names: list[str]) -> None:
    bridge.script(answer(function_call("b", "{}", call_id="call_1")) if names else SUNNY)
    functions = [{"name": name, "parameters": {"type": "object", "properties": {}}} for name in ("a", "b")]
    asked: Any = {"model": MODEL, "messages": [HI], "functions": functions, "function_call": choice}
    completion: Any = await bridge.client.chat.completions.create(**asked)
    assert completion.choices[0].finish_reason == ("function_call" if names else "stop")
    assert names_given(bridge) == names


HOSTED = ["file_search", "code_interpreter", "computer_use_preview", "local_shell"]


CARRIED: dict[Api, str] = {
    "chat": "Functions, custom tools, namespaces of these and 'web_search' can.",
    "responses": "Functions, custom tools, namespaces of these, 'image_generation', 'mcp', 'tool_search' and "
    "'web_search' can.",
}


@pytest.mark.promise("tools.hosted")
@pytest.mark.parametrize("tool", HOSTED)
@BOTH_APIS
async def test_a_tool_that_codex_cannot_carry_is_refused_by_its_place(bridge: Bridge, api: Api, tool: str) -> None:
    assert await refusal(bridge, api, tools=[*declared(api)[:1], {"type": tool}]) == (
        400,
        {
            "message": f"Tools of type '{tool}' cannot be carried to Codex. {CARRIED[api]} {WHY[tool]}",
            "type": "invalid_request_error",
            "param": "tools[1].type",
            "code": "unsupported_tool",
        },
    )


SEARCH: JsonObject = {
    "type": "web_search",
    "search_context_size": "high",
    "filters": {"allowed_domains": ["example.com"]},
    "user_location": {"type": "approximate", "city": "Rome", "country": "IT"},
    "external_web_access": False,
}
# What Codex always asks for.
CONTENTS: JsonObject = {"search_content_types": ["text", "image"]}


@pytest.mark.promise("tools.web-search")
async def test_web_search_reaches_the_model_with_its_options_for_this_thread_only(bridge: Bridge) -> None:
    bridge.script(SUNNY, SUNNY)
    await ask(bridge, "responses", [HI], tools=[SEARCH])
    await ask(bridge, "responses", [HI], tools=[])
    assert [request.body["tools"] for request in bridge.model.requests] == [[{**SEARCH, **CONTENTS}], []]


@pytest.mark.promise("tools.web-search")
async def test_chat_clients_ask_for_web_search_by_an_option(bridge: Bridge) -> None:
    bridge.script(SUNNY)
    place = {"type": "approximate", "approximate": {"city": "Rome"}}
    options = {"search_context_size": "low", "user_location": place}
    await ask(bridge, "chat", [HI], tools=[], web_search_options=options)
    search: JsonObject = {"type": "web_search", "search_context_size": "low", "external_web_access": True}
    located: JsonObject = {"user_location": {"type": "approximate", "city": "Rome"}}
    assert bridge.seen()["tools"] == [{**search, **located, **CONTENTS}]


@pytest.mark.promise("tools.web-search.shown")
@WHOLE_AND_STREAMED
async def test_searches_and_citations_are_shown(bridge: Bridge, stream: bool) -> None:
    bridge.script(answer(web_search_call("weather rome", id="ws_1"), cited("Sunny.")))
    history: list[Any] = [HI]
    await ask(bridge, "responses", history, stream=stream, tools=[SEARCH])
    _, search, told = history
    action: JsonObject = {"type": "search", "query": "weather rome"}
    assert search == {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    assert told["content"][0]["annotations"] == [CITATION]


@pytest.mark.promise("tools.web-search.shown")
async def test_citations_are_shown_on_chat_too(bridge: Bridge) -> None:
    bridge.script(answer(web_search_call("weather rome"), cited("Sunny.")))
    asked: Any = {"model": MODEL, "messages": [HI], "web_search_options": {}}
    completion: Any = await bridge.client.chat.completions.create(**asked)
    nested = {key: value for key, value in CITATION.items() if key != "type"}
    assert [a.model_dump() for a in completion.choices[0].message.annotations] == [
        {"type": "url_citation", "url_citation": nested}
    ]


@pytest.mark.promise("tools.web-search.shown")
@BOTH_APIS
async def test_a_search_before_a_call_stays_in_the_models_memory(bridge: Bridge, api: Api) -> None:
    options: dict[str, Any] = {"tools": [*declared(api), SEARCH]}
    searching: list[Reply] = [answer(web_search_call("rome", id="ws_1"), message("Hm."), ROME), SUNNY]
    seen = await converse_both_ways(bridge, searching, api=api, **options)
    items: Any = seen.model[1]
    searches = [item for item in items if item["type"] == "web_search_call"]
    assert searches == [{"type": "web_search_call", "action": {"type": "search", "query": "rome"}}]


@pytest.mark.promise("tools.choice.required")
async def test_a_search_is_a_call_to_a_client_that_requires_one(bridge: Bridge) -> None:
    bridge.script(answer(web_search_call("rome"), message("Sunny.")))
    shown, _ = await ask(bridge, "responses", [HI], tools=[*declared("responses"), SEARCH], tool_choice="required")
    assert shown == {"text": "Sunny.", "calls": []}
    assert len(bridge.model.requests) == 1
