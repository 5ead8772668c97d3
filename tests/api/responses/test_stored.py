"""Items and responses that are kept: named, referred to, and shown again."""

import pytest

from tests.api.shared.exact import exact
from tests.api.shared.told import Told, told
from turnbridge.api.responses.decode import (
    decode_items,
    encode_items,
    ids_to_look_up,
    input_items,
    parse,
    resolve_references,
)
from turnbridge.api.responses.routes import listed_item, with_thoughts
from turnbridge.api.responses.state import named
from turnbridge.api.shared.pagination import deleted
from turnbridge.turn.errors import GatewayError, InvalidRequest, NotFound
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    Json,
    JsonObject,
    Message,
    RawItem,
    Reasoning,
    TextPart,
)

USER: JsonObject = {"role": "user", "content": "hi"}
THOUGHT: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": []}
SEALED: JsonObject = {**THOUGHT, "encrypted_content": "sealed"}
REFERENCE: JsonObject = {"type": "item_reference", "id": "msg_1"}
BARE_REFERENCE: JsonObject = {"id": "msg_1"}
SAID: JsonObject = {"type": "message", "id": "msg_1", "role": "assistant", "content": "hello"}


def test_a_body_says_what_to_continue_and_what_to_keep() -> None:
    body: JsonObject = {"input": [USER], "previous_response_id": "resp_1", "background": True, "store": True}
    asked, _ = parse(body)
    assert (asked.input, asked.previous_response_id) == ([USER], "resp_1")
    assert asked.background
    assert asked.store


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (
            {"previous_response_id": "resp_1", "conversation": "conv_1"},
            "mutually_exclusive_parameters",
            "conversation",
        ),
        ({"background": True, "store": False}, "invalid_value", "store"),
        ({"store": "yes"}, "invalid_type", "store"),
        ({"conversation": 1}, "invalid_type", "conversation"),
        ({"input": 1}, "invalid_type", "input"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(body: JsonObject, code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(body)
    assert (caught.value.error_code, caught.value.param) == (code, param)


@pytest.mark.parametrize(
    ("wanted", "name"), [(None, None), ("", None), ("conv_1", "conv_1"), ({"id": "conv_1"}, "conv_1")], ids=str
)
def test_a_conversation_is_named_by_its_id_or_an_object(wanted: Json, name: str | None) -> None:
    assert parse({"conversation": wanted})[0].conversation_id == name


def test_an_object_without_an_id_names_no_conversation() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse({"conversation": {}})
    message = "Missing required parameter: 'conversation.id'."
    assert told(caught.value) == Told(InvalidRequest, message, "missing_required_parameter", "conversation.id")


@pytest.mark.parametrize(
    ("item", "prefix"),
    [
        (USER, "msg_"),
        ({"type": "message", **USER}, "msg_"),
        (THOUGHT, "rs_"),
        ({"type": "function_call"}, "fc_"),
        ({"type": "function_call_output"}, "fco_"),
        ({"type": "custom_tool_call"}, "ctc_"),
        ({"type": "custom_tool_call_output"}, "ctco_"),
        ({"type": "web_search_call"}, "ws_"),
        ({"type": "image_generation_call"}, "ig_"),
        ({"type": "unheard_of"}, "item_"),
        ({}, "item_"),
    ],
    ids=str,
)
def test_an_id_begins_with_the_kind_of_its_item(item: JsonObject, prefix: str) -> None:
    (kept,) = named([{**item, "id": None}])
    assert kept.id.startswith(prefix)


def test_an_input_is_a_list_of_items() -> None:
    assert input_items("hi") == [{"type": "message", **USER}]
    assert input_items([USER, THOUGHT]) == [USER, THOUGHT]
    assert input_items(None) == []


def test_references_and_thoughts_without_their_content_are_looked_up() -> None:
    items: list[JsonObject] = [USER, SAID, REFERENCE, {"id": "msg_2"}, THOUGHT, {**SEALED, "id": "rs_2"}]
    items.append({**THOUGHT, "id": "rs_3", "encrypted_content": None})
    assert ids_to_look_up(items) == ["msg_1", "msg_2", "rs_1", "rs_3"]


@pytest.mark.promise("items.references")
@pytest.mark.parametrize("reference", [REFERENCE, BARE_REFERENCE, {"type": None, "id": "msg_1"}], ids=str)
def test_a_reference_becomes_what_it_refers_to(reference: JsonObject) -> None:
    assert resolve_references([USER, reference], {"msg_1": SAID}) == [USER, SAID]


def test_a_thought_gets_its_content_back_and_stays_as_it_is_where_there_is_none() -> None:
    edited: JsonObject = {**THOUGHT, "summary": [{"type": "summary_text", "text": "mine"}]}
    assert resolve_references([edited], {"rs_1": SEALED}) == [{**edited, "encrypted_content": "sealed"}]
    assert resolve_references([THOUGHT], {}) == [THOUGHT]
    assert resolve_references([THOUGHT], {"rs_1": THOUGHT}) == [THOUGHT]
    assert resolve_references([{**THOUGHT, "encrypted_content": "own"}], {"rs_1": SEALED}) == [
        {**THOUGHT, "encrypted_content": "own"}
    ]


@pytest.mark.promise("items.references")
@pytest.mark.parametrize(("param", "place"), [("input", "input[1]"), ("items", "items[1]")])
def test_a_reference_to_nothing_is_named_with_its_place(param: str, place: str) -> None:
    with pytest.raises(GatewayError) as caught:
        resolve_references([USER, REFERENCE], {}, param=param)
    message = (
        "Item with id 'msg_1' not found. Items are not kept when `store` is false: "
        "send the item itself, or leave it out."
    )
    assert told(caught.value) == Told(NotFound, message, "item_not_found", place)


TEXT: Json = [{"type": "input_text", "text": "hi"}]
ANSWER: Json = [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}]


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (USER, {"type": "message", "role": "user", "content": TEXT, "status": "completed"}),
        (
            {**USER, "content": TEXT, "status": "incomplete"},
            {"type": "message", "role": "user", "content": TEXT, "status": "incomplete"},
        ),
        (SAID, {"type": "message", "role": "assistant", "content": ANSWER, "status": "completed"}),
        (SEALED, {"type": "reasoning", "summary": []}),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
        ),
    ],
    ids=["text", "parts", "answer", "thought", "call"],
)
def test_a_listed_item_has_an_id_a_type_and_parts(item: JsonObject, shown: JsonObject) -> None:
    assert listed_item("it_1", item, encrypted=False) == {"id": "it_1", **shown}


def test_a_thought_is_listed_with_its_content_for_those_who_ask() -> None:
    assert listed_item("rs_1", SEALED, encrypted=True) == SEALED


def test_a_response_gets_the_contents_of_its_thoughts() -> None:
    response: JsonObject = {"id": "resp_1", "output": [THOUGHT, SAID, {**THOUGHT, "id": "rs_2"}]}
    assert with_thoughts(response, {"rs_1": SEALED, "msg_1": SAID}) == {
        "id": "resp_1",
        "output": [SEALED, SAID, {**THOUGHT, "id": "rs_2"}],
    }


def test_a_deletion_says_what_was_deleted() -> None:
    assert deleted("resp_1", "response") == {"id": "resp_1", "object": "response", "deleted": True}


def test_what_was_said_in_a_turn_is_read_as_it_was_written() -> None:
    said = (
        Reasoning(id="rs_1", summary=("Hm.",), content=None, encrypted="E"),
        Reasoning(id=None, summary=(), content=("Well.",), encrypted=None),
        Message(role="assistant", parts=(TextPart(text="Let me see."),), phase="commentary", id="msg_1"),
        FunctionCall(call_id="c", name="f", arguments="{}", namespace="n", id="fc_1"),
        RawItem(item={"type": "web_search_call", "id": "ws_1"}),
    )
    added = (
        FunctionCallOutput(call_id="c", output="The gateway's own."),
        Message(role="user", parts=(TextPart(text="Call."),)),
    )
    assert exact(decode_items(encode_items((*said, *added)))) == exact((*said, *added))
