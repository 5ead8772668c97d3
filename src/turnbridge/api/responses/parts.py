"""The kinds of parts that an item of a response is made of."""

from typing import NamedTuple

from turnbridge.turn.items import JsonObject


class PartKind(NamedTuple):
    """A kind of part: how its events and its number in the item are named, and what it is made of."""

    text_event: str
    part_event: str
    number: str
    place: str
    """The list of an item that has its finished parts."""
    empty: JsonObject
    """The part before it has any text."""


TEXT = PartKind(
    *("response.output_text", "response.content_part", "content_index", "content"),
    empty={"type": "output_text", "text": "", "annotations": [], "logprobs": []},
)
SUMMARY = PartKind(
    *("response.reasoning_summary_text", "response.reasoning_summary_part", "summary_index", "summary"),
    empty={"type": "summary_text", "text": ""},
)
REASONING = PartKind(
    *("response.reasoning_text", "response.content_part", "content_index", "content"),
    empty={"type": "reasoning_text", "text": ""},
)
