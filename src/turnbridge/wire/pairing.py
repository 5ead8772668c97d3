"""Calls and their outputs belong together: what does not is refused as OpenAI refuses it, since Codex would drop it."""

from collections.abc import Sequence

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Item, RawItem


def check_pairs(items: Sequence[Item], *, param: str) -> None:
    """Refuse an output without its call, and a call without its output."""
    waiting: dict[str, None] = {}
    for item in items:
        match item:
            case FunctionCall(call_id=call_id):
                waiting[call_id] = None
            case FunctionCallOutput(call_id=call_id):
                _answer(waiting, call_id, "function call", param)
            case RawItem(item={"type": "custom_tool_call", "call_id": str(call_id)}):
                waiting[call_id] = None
            case RawItem(item={"type": "custom_tool_call_output", "call_id": str(call_id)}):
                _answer(waiting, call_id, "custom tool call", param)
            case _:
                pass
    if waiting:
        raise InvalidRequest(f"No tool output found for function call {next(iter(waiting))}.", param=param)


def _answer(waiting: dict[str, None], call_id: str, kind: str, param: str) -> None:
    if call_id not in waiting:
        raise InvalidRequest(f"No tool call found for {kind} output with call_id {call_id}.", param=param)
    del waiting[call_id]
