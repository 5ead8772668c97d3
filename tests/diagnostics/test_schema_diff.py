"""What changed between two binaries is told as far as it concerns us; and what concerns us is in the pinned one."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import turnbridge.codex
from tests.support.codex_schema import old_schema, pinned_schema
from turnbridge.codex.legacy import v1
from turnbridge.codex.process import worker
from turnbridge.codex.protocol.capabilities import Protocol
from turnbridge.diagnostics.schema import CALLS, concerns, differences
from turnbridge.turn.items import Json, JsonObject

pytestmark = pytest.mark.real

CODEX = Path(turnbridge.codex.__file__).parent


# Named once for the call and for what is told if it fails.
LOGIN = ("account/login/start", "account/login/cancel")


# Calls of whose answers nothing is needed.
SILENT = (
    *("initialize", "account/logout", "thread/inject_items", "thread/loaded/list"),
    *("thread/unsubscribe", "turn/interrupt"),
)


def methods_called() -> set[str]:
    """Return every method that our own code names when it asks Codex for something."""
    calls = [
        node
        for file in CODEX.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    named = [
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("call", "send", "cast")
        and call.args
        and isinstance(call.args[0], ast.Constant)
    ]
    return {str(name) for name in named}


def test_every_method_that_we_call_is_in_the_table() -> None:
    chosen = {v1.TURN_METHOD, v1.MESSAGE_METHOD, worker.UNSUBSCRIBE, worker.DIAGNOSTICS, worker.LOADED_THREADS, *LOGIN}
    assert methods_called() | chosen == CALLS.keys()


def test_every_method_of_the_table_and_its_answer_is_in_a_binary_that_we_support() -> None:
    protocols = [Protocol(pinned_schema()), Protocol(old_schema())]
    unknown = {
        method
        for method, (answer, _) in CALLS.items()
        if not any(method in protocol.requests and protocol.reference(answer) for protocol in protocols)
    }
    assert unknown == set()


@pytest.mark.parametrize("schema", [pinned_schema, old_schema])
def test_a_binary_does_not_differ_from_itself(schema: Callable[[], JsonObject]) -> None:
    assert differences(schema(), schema()) == []


def changed(*path: str, to: Json) -> JsonObject:
    """Return the pinned schema with another value in one place."""

    def at(value: Json, words: tuple[str, ...]) -> Json:
        if not words:
            return to
        assert isinstance(value, dict)
        return {**value, words[0]: at(value.get(words[0]), words[1:])}

    schema = at(pinned_schema(), ("definitions", *path))
    assert isinstance(schema, dict)
    return schema


PART_TYPES = '"inputAudio" | "inputImage" | "inputText"'
STARTED = ("v2", "ThreadStartParams", "properties")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (lambda: changed(*STARTED, "colour", to={"type": "string"}), ["what thread/start takes: + colour: string"]),
        (
            lambda: changed(*STARTED, "ephemeral", to={"type": "string"}),
            ["what thread/start takes: ~ ephemeral: +string -boolean -null"],
        ),
        (
            lambda: changed("v2", "AgentMessageDeltaNotification", "required", to=["threadId", "turnId", "itemId"]),
            ["what we read of item/agentMessage/delta: ~ delta: -required"],
        ),
        (lambda: changed("v2", "AgentMessageDeltaNotification", "properties", "colour", to={"type": "string"}), []),
        (lambda: changed("v2", "FsReadFileParams", "properties", "colour", to={"type": "string"}), []),
        (
            lambda: changed("DynamicToolCallResponse", "properties", to={"output": {"type": "string"}}),
            [
                "capabilities: ~ tool_reply: +output -contentItems",
                "how item/tool/call is answered: - contentItems: array | required",
                "how item/tool/call is answered: - contentItems[].audioUrl: required | string",
                "how item/tool/call is answered: - contentItems[].imageUrl: required | string",
                "how item/tool/call is answered: - contentItems[].text: required | string",
                f"how item/tool/call is answered: - contentItems[].type: {PART_TYPES} | required",
                "how item/tool/call is answered: + output: string",
                "how item/tool/call is answered: - success: boolean | required",
            ],
        ),
    ],
)
def test_a_change_is_told_if_we_send_or_read_what_changed(schema: Callable[[], JsonObject], told: list[str]) -> None:
    found = differences(pinned_schema(), schema())
    assert [f"{difference.section}: {difference}" for difference in found] == told


def test_a_method_that_is_gone_is_one_line() -> None:
    found = {f"{difference.section}: {difference}" for difference in differences(old_schema(), pinned_schema())}
    assert {
        "what newConversation takes: - all of it: there",
        "what thread/inject_items takes: + all of it: there",
        "what we read of rawResponse/completed: + all of it: there",
        "capabilities: ~ dialects: +v2 -v1",
    } <= found


def test_we_read_something_of_every_notification_that_we_hear() -> None:
    read = {section: places for section, places in concerns(pinned_schema()).items() if "we read of" in section}
    silent = {section for section, places in read.items() if not places}
    assert silent == {f"what we read of the answer to {method}" for method in (*LOGIN, *SILENT)}
