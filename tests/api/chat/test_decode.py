"""What a request of the Chat Completions API asks for."""

import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from tests.api.shared.exact import exact
from tests.support.turn_requests import changed, turn_request
from turnbridge.api.chat.decode import decode
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Json,
    JsonObject,
    Message,
    TextPart,
)
from turnbridge.turn.request import (
    AnyJsonObject,
    JsonOfSchema,
    TurnRequest,
    WebSearch,
)

OFFICIAL: TypeAdapter[ChatCompletionMessageParam] = TypeAdapter(ChatCompletionMessageParam)
PNG = "data:image/png;base64,iVBORw0KGgo="
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def text(words: str) -> TextPart:
    return TextPart(text=words)


HELLO: JsonObject = {"role": "user", "content": "Hi"}
HI = Message(role="user", parts=(text("Hi"),))
# Clients show a summary of the reasoning where there is one, so it is wished for, but not insisted on.
PLAIN = turn_request(model="gpt-5.5", items=(HI,), summary="auto", summary_needed=False)
CALLS: JsonObject = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
}
RETURN: JsonObject = {"role": "tool", "tool_call_id": "call_1", "content": "42"}
TOOL: JsonObject = {"type": "function", "function": {"name": "add"}}
LEGACY: JsonObject = {"name": "old"}
CALL = FunctionCall(call_id="call_1", name="add", arguments="{}")

# Lists of messages that the official client can send, and what they mean.
MESSAGES: list[tuple[list[JsonObject], list[Item]]] = [
    (
        [{"role": "system", "content": "Be kind."}, {"role": "developer", "content": "Be brief."}, HELLO],
        [
            Message(role="developer", parts=(text("Be kind."),)),
            Message(role="developer", parts=(text("Be brief."),)),
            HI,
        ],
    ),
    (
        [
            {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image_url", "image_url": {"url": PNG, "detail": "high"}},
                    {"type": "file", "file": {"filename": "a.txt", "file_data": "aGk="}},
                ],
            },
        ],
        [
            Message(role="developer", parts=(text("Be kind."),)),
            Message(
                role="user",
                parts=(
                    text("See"),
                    ImagePart(url=PNG, detail="high", param="messages[1].content[1]"),
                    FilePart(filename="a.txt", mime_type=None, data=b"hi", param="messages[1].content[2]"),
                ),
            ),
        ],
    ),
    (
        [
            HELLO,
            {"role": "assistant", "content": "Yes."},
            {"role": "assistant", "content": [{"type": "text", "text": "And no."}]},
            {"role": "assistant", "content": None, "refusal": "I will not."},
            {"role": "assistant", "content": "", "refusal": "Not at all."},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "Never."}]},
        ],
        [
            HI,
            *(
                Message(role="assistant", parts=(text(words),))
                for words in ("Yes.", "And no.", "I will not.", "Not at all.", "Never.")
            ),
        ],
    ),
    ([HELLO, CALLS, RETURN], [HI, CALL, FunctionCallOutput(call_id="call_1", output="42")]),
    (
        [
            {
                **CALLS,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                    {"id": "call_2", "type": "custom", "custom": {"name": "sql", "input": 'SELECT "ü"'}},
                ],
            },
            {**RETURN, "tool_call_id": "call_2", "content": "none"},
            RETURN,
        ],
        [
            CALL,
            FunctionCall(call_id="call_2", name="sql", arguments='{"input":"SELECT \\"ü\\""}', custom=True),
            FunctionCallOutput(call_id="call_2", output="none", custom=True),
            FunctionCallOutput(call_id="call_1", output="42"),
        ],
    ),
    (
        [
            {**CALLS, "content": "I add."},
            {**RETURN, "content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]},
        ],
        [
            Message(role="assistant", parts=(text("I add."),)),
            CALL,
            FunctionCallOutput(call_id="call_1", output=(text("4"), text("2"))),
        ],
    ),
    ([HELLO, {**CALLS, "content": ""}, RETURN], [HI, CALL, FunctionCallOutput(call_id="call_1", output="42")]),
    # The legacy form of calls has no ids.
    (
        [
            {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}},
            {"role": "function", "name": "add", "content": "42"},
        ],
        [
            FunctionCall(call_id="call_0", name="add", arguments="{}"),
            FunctionCallOutput(call_id="call_0", output="42"),
        ],
    ),
]

# Every wish, and what of it reaches the turn.
WISHES: list[tuple[JsonObject, TurnRequest]] = [
    ({}, PLAIN),
    ({"stream": True, "stream_options": {"include_usage": True}}, changed(PLAIN, streamed=True)),
    ({"reasoning_effort": "xhigh"}, changed(PLAIN, effort="xhigh")),
    (
        {"reasoning": {"effort": "low", "summary": "detailed"}},
        changed(PLAIN, effort="low", summary="detailed", summary_needed=True),
    ),
    ({"verbosity": "low"}, changed(PLAIN, verbosity="low")),
    ({"response_format": {"type": "text"}}, PLAIN),
    (
        {"response_format": {"type": "json_object"}, "messages": [{"role": "user", "content": "JSON!"}]},
        changed(PLAIN, output=AnyJsonObject(), items=(Message(role="user", parts=(text("JSON!"),)),)),
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "description": "An x.", "schema": SCHEMA, "strict": True},
            }
        },
        changed(
            PLAIN,
            output=JsonOfSchema(name="x", description="An x.", schema=SCHEMA, strict=True, enforced=True),
        ),
    ),
    ({"max_tokens": 1}, changed(PLAIN, max_output_tokens=1)),
    ({"max_completion_tokens": 7, "max_tokens": 9}, changed(PLAIN, max_output_tokens=7)),
    ({"stop": "END"}, changed(PLAIN, stop=("END",))),
    ({"service_tier": "priority"}, changed(PLAIN, service_tier="priority")),
    ({"service_tier": "scale"}, changed(PLAIN, ignored=("service_tier",))),
    (
        {
            "reasoning": {"effort": "low", "context": "all_turns"},
            "stream": True,
            "stream_options": {"include_obfuscation": True},
        },
        changed(
            PLAIN, effort="low", streamed=True, ignored=("reasoning.context", "stream_options.include_obfuscation")
        ),
    ),
    (
        {"stream": True, "stream_options": {"include_obfuscation": False, "other": None}},
        changed(PLAIN, streamed=True),
    ),
    ({"stream": False, "stream_options": None}, PLAIN),
    ({"reasoning": {"enabled": False}}, changed(PLAIN, ignored=("reasoning.enabled",))),
    (
        {"metadata": {"team": "a"}, "user": "u", "safety_identifier": "s"},
        changed(PLAIN, metadata={"team": "a", "user": "u", "safety_identifier": "s"}),
    ),
    ({"modalities": ["text"], "logprobs": False, "top_logprobs": 0, "n": 1}, PLAIN),
    ({"temperature": 1, "top_p": 1, "frequency_penalty": 0.0, "logit_bias": {}, "store": False}, PLAIN),
    (
        {"temperature": 0, "top_p": 0.5, "seed": 0, "logit_bias": {"50256": -100}, "store": True, "typo": 1},
        changed(PLAIN, ignored=("temperature", "top_p", "logit_bias", "seed", "typo")),
    ),
    (
        {"messages": [{"role": "user", "content": "Hi", "name": "Ann"}]},
        changed(PLAIN, ignored=("messages[0].name",)),
    ),
]

WRONG_DESCRIPTION = ("invalid_type", "tools[0].function.description")

BAD_REQUESTS: list[tuple[JsonObject, str | None, str | None]] = [
    ({"model": None}, "missing_required_parameter", "model"),
    ({"messages": None}, "missing_required_parameter", "messages"),
    ({"messages": "Hi"}, "invalid_type", "messages"),
    ({"messages": ["Hi"]}, "invalid_type", "messages[0]"),
    ({"messages": [{"content": "Hi"}]}, "missing_required_parameter", "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "missing_required_parameter", "messages[0].content"),
    ({"messages": [{"role": "user", "content": 7}]}, "invalid_type", "messages[0].content"),
    ({"messages": [HELLO, {"role": "robot", "content": "a"}]}, "invalid_value", "messages[1].role"),
    ({"messages": [{"role": "assistant", "content": None}]}, "missing_required_parameter", "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "unsupported_content_part",
        "messages[0].content[0].type",
    ),
    ({"messages": [CALLS]}, None, "messages"),
    ({"messages": [RETURN]}, None, "messages"),
    ({"messages": [CALLS, {**RETURN, "tool_call_id": None}]}, "missing_required_parameter", "messages[1].tool_call_id"),
    ({"messages": [CALLS, {**RETURN, "content": None}]}, "missing_required_parameter", "messages[1].content"),
    ({"messages": [{"role": "function", "name": "add", "content": "42"}]}, None, "messages[0]"),
    (
        {"messages": [{**CALLS, "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "n"}}]}]},
        "missing_required_parameter",
        "messages[0].tool_calls[0].custom.input",
    ),
    (
        {"messages": [{**CALLS, "tool_calls": [{"id": "a", "type": "gesture"}]}]},
        "unsupported_item",
        "messages[0].tool_calls[0].type",
    ),
    (
        {"messages": [{**CALLS, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "n"}}]}]},
        "missing_required_parameter",
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"logprobs": True}, "unsupported_parameter", "logprobs"),
    ({"top_logprobs": 3}, "unsupported_parameter", "top_logprobs"),
    ({"audio": {"voice": "alloy", "format": "wav"}}, "unsupported_parameter", "audio"),
    ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
    ({"response_format": {"type": "xml"}}, "invalid_value", "response_format.type"),
    ({"response_format": {"type": "json_object"}}, None, "messages"),
    ({"response_format": {"type": "json_schema"}}, "missing_required_parameter", "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        "missing_required_parameter",
        "response_format.json_schema.name",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "missing_required_parameter",
        "response_format.json_schema.schema",
    ),
    ({"verbosity": "loud"}, "invalid_value", "verbosity"),
    ({"reasoning": {"summary": "long"}}, "invalid_value", "reasoning.summary"),
    ({"reasoning_effort": 3}, "invalid_type", "reasoning_effort"),
    ({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
    ({"max_completion_tokens": -1}, "integer_below_min_value", "max_completion_tokens"),
    ({"n": 0}, "integer_below_min_value", "n"),
    ({"temperature": 2.1}, "decimal_above_max_value", "temperature"),
    ({"messages": []}, "empty_array", "messages"),
    ({"n": 129}, "integer_above_max_value", "n"),
    ({"stream": "yes"}, "invalid_type", "stream"),
    ({"stream_options": {"include_usage": "yes"}}, "invalid_type", "stream_options.include_usage"),
    ({"stream_options": {"include_usage": True}}, None, "stream_options"),
    ({"stream_options": {}, "stream": False}, None, "stream_options"),
    ({"max_tokens": 100.0}, "invalid_type", "max_tokens"),
    ({"max_completion_tokens": 1e2}, "invalid_type", "max_completion_tokens"),
    ({"n": 1.0}, "invalid_type", "n"),
    ({"seed": 7.0}, "invalid_type", "seed"),
    ({"tools": [{"type": "function", "function": {"name": "f", "description": 5}}]}, *WRONG_DESCRIPTION),
    ({"functions": [{"name": "f", "description": ["x"]}]}, "invalid_type", "functions[0].description"),
    ({"stop": ["1", "2", "3", "4", "5"]}, "array_above_max_length", "stop"),
    ({"metadata": {"k": "v" * 513}}, "string_above_max_length", "metadata"),
]


@pytest.mark.promise("items.shapes.chat")
@pytest.mark.parametrize(("messages", "expected"), MESSAGES)
def test_every_shape_of_message_means_what_it_says(messages: list[Json], expected: list[Item]) -> None:
    for message in messages:
        OFFICIAL.validate_python(message)
    assert exact(decode({"model": "gpt-5.5", "messages": messages}).turn.items) == exact(expected)


@pytest.mark.promise("parameters.ignored")
@pytest.mark.parametrize(("wishes", "expected"), WISHES)
def test_every_wish_reaches_the_turn_or_is_named_as_ignored(wishes: JsonObject, expected: TurnRequest) -> None:
    assert decode({"model": "gpt-5.5", "messages": [HELLO], **wishes}).turn == expected


@pytest.mark.promise("parameters.logprobs")
@pytest.mark.parametrize(("wrong", "code", "param"), BAD_REQUESTS)
def test_a_bad_request_is_refused_by_code_and_place(wrong: JsonObject, code: str | None, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode({"model": "gpt-5.5", "messages": [HELLO], **wrong})
    assert (caught.value.error_code, caught.value.param) == (code, param)


def test_the_name_of_a_function_beside_its_output_is_not_an_ignored_wish() -> None:
    call: JsonObject = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: list[Json] = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "done"},
    ]
    assert decode({"model": "gpt-5.5", "messages": messages}).turn.ignored == ()


def test_the_name_that_a_legacy_output_must_have_is_not_an_ignored_wish() -> None:
    messages: list[Json] = [
        {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}},
        {"role": "function", "name": "add", "content": "42"},
    ]
    assert decode({"model": "gpt-5.5", "messages": messages}).turn.ignored == ()


@pytest.mark.parametrize(
    ("wishes", "choices", "include_usage"),
    [
        ({}, 1, False),
        ({"n": 3}, 3, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, 1, True),
        ({"stream": True, "stream_options": {"include_usage": False}}, 1, False),
    ],
)
def test_the_shape_of_the_answer_is_what_was_asked_for(wishes: JsonObject, choices: int, include_usage: bool) -> None:
    asked = decode({"model": "gpt-5.5", "messages": [HELLO], **wishes})
    assert (asked.choices, asked.include_usage) == (choices, include_usage)


@pytest.mark.parametrize(
    ("wishes", "names", "ignored"),
    [
        ({"tools": [TOOL], "functions": [LEGACY]}, ["add"], ("functions",)),
        ({"tools": [TOOL], "functions": [LEGACY], "function_call": "none"}, ["add"], ("functions", "function_call")),
        ({"tools": [TOOL], "functions": [], "function_call": "auto"}, ["add"], ()),
        ({"functions": [LEGACY], "function_call": "auto"}, ["old"], ()),
        ({"functions": [LEGACY], "tool_choice": "none"}, ["old"], ("tool_choice",)),
    ],
)
def test_words_of_the_form_of_tools_that_does_not_count_are_named(
    wishes: JsonObject, names: list[str], ignored: tuple[str, ...]
) -> None:
    turn = decode({"model": "gpt-5.5", "messages": [HELLO], **wishes}).turn
    assert ([tool.name for tool in turn.spec.tools], turn.ignored) == (names, ignored)


def test_the_web_may_be_searched_beside_legacy_functions() -> None:
    turn = decode({"model": "gpt-5.5", "messages": [HELLO], "functions": [LEGACY], "web_search_options": {}}).turn
    assert turn.spec.web_search == WebSearch()


def test_a_type_inside_a_schemas_format_does_not_switch_it_off() -> None:
    kind: JsonObject = {"type": "json_schema", "json_schema": {"name": "x", "type": "text", "schema": SCHEMA}}
    turn = decode({"model": "gpt-5.5", "messages": [HELLO], "response_format": kind}).turn
    assert turn.spec.output == JsonOfSchema(name="x", schema=SCHEMA, strict=False, enforced=True)


@pytest.mark.promise("items.shapes.chat")
def test_outputs_that_come_after_the_calls_of_two_messages_belong_to_either_kind() -> None:
    custom: JsonObject = {"id": "call_0", "type": "custom", "custom": {"name": "note", "input": "x"}}
    outputs: list[Json] = [{"role": "tool", "tool_call_id": f"call_{number}", "content": "42"} for number in (0, 1)]
    items = decode({"model": "m", "messages": [{**CALLS, "tool_calls": [custom]}, CALLS, *outputs]}).turn.items
    assert [(item.call_id, item.custom) for item in items if isinstance(item, FunctionCallOutput)] == [
        ("call_0", True),
        ("call_1", False),
    ]


def test_the_legacy_form_of_a_call_has_one_output_and_room_for_one_call() -> None:
    called: JsonObject = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}}
    given: JsonObject = {"role": "function", "name": "add", "content": "42"}
    declared: Json = [{"name": "add", "parameters": SCHEMA}]
    messages: list[Json] = [HELLO, called, given]
    assert not decode({"model": "m", "messages": messages, "functions": declared}).turn.parallel_calls
    with pytest.raises(InvalidRequest, match="must follow the 'function_call'"):
        decode({"model": "m", "messages": [*messages, {"role": "assistant", "content": "42."}, given]})
