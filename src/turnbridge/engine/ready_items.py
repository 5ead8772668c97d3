"""The items of a request as Codex can carry them: what they only point at is brought in."""

import asyncio
import json
from typing import TypeGuard

from turnbridge.engine.ports import MediaLoader
from turnbridge.turn.items import FilePart, FunctionCallOutput, ImagePart, Item, Message, Part, TextPart
from turnbridge.turn.request import JsonOfSchema, TurnRequest
from turnbridge.turn.values import replace


async def ready_items(request: TurnRequest, media: MediaLoader) -> tuple[Item, ...]:
    """Return the items with every image and file inside them, and the schema if Codex cannot carry it."""
    # Most items are text, and long histories have many of them: those are not looked into any further.
    items = tuple([item if _is_ready(item) else await _ready_item(item, media) for item in request.items])
    output = request.output
    if isinstance(output, JsonOfSchema) and not output.enforced:
        return (_schema_message(output), *items)
    return items


async def _ready_item(item: Item, media: MediaLoader) -> Item:
    if isinstance(item, Message):
        return replace(item, parts=await _ready_parts(item.parts, media))
    if isinstance(item, FunctionCallOutput) and not isinstance(item.output, str):
        parts = await _ready_parts(item.output, media)
        # One text is the same to the model as a string, and the one form that Codex gives to both.
        return replace(item, output=parts[0].text if _is_one_text(parts) else parts)
    return item


async def _ready_parts(parts: tuple[Part, ...], media: MediaLoader) -> tuple[Part, ...]:
    if _all_text(parts):
        return parts
    return tuple(await asyncio.gather(*(_ready_part(part, media) for part in parts)))


async def _ready_part(part: Part, media: MediaLoader) -> Part:
    if isinstance(part, ImagePart) and not part.url.startswith("data:"):
        return replace(part, url=await media.image(part.url, param=part.param))
    if isinstance(part, FilePart):
        return TextPart(text=await media.file_text(part))
    return part


def _is_ready(item: Item) -> bool:
    return isinstance(item, Message) and _all_text(item.parts)


def _all_text(parts: tuple[Part, ...]) -> bool:
    return all(isinstance(part, TextPart) for part in parts)


def _is_one_text(parts: tuple[Part, ...]) -> TypeGuard[tuple[TextPart]]:
    return len(parts) == 1 and isinstance(parts[0], TextPart)


def _schema_message(output: JsonOfSchema) -> Message:
    """Return the words for a schema that the provider would refuse to enforce (it is not of the strict subset)."""
    about = f" ({output.description})" if output.description else ""
    schema = json.dumps(output.schema, ensure_ascii=False)
    text = f"Answer only with JSON named `{output.name}`{about} that conforms to this JSON Schema:\n{schema}"
    return Message(role="developer", parts=(TextPart(text=text),))
