"""Calls and their outputs belong together: what does not is refused as OpenAI refuses it, since Codex would drop it."""

from collections.abc import Sequence

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Item, Message, RawItem

FUNCTION = "function call"
CUSTOM = "custom tool call"


def check_pairs(items: Sequence[Item], *, param: str) -> None:
    """Refuse an output without its call, and a call without its output."""
    waiting: dict[tuple[str, str], None] = {}
    for item in items:
        if isinstance(item, Message):
            continue
        match item:
            case FunctionCall(call_id=call_id):
                waiting[FUNCTION, call_id] = None
            case FunctionCallOutput(call_id=call_id):
                _answer(waiting, CUSTOM if item.custom else FUNCTION, call_id, param)
            case RawItem(item={"type": "custom_tool_call", "call_id": str(call_id)}):
                waiting[CUSTOM, call_id] = None
            case _:
                pass
    for kind, call_id in waiting:
        raise InvalidRequest(f"No tool output found for {kind} {call_id}.", param=param)


def _answer(waiting: dict[tuple[str, str], None], kind: str, call_id: str, param: str) -> None:
    if (kind, call_id) not in waiting:
        raise InvalidRequest(f"No tool call found for {kind} output with call_id {call_id}.", param=param)
    del waiting[kind, call_id]
