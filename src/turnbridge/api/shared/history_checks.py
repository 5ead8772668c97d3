"""Checks of a whole history that OpenAI makes: calls and outputs are paired, and JSON mode is mentioned."""

from collections.abc import Sequence
from typing import NamedTuple

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Item, Message, RawItem, TextPart
from turnbridge.turn.request import AnyJsonObject, OutputFormat

FUNCTION = "function call"
CUSTOM = "custom tool call"


class Wording(NamedTuple):
    """The errors of one API, which clients recognise."""

    param: str
    no_output: str
    no_call: str


IN_INPUT = Wording(
    "input",
    "No tool output found for {kind} {call_id}.",
    "No tool call found for {kind} output with call_id {call_id}.",
)
IN_MESSAGES = Wording(
    "messages",
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: {call_ids}",
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'. "
    "There is no call with the tool_call_id {call_id}.",
)


def check_pairs(items: Sequence[Item], wording: Wording) -> None:
    """Refuse an output without its call, and a call without its output: Codex would drop them."""
    waiting: dict[tuple[str, str], None] = {}
    for item in items:
        # Most items are messages. This takes 0.02 µs for one; to find that no case matches takes 0.9.
        if isinstance(item, Message):
            continue
        match item:
            case FunctionCall(call_id=call_id):
                waiting[FUNCTION, call_id] = None
            case RawItem(item={"type": "custom_tool_call", "call_id": str(call_id)}):
                waiting[CUSTOM, call_id] = None
            case FunctionCallOutput(call_id=call_id):
                kind = CUSTOM if item.custom else FUNCTION
                if (kind, call_id) not in waiting:
                    raise InvalidRequest(wording.no_call.format(kind=kind, call_id=call_id), param=wording.param)
                del waiting[kind, call_id]
            case _:
                pass
    if waiting:
        kind, call_id = next(iter(waiting))
        call_ids = ", ".join(waits for _, waits in waiting)
        message = wording.no_output.format(kind=kind, call_id=call_id, call_ids=call_ids)
        raise InvalidRequest(message, param=wording.param)


def check_mentions_json(output: OutputFormat, items: Sequence[Item], instructions: str | None, *, param: str) -> None:
    """Refuse `json_object` for a conversation that never mentions JSON, as OpenAI does: the model would not know."""
    if not isinstance(output, AnyJsonObject):
        return
    parts = [part for item in items if isinstance(item, Message) for part in item.parts]
    texts = [instructions or "", *(part.text for part in parts if isinstance(part, TextPart))]
    if not any("json" in text.lower() for text in texts):
        message = f"'{param}' must contain the word 'json' in some form, to use a format of type 'json_object'."
        raise InvalidRequest(message, param=param)
