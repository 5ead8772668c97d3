"""Calls and outputs belong together: Codex would drop what does not, without a word."""

import pytest

from turnbridge.api.shared.history import IN_INPUT, IN_MESSAGES, check_pairs
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    RawItem,
    TextPart,
)

HELLO = Message(role="user", parts=(TextPart(text="Hi"),))


def call(call_id: str) -> Item:
    return FunctionCall(call_id=call_id, name="add", arguments="{}")


def output(call_id: str) -> Item:
    return FunctionCallOutput(call_id=call_id, output="42")


def custom_call(call_id: str) -> Item:
    return FunctionCall(call_id=call_id, name="note", arguments='{"input":"x"}', custom=True)


def shell_call(call_id: str) -> Item:
    return RawItem(item={"type": "local_shell_call", "call_id": call_id})


def search(call_id: str | None) -> list[Item]:
    return [
        RawItem(item={"type": "tool_search_call", "call_id": call_id}),
        RawItem(item={"type": "tool_search_output", "call_id": call_id}),
    ]


def custom_output(call_id: str) -> Item:
    return FunctionCallOutput(call_id=call_id, output="y", custom=True)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [HELLO],
        [HELLO, call("a"), output("a"), HELLO],
        [call("a"), call("b"), output("b"), output("a")],
        [call("a"), output("a"), call("a"), output("a")],
        [custom_call("a"), HELLO, custom_output("a")],
        [RawItem(item={"type": "web_search_call", "id": "ws_1"})],
        [shell_call("a"), output("a")],
        search("a"),
        search(None),
    ],
)
def test_calls_that_have_their_outputs_pass(items: list[Item]) -> None:
    check_pairs(items, IN_INPUT)


@pytest.mark.promise("items.pairs")
@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([HELLO, call("a")], "No tool output found for function call a."),
        ([call("a"), output("b")], "No tool call found for function call output with call_id b."),
        ([output("a"), call("a")], "No tool call found for function call output with call_id a."),
        ([call("a"), output("a"), output("a")], "No tool call found for function call output with call_id a."),
        ([custom_output("a")], "No tool call found for custom tool call output with call_id a."),
        ([call("a"), custom_output("a")], "No tool call found for custom tool call output with call_id a."),
        ([custom_call("a"), output("a")], "No tool call found for function call output with call_id a."),
        ([shell_call("a")], "No tool output found for function call a."),
        (search("a")[:1], "No tool output found for tool search call a."),
        (search("a")[1:], "No tool call found for tool search call output with call_id a."),
    ],
)
def test_what_has_no_counterpart_is_refused_in_openais_words(items: list[Item], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_pairs(items, IN_INPUT)
    assert (caught.value.message, caught.value.param) == (message, "input")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (
            [HELLO, call("a"), call("b"), HELLO],
            (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: a, b"
            ),
        ),
        (
            [call("a"), output("a"), output("b")],
            (
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                "'tool_calls'. There is no call with the tool_call_id b."
            ),
        ),
    ],
)
def test_messages_are_refused_in_the_words_of_their_api(items: list[Item], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_pairs(items, IN_MESSAGES)
    assert (caught.value.message, caught.value.param) == (message, "messages")
