"""Legs of stored chats: read back with the gateway's own part in them."""

import pytest

from turnbridge.api.generation import leg_of
from turnbridge.engine.kept_threads import Leg
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, TextPart

THOUGHT = Reasoning(id="rs", summary=(), content=None, encrypted="E")
NUDGE = Message(role="user", parts=(TextPart(text="Call it."),))


def call(call_id: str) -> FunctionCall:
    return FunctionCall(call_id=call_id, name="f", arguments="{}")


def output(call_id: str) -> FunctionCallOutput:
    return FunctionCallOutput(call_id=call_id, output="not run")


@pytest.mark.parametrize(
    ("items", "shown", "presets", "intervened"),
    [
        ((THOUGHT, call("a"), call("b")), ("a", "b"), (), False),
        ((THOUGHT, call("a"), call("b")), ("a",), (output("b"),), True),
        ((call("a"), output("a"), THOUGHT, call("b")), ("b",), (), True),
        ((call("a"), output("a"), call("b"), call("c")), ("b",), (output("c"),), True),
        ((THOUGHT, NUDGE, call("a")), ("a",), (), True),
    ],
    ids=["plain", "one of two shown", "corrected", "corrected, one of two shown", "demanded"],
)
def test_a_leg_is_read_as_it_was_written(
    items: tuple[Item, ...], shown: tuple[str, ...], presets: tuple[FunctionCallOutput, ...], intervened: bool
) -> None:
    leg = Leg(items=items, shown=shown, presets=presets, intervened=intervened)
    assert leg_of((*leg.items, *leg.presets)) == leg
