"""A history as one user input, for versions of Codex that take no other.

Every message becomes a `<turn>` with its role, every call and output a block of its own, images stay items in their
place. Nobody can forge it: a tag in a client's text gets a backslash after its `<`, one more than it had, so no text
can end its turn or begin another, and what was said can be read back exactly. A history that is one user message is
sent as it is, unless it looks like such a transcript.

Messages of the developer go into instructions, for which Codex has a place. Thoughts are left out: only the provider
could read them, and only in their own form.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from turnbridge.turn.errors import InternalFault
from turnbridge.turn.items import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Message,
    Part,
    RawItem,
    Reasoning,
    TextPart,
)
from turnbridge.wire.tool_text.blocks import render_call, render_output, tagless_json

PREAMBLE = (
    "Below is a conversation, oldest first: each message is a <turn> with its role; calls of tools and their outputs "
    'stand between the turns. Where a message itself has such a tag, the tag has a backslash after its "<". '
    "Go on as the assistant: write only its next message, without a <turn> around it."
)

# What could be taken for a tag of ours, also by a reader who is less exact than a parser.
TAG = re.compile(r"<(?=\\*\s*/?\s*(?:turn|raw_item|tool_call|tool_output)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatHistory:
    """A history in two pieces."""

    developer: tuple[str, ...]
    """What the developer said, one text for each message."""
    parts: tuple[Part, ...]
    """What is sent as the user's: texts and images."""


def flatten(items: Sequence[Item]) -> FlatHistory:
    """Return a history as the texts and images of one user input."""
    developer = tuple(_text(item) for item in items if _is_instruction(item))
    said = [item for item in items if not _is_instruction(item) and not isinstance(item, Reasoning)]
    match said:
        case []:
            # Codex would not ask the model anything.
            return FlatHistory(developer=(), parts=_transcript(items))
        case [Message(role="user") as only] if not _text(only).startswith(PREAMBLE):
            return FlatHistory(developer=developer, parts=only.parts or (TextPart(text=""),))
        case _:
            return FlatHistory(developer=developer, parts=_transcript(said))


def flatten_outputs(outputs: Sequence[FunctionCallOutput], names: dict[str, str]) -> tuple[Part, ...]:
    """Return outputs alone, for a conversation that holds their calls; `names` has the function of each call."""
    return _joined([part for output in outputs for part in _output(output, names)])


def _is_instruction(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "developer" and not any(map(_is_image, item.parts))


def _transcript(items: Sequence[Item]) -> tuple[Part, ...]:
    return _joined([TextPart(text=PREAMBLE), *_blocks(items)])


def _blocks(items: Sequence[Item]) -> Iterable[Part]:
    names: dict[str, str] = {}
    for item in items:
        match item:
            case Message():
                yield from _turn(item)
            case FunctionCall():
                names[item.call_id] = item.name
                yield TextPart(text=render_call(item.call_id, item.name, item.arguments, item.namespace))
            case FunctionCallOutput():
                yield from _output(item, names)
            case RawItem():
                yield TextPart(text=f"<raw_item>{tagless_json(item.item)}</raw_item>")
            case Reasoning():
                pass
            case _:
                assert_never(item)


def _turn(message: Message) -> Iterable[Part]:
    yield TextPart(text=f'<turn role="{message.role}">')
    # Joined first: a tag may be cut in two by where one text ends and the next begins.
    for part in _joined(message.parts):
        yield TextPart(text=TAG.sub(r"<\\", part.text)) if isinstance(part, TextPart) else part
    yield TextPart(text="</turn>")


def _output(output: FunctionCallOutput, names: dict[str, str]) -> Iterable[Part]:
    """Yield an output; its images follow it."""
    parts: tuple[Part, ...] = (TextPart(text=output.output),) if isinstance(output.output, str) else output.output
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    yield TextPart(text=render_output(output.call_id, names.get(output.call_id, ""), text))
    yield from filter(_is_image, parts)


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Put texts that follow one another into one, each on its own lines."""
    joined: list[Part] = []
    for part in parts:
        match part:
            case TextPart():
                last = joined[-1] if joined else None
                if isinstance(last, TextPart):
                    joined[-1] = TextPart(text=f"{last.text}\n{part.text}")
                else:
                    joined.append(part)
            case ImagePart():
                joined.append(part)
            case FilePart():
                raise InternalFault("A file reached Codex without having been turned into text.")
            case _:
                assert_never(part)
    return tuple(joined)


def _is_image(part: Part) -> bool:
    return isinstance(part, ImagePart)


def _text(message: Item) -> str:
    parts = message.parts if isinstance(message, Message) else ()
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
