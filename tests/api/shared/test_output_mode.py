"""Calls that are told in the text: the block itself, and the turn around it."""

import xml.etree.ElementTree as ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.shared.output_mode import calls_as_text, use_tool_block
from turnbridge.turn.events import (
    CallsAwaited,
    FunctionCallDone,
    MessageDone,
    MessageStarted,
    TextDelta,
    TurnCompleted,
    Usage,
)

BLOCK = """<use_tool>
  <name>weather</name>
  <city>Paris &amp; Nîmes</city>
  <days>3</days>
  <units>["c", "&lt;f&gt;"]</units>
</use_tool>"""

# Deeper than any reader follows.
DEEP = f'{{"a":{"[" * 100_000}{"]" * 100_000}}}'


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ("{}", ["  <args>{}</args>"]),
        ('{"name": "x"}', ['  <args>{"name": "x"}</args>']),
        ('{"two words": 1}', ['  <args>{"two words": 1}</args>']),
        ("[1]", ["  <args>[1]</args>"]),
        ("{broken", ["  <args>{broken</args>"]),
        (DEEP, [f"  <args>{DEEP}</args>"]),
        ('{"a": null, "b": {"c": true}}', ["  <a>null</a>", '  <b>{"c":true}</b>']),
    ],
)
def test_arguments_are_elements_or_one_json_object(arguments: str, lines: list[str]) -> None:
    assert use_tool_block("f", arguments) == "\n".join(["<use_tool>", "  <name>f</name>", *lines, "</use_tool>"])


def test_a_call_becomes_a_message_and_the_turn_is_complete() -> None:
    arguments = '{"city": "Paris & Nîmes", "days": 3, "units": ["c", "<f>"]}'
    block = BLOCK.replace('["c", ', '["c",')
    usage = Usage(input=3, output=5)
    assert calls_as_text(
        [
            TextDelta("msg_1", "Let me see."),
            FunctionCallDone("fc_1", "call_1", "weather", arguments),
            CallsAwaited(usage),
        ]
    ) == [
        TextDelta("msg_1", "Let me see."),
        MessageStarted("msg_fc_1", None),
        TextDelta("msg_fc_1", block),
        MessageDone("msg_fc_1", None, block),
        TurnCompleted(usage),
    ]


printable = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")))


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), printable, min_size=1))
def test_a_block_is_xml_that_gives_the_arguments_back(arguments: dict[str, str]) -> None:
    block = ElementTree.fromstring(use_tool_block("f", msgspec.json.encode(arguments).decode()))
    elements = [(element.tag, element.text or "") for element in block][1:]
    if {"name", "args"} & arguments.keys():
        ((tag, text),) = elements
        assert (tag, msgspec.json.decode(text)) == ("args", arguments)
    else:
        assert dict(elements) == arguments
