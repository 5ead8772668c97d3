"""What a request of the Responses API asks for."""

from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from openai.types.responses.response_input_param import ResponseInputItemParam
from pydantic import TypeAdapter

from tests.api.responses.decoded import decode
from tests.api.shared.exact import exact
from tests.support.turn_requests import changed, turn_request
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
    RawItem,
    Reasoning,
    TextPart,
)
from turnbridge.turn.request import AnyJsonObject, JsonOfSchema, TurnRequest

OFFICIAL: TypeAdapter[ResponseInputItemParam] = TypeAdapter(ResponseInputItemParam)
PNG = "data:image/png;base64,iVBORw0KGgo="
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def text(words: str) -> TextPart:
    return TextPart(text=words)


def nested(levels: int) -> Json:
    value: Json = None
    for _ in range(levels):
        value = [value]
    return value


HI = Message(role="user", parts=(text("Hi"),))
PLAIN = turn_request(model="gpt-5.5", items=(HI,))
CALL: JsonObject = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
OUTPUT: JsonObject = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
CUSTOM_CALL: JsonObject = {"type": "custom_tool_call", "call_id": "call_2", "name": "note", "input": "x"}
FOUND_CALL: JsonObject = {
    "type": "tool_search_call",
    "call_id": "call_3",
    "execution": "client",
    "arguments": {"query": "crm"},
}
FOUND: JsonObject = {
    "type": "tool_search_output",
    "call_id": "call_3",
    "execution": "client",
    "tools": [
        {
            "type": "namespace",
            "name": "crm",
            "description": "The CRM.",
            "tools": [{"type": "function", "name": "look", "defer_loading": True}],
        }
    ],
}
SHELL_CALL: JsonObject = {
    "type": "local_shell_call",
    "id": "lsh_1",
    "call_id": "call_4",
    "status": "completed",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
}
COMPACTION: JsonObject = {"type": "compaction", "encrypted_content": "gAAAAAB+/="}
CUSTOM_OUTPUT: JsonObject = {"type": "custom_tool_call_output", "call_id": "call_2", "output": "y"}
SEARCH: JsonObject = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "weather"},
}
PICTURE: JsonObject = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="}

# Lists of items that the official client can send, and what they mean.
INPUTS: list[tuple[list[JsonObject], list[Item]]] = [
    ([{"role": "user", "content": "Hi"}], [HI]),
    ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], [HI]),
    (
        [
            {"role": "system", "content": "Be kind."},
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        [
            Message(role="developer", parts=(text("Be kind."),)),
            Message(role="developer", parts=(text("Be brief."),)),
            HI,
        ],
    ),
    (
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "See"},
                    {"type": "input_image", "image_url": PNG, "detail": "high"},
                    {"type": "input_file", "filename": "a.txt", "file_data": "aGk="},
                ],
            }
        ],
        [
            Message(
                role="user",
                parts=(
                    text("See"),
                    ImagePart(url=PNG, detail="high", param="input[0].content[1]"),
                    FilePart(filename="a.txt", mime_type=None, data=b"hi", param="input[0].content[2]"),
                ),
            )
        ],
    ),
    # An answer that the client gives back, as it got it.
    (
        [
            {"role": "user", "content": "Hi"},
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "content": [{"type": "reasoning_text", "text": "All."}],
                "encrypted_content": "secret",
                "status": "completed",
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}],
            },
            {
                "type": "message",
                "id": "msg_2",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "refusal", "refusal": "I will not."}],
            },
            {"role": "assistant", "content": "Yes.", "phase": "final_answer"},
        ],
        [
            HI,
            Reasoning(id="rs_1", summary=("Hm.",), content=("All.",), encrypted="secret"),
            Message(role="assistant", parts=(text("I look."),), phase="commentary", id="msg_1"),
            Message(role="assistant", parts=(text("I will not."),), id="msg_2"),
            Message(role="assistant", parts=(text("Yes."),), phase="final_answer"),
        ],
    ),
    (
        [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}],
        [Reasoning(id="rs_1", summary=(), content=None, encrypted=None)],
    ),
    (
        [{**CALL, "id": "fc_1", "status": "completed"}, {**OUTPUT, "id": "fco_1", "status": "completed"}],
        [
            FunctionCall(call_id="call_1", name="add", arguments="{}", id="fc_1"),
            FunctionCallOutput(call_id="call_1", output="42", id="fco_1"),
        ],
    ),
    (
        [
            {**CALL, "namespace": "crm"},
            {**OUTPUT, "name": "add", "namespace": "crm"},
        ],
        [
            FunctionCall(call_id="call_1", name="add", arguments="{}", namespace="crm"),
            FunctionCallOutput(call_id="call_1", output="42", name="add", namespace="crm"),
        ],
    ),
    (
        [
            CALL,
            {
                **OUTPUT,
                "output": [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": PNG}],
            },
        ],
        [
            FunctionCall(call_id="call_1", name="add", arguments="{}"),
            FunctionCallOutput(call_id="call_1", output=(text("See"), ImagePart(url=PNG, param="input[1].output[1]"))),
        ],
    ),
    (
        [CUSTOM_CALL, CUSTOM_OUTPUT, SEARCH, PICTURE],
        [
            FunctionCall(call_id="call_2", name="note", arguments='{"input":"x"}', custom=True),
            FunctionCallOutput(call_id="call_2", output="y", custom=True),
            RawItem(item=SEARCH),
            RawItem(item=PICTURE),
        ],
    ),
    (
        [{**CUSTOM_CALL, "id": "ctc_1", "namespace": "crm"}, CUSTOM_OUTPUT],
        [
            FunctionCall(
                call_id="call_2", name="note", arguments='{"input":"x"}', namespace="crm", custom=True, id="ctc_1"
            ),
            FunctionCallOutput(call_id="call_2", output="y", custom=True),
        ],
    ),
    (
        [FOUND_CALL, {**FOUND, "tools": []}],
        [
            FunctionCall(call_id="call_3", name="tool_search", arguments='{"query":"crm"}'),
            FunctionCallOutput(call_id="call_3", output="[]"),
        ],
    ),
    (
        [{**FOUND_CALL, "execution": "server"}, {**FOUND, "execution": "server"}],
        [
            RawItem(item={**FOUND_CALL, "execution": "server"}),
            RawItem(item={**FOUND, "execution": "server"}),
        ],
    ),
    (
        [SHELL_CALL, {**OUTPUT, "call_id": "call_4"}],
        [RawItem(item=SHELL_CALL), FunctionCallOutput(call_id="call_4", output="42")],
    ),
    ([COMPACTION], [RawItem(item=COMPACTION)]),
]

# Every wish, and what of it reaches the turn.
WISHES: list[tuple[JsonObject, TurnRequest]] = [
    ({}, PLAIN),
    ({"instructions": "Be kind."}, changed(PLAIN, instructions="Be kind.")),
    ({"stream": True}, changed(PLAIN, streamed=True)),
    ({"stream": True, "stream_options": {"include_obfuscation": False}}, changed(PLAIN, streamed=True)),
    ({"stream": False, "stream_options": None}, PLAIN),
    ({"reasoning": {"effort": "xhigh", "summary": "detailed"}}, changed(PLAIN, effort="xhigh", summary="detailed")),
    ({"reasoning": {"generate_summary": "auto"}}, changed(PLAIN, summary="auto")),
    ({"reasoning": {"effort": None, "summary": None}}, PLAIN),
    ({"reasoning": {"enabled": False}}, changed(PLAIN, ignored=("reasoning.enabled",))),
    ({"text": {"verbosity": "low"}}, changed(PLAIN, verbosity="low")),
    ({"text": {"format": {"type": "text"}}}, PLAIN),
    (
        {"text": {"format": {"type": "json_object"}}, "instructions": "Answer in JSON."},
        changed(PLAIN, output=AnyJsonObject(), instructions="Answer in JSON."),
    ),
    (
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}},
        changed(PLAIN, output=JsonOfSchema(name="x", schema=SCHEMA, strict=True, enforced=True)),
    ),
    ({"max_output_tokens": 16}, changed(PLAIN, max_output_tokens=16)),
    ({"stop": ["END", "STOP"]}, changed(PLAIN, stop=("END", "STOP"))),
    ({"service_tier": "flex"}, changed(PLAIN, service_tier="flex")),
    ({"service_tier": "scale"}, changed(PLAIN, ignored=("service_tier",))),
    (
        {"reasoning": {"effort": "low", "context": "all_turns"}, "text": {"tone": "dry"}},
        changed(PLAIN, effort="low", ignored=("reasoning.context", "text.tone")),
    ),
    (
        {"metadata": {"team": "a"}, "user": "u", "safety_identifier": "s"},
        changed(PLAIN, metadata={"team": "a", "user": "u", "safety_identifier": "s"}),
    ),
    ({"truncation": "disabled"}, PLAIN),
    ({"truncation": "auto"}, changed(PLAIN, allow_truncation=True, ignored=("truncation",))),
    ({"include": ["reasoning.encrypted_content"]}, PLAIN),
    ({"include": ["file_search_call.results"]}, changed(PLAIN, ignored=("include[file_search_call.results]",))),
    (
        {"temperature": 1, "top_p": 1.0, "presence_penalty": 0, "store": False, "top_logprobs": 0, "background": False},
        PLAIN,
    ),
    (
        {"temperature": 0.2, "top_p": 0.5, "store": True, "prompt_cache_key": "k", "max_tool_calls": 3, "typo": 1},
        changed(PLAIN, ignored=("temperature", "top_p", "prompt_cache_key", "typo", "max_tool_calls")),
    ),
]

BAD_REQUESTS: list[tuple[JsonObject, str | None, str | None]] = [
    ({"model": None}, "missing_required_parameter", "model"),
    ({"model": ""}, "missing_required_parameter", "model"),
    ({"model": 7}, "invalid_type", "model"),
    ({"input": None}, "missing_required_parameter", "input"),
    ({"input": []}, "empty_array", "input"),
    ({"input": {"role": "user"}}, "invalid_type", "input"),
    ({"input": ["Hi"]}, "invalid_type", "input[0]"),
    ({"input": [{"content": "Hi"}]}, "unsupported_item", "input[0].type"),
    ({"input": [{"role": "user"}]}, "missing_required_parameter", "input[0].content"),
    ({"input": [{"role": "user", "content": None}]}, "invalid_type", "input[0].content"),
    ({"input": [{"role": "user", "content": "a"}, {"role": "tool", "content": "a"}]}, "invalid_value", "input[1].role"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "unsupported_content_part",
        "input[0].content[0].type",
    ),
    ({"input": [{"type": ["message"], "role": "user", "content": "Hi"}]}, "unsupported_item", "input[0].type"),
    ({"input": [{"type": "reasoning", "summary": [{}]}]}, "missing_required_parameter", "input[0].summary[0].text"),
    (
        {"input": [{"type": "function_call", "call_id": "a", "name": "b"}]},
        "missing_required_parameter",
        "input[0].arguments",
    ),
    ({"input": [CALL]}, None, "input"),
    ({"input": [OUTPUT]}, None, "input"),
    ({"prompt": {"id": "pmpt_1"}}, "unsupported_parameter", "prompt"),
    ({"prompt": {"id": "pmpt_1"}, "model": None}, "unsupported_parameter", "prompt"),
    ({"prompt": {"id": "pmpt_1"}, "model": None, "input": None}, "unsupported_parameter", "prompt"),
    ({"top_logprobs": 5}, "unsupported_parameter", "top_logprobs"),
    ({"include": ["message.output_text.logprobs"]}, "unsupported_parameter", "include"),
    ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
    ({"text": {"format": {"type": "json_object"}}}, None, "input"),
    ({"text": {"verbosity": "loud"}}, "invalid_value", "text.verbosity"),
    ({"reasoning": {"summary": "long"}}, "invalid_value", "reasoning.summary"),
    ({"reasoning": {"effort": 3}}, "invalid_type", "reasoning.effort"),
    ({"max_output_tokens": 15}, "integer_below_min_value", "max_output_tokens"),
    ({"top_p": -0.1}, "decimal_below_min_value", "top_p"),
    ({"max_output_tokens": "16"}, "invalid_type", "max_output_tokens"),
    ({"max_output_tokens": 100.0}, "invalid_type", "max_output_tokens"),
    ({"max_tool_calls": 1.0}, "invalid_type", "max_tool_calls"),
    ({"stream_options": {"include_obfuscation": False}}, None, "stream_options"),
    ({"stream": False, "stream_options": {}}, None, "stream_options"),
    ({"input": [{"role": "assistant", "content": "a", "phase": "bad"}]}, "invalid_value", "input[0].phase"),
    ({"input": [{"role": "assistant", "content": "a", "phase": 5}]}, "invalid_type", "input[0].phase"),
    ({"input": [{**CALL, "namespace": 5}]}, "invalid_type", "input[0].namespace"),
    ({"input": [{**CUSTOM_CALL, "input": 5}]}, "invalid_type", "input[0].input"),
    ({"input": [CUSTOM_CALL]}, None, "input"),
    ({"input": [CUSTOM_CALL, {**OUTPUT, "call_id": "call_2"}]}, None, "input"),
    ({"input": [FOUND_CALL]}, None, "input"),
    ({"input": [{**FOUND_CALL, "execution": "server"}]}, None, "input"),
    ({"input": [{**FOUND, "execution": "server"}]}, None, "input"),
    ({"input": [{**FOUND_CALL, "call_id": None}]}, "invalid_type", "input[0].call_id"),
    ({"input": [SHELL_CALL]}, None, "input"),
    ({"input": [{"type": "additional_tools", "role": "developer"}]}, "missing_required_parameter", "input[0].tools"),
    (
        {"input": [{"type": "additional_tools", "role": "developer", "tools": [{"type": "file_search"}]}]},
        "unsupported_tool",
        "input[0].tools[0].type",
    ),
    ({"tools": [{"type": "function", "name": "f", "description": 5}]}, "invalid_type", "tools[0].description"),
    ({"tools": [{"type": "function", "name": "f", "strict": "yes"}]}, "invalid_type", "tools[0].strict"),
    ({"truncation": "maybe"}, "invalid_value", "truncation"),
    ({"stream": "yes"}, "invalid_type", "stream"),
    ({"temperature": "hot"}, "invalid_type", "temperature"),
    ({"stop": ["1", "2", "3", "4", "5"]}, "array_above_max_length", "stop"),
    ({"metadata": {"k": "v" * 513}}, "string_above_max_length", "metadata"),
]

CARRIED_ITEMS = frozenset(
    {"message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
    | {"web_search_call", "image_generation_call", "compaction", "local_shell_call"}
    | {"tool_search_call", "tool_search_output", "additional_tools"}
    | {"mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"}
)


@pytest.mark.promise("items.shapes.responses")
def test_a_text_is_a_message_of_the_user() -> None:
    assert decode({"model": "gpt-5.5", "input": "Hi"}).turn == PLAIN


@pytest.mark.promise("items.shapes.responses")
@pytest.mark.parametrize(("items", "expected"), INPUTS)
def test_every_shape_of_input_means_what_it_says(items: list[Json], expected: list[Item]) -> None:
    for item in items:
        OFFICIAL.validate_python(item)
    assert exact(decode({"model": "gpt-5.5", "input": items}).turn.items) == exact(expected)


@pytest.mark.promise("parameters.ignored", "parameters.truncation")
@pytest.mark.parametrize(("wishes", "expected"), WISHES)
def test_every_wish_reaches_the_turn_or_is_named_as_ignored(wishes: JsonObject, expected: TurnRequest) -> None:
    assert decode({"model": "gpt-5.5", "input": "Hi", **wishes}).turn == expected


@pytest.mark.promise("responses.prompt")
@pytest.mark.parametrize(("wrong", "code", "param"), BAD_REQUESTS)
def test_a_bad_request_is_refused_by_code_and_place(wrong: JsonObject, code: str | None, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode({"model": "gpt-5.5", "input": "Hi", **wrong})
    assert (caught.value.error_code, caught.value.param) == (code, param)


def official_item_types() -> set[str]:
    """Return the type of every item that the official client knows."""
    types: set[str] = set()
    for shape in get_args(ResponseInputItemParam):
        hint = get_type_hints(shape)["type"]
        literals = [hint] if get_origin(hint) is Literal else get_args(hint)
        types |= {value for literal in literals for value in get_args(literal)}
    return types


@pytest.mark.promise("items.uncarried")
@pytest.mark.parametrize("kind", sorted(official_item_types() - CARRIED_ITEMS))
def test_an_item_that_codex_cannot_carry_is_named(kind: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode({"model": "gpt-5.5", "input": [{"role": "user", "content": "Hi"}, {"type": kind, "id": "x"}]})
    assert (caught.value.error_code, (caught.value.param or "").removesuffix(".type")) == (
        "unsupported_item",
        "input[1]",
    )


@pytest.mark.promise("items.fields")
def test_fields_of_items_that_codex_does_not_carry_are_named_once() -> None:
    calls: list[Json] = [{**CALL, "caller": {"type": "direct"}, "async": None, "status": "completed"}, OUTPUT]
    request = decode({"model": "gpt-5.5", "input": [*calls, *calls, {"role": "user", "content": "Hi", "name": "ann"}]})
    assert request.turn.ignored == ("input[].caller", "input[].name")


def test_encrypted_reasoning_is_given_out_only_if_asked_for() -> None:
    assert decode({"model": "gpt-5.5", "input": "Hi", "include": ["reasoning.encrypted_content"]}).include_encrypted
    assert not decode({"model": "gpt-5.5", "input": "Hi"}).include_encrypted


def test_a_message_may_have_no_type_in_so_many_words() -> None:
    items: list[Json] = [{"type": None, "role": "user", "content": "Hi"}]
    assert decode({"model": "gpt-5.5", "input": items}).turn == PLAIN


@pytest.mark.parametrize("extra", [nested(140), 2**70], ids=["deep", "large"])
def test_an_item_that_codex_cannot_read_is_refused(extra: Json) -> None:
    items: list[Json] = [{"role": "user", "content": "Hi"}, {**SEARCH, "extra": extra}]
    with pytest.raises(InvalidRequest) as caught:
        decode({"model": "gpt-5.5", "input": items})
    assert (caught.value.error_code, caught.value.param) == ("invalid_value", "input[1]")


def of_server(item_id: str, output: str) -> JsonObject:
    call: JsonObject = {"type": "mcp_call", "id": item_id, "server_label": "wx", "name": "look", "arguments": "{}"}
    return {**call, "output": output}


@pytest.mark.parametrize(
    ("second", "order"),
    [
        ("mcp_and_b", ["call a", "call b", "output a", "output b"]),
        ("mcp_b", ["call a", "output a", "call b", "output b"]),
    ],
    ids=["together", "one after another"],
)
@pytest.mark.parametrize("after", [[], [{"role": "user", "content": "And?"}]], ids=["at the end", "before a message"])
def test_calls_of_a_server_stand_as_the_model_made_them_with_their_outputs(
    second: str, order: list[str], after: list[Json]
) -> None:
    asked: list[Json] = [{"role": "user", "content": "Hi"}, of_server("mcp_a", "1"), of_server(second, "2"), *after]
    listed: JsonObject = {"type": "mcp_list_tools", "id": "l", "server_label": "wx", "tools": []}
    turn = decode({"model": "m", "input": [listed, *asked], "max_tool_calls": 3}).turn
    assert [
        f"{'call' if isinstance(item, FunctionCall) else 'output'} {item.call_id}"
        for item in turn.items
        if isinstance(item, FunctionCall | FunctionCallOutput)
    ] == order
    # The server is none of this request's.
    assert (turn.listed, turn.max_tool_calls, turn.ignored) == ({}, None, ("max_tool_calls",))


def test_a_thought_with_no_content_of_its_own_has_none() -> None:
    thought: JsonObject = {"type": "reasoning", "id": "rs", "summary": [], "content": [], "encrypted_content": "x"}
    first, *_ = decode({"model": "m", "input": [thought, {"role": "user", "content": "Hi"}]}).turn.items
    assert first == Reasoning(id="rs", summary=(), content=None, encrypted="x")
