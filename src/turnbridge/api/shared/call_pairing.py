"""Calls and their outputs belong together: what does not is refused as OpenAI refuses it, since Codex would drop it."""

from collections.abc import Sequence
from typing import NamedTuple

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    RawItem,
)

FUNCTION = "function call"
CUSTOM = "custom tool call"


class Words(NamedTuple):
    """How one API refuses what does not belong together; clients recognise it by them."""

    param: str
    no_output: str
    no_call: str


IN_INPUT = Words(
    "input",
    "No tool output found for {kind} {call_id}.",
    "No tool call found for {kind} output with call_id {call_id}.",
)
IN_MESSAGES = Words(
    "messages",
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: {call_ids}",
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'. "
    "There is no call with the tool_call_id {call_id}.",
)


def check_pairs(items: Sequence[Item], words: Words) -> None:
    """Refuse an output without its call, and a call without its output."""
    waiting: dict[tuple[str, str], None] = {}
    for item in items:
        # Most items are messages. This takes 0.02 µs for one; to find that no case is meant takes 0.9.
        if isinstance(item, Message):
            continue
        match item:
            case FunctionCall(call_id=call_id):
                waiting[FUNCTION, call_id] = None
            case FunctionCallOutput(call_id=call_id):
                _answer(waiting, CUSTOM if item.custom else FUNCTION, call_id, words)
            case RawItem(item={"type": "custom_tool_call", "call_id": str(call_id)}):
                waiting[CUSTOM, call_id] = None
            case _:
                pass
    if waiting:
        kind, call_id = next(iter(waiting))
        call_ids = ", ".join(waits for _, waits in waiting)
        told = words.no_output.format(kind=kind, call_id=call_id, call_ids=call_ids)
        raise InvalidRequest(told, param=words.param)


def _answer(waiting: dict[tuple[str, str], None], kind: str, call_id: str, words: Words) -> None:
    if (kind, call_id) not in waiting:
        raise InvalidRequest(words.no_call.format(kind=kind, call_id=call_id), param=words.param)
    del waiting[kind, call_id]
