"""How calls are shown to a client: as its API has them, or as `<use_tool>` blocks in the text, for plugins.

    <use_tool>
      <name>weather</name>
      <city>Paris</city>
    </use_tool>

Each argument is an element: a string as text, anything else as JSON. Arguments whose names are not valid element names
become one JSON object in `<args>`.
"""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias
from xml.sax.saxutils import escape

import msgspec

from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.events import (
    CallsAwaited,
    FunctionCallDone,
    MessageDone,
    MessageStarted,
    TextDelta,
    TurnCompleted,
    TurnEvent,
)
from turnbridge.turn.items import Json

OutputMode: TypeAlias = Literal["openai-json", "obsidian-xml"]

MODE_HEADER = "x-proxy-output-mode"
# The names that clients of older gateways use.
MODES: dict[str, OutputMode] = {
    "openai-json": "openai-json",
    "openai_json": "openai-json",
    "openai": "openai-json",
    "obsidian-xml": "obsidian-xml",
    "obsidian_xml": "obsidian-xml",
    "obsidian": "obsidian-xml",
}

# `name` is taken by the block itself.
ELEMENT_NAME = re.compile(r"(?!(?:name|args)$)[A-Za-z_][A-Za-z0-9_.-]*")


def output_mode(asked: str) -> OutputMode:
    """Return the mode that the header of a request asks for."""
    mode = MODES.get(asked.strip().lower())
    if mode is None:
        raise InvalidRequest(
            f"Invalid value for the header '{MODE_HEADER}': '{asked}'. Supported values are: 'openai-json', "
            "'obsidian-xml'.",
            code="invalid_value",
            param=MODE_HEADER,
        )
    return mode


def calls_as_text(events: Sequence[TurnEvent]) -> list[TurnEvent]:
    """Return events in which calls are messages, and a turn that waits for outputs is complete."""
    rewritten: list[TurnEvent] = []
    for event in events:
        match event:
            case FunctionCallDone():
                item_id, text = f"msg_{event.item_id}", use_tool_block(event.name, event.arguments)
                rewritten += [MessageStarted(item_id, None), TextDelta(item_id, text), MessageDone(item_id, None, text)]
            case CallsAwaited():
                rewritten.append(TurnCompleted(event.usage))
            case _:
                rewritten.append(event)
    return rewritten


def use_tool_block(name: str, arguments: str) -> str:
    """Return one call as a block."""
    lines = [_element("name", name), *_arguments(arguments)]
    return "\n".join(("<use_tool>", *(f"  {line}" for line in lines), "</use_tool>"))


def _arguments(arguments: str) -> list[str]:
    try:
        values: Json = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return [_element("args", arguments)]
    if not isinstance(values, dict) or not values or not all(map(ELEMENT_NAME.fullmatch, values)):
        return [_element("args", arguments)]
    return [
        _element(name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in values.items()
    ]


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>"
