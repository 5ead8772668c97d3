"""The items of a request as Codex can carry them: what they only point at is brought in."""

import asyncio
import json
from typing import Literal, TypeGuard

from turnbridge.engine.ports import MediaLoader
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import (
    FilePart,
    FunctionCallOutput,
    ImagePart,
    Item,
    Message,
    Part,
    TextPart,
)
from turnbridge.turn.request import JsonOfSchema, TurnRequest
from turnbridge.turn.values import replace

BROUGHT_IN_LIMIT = 128 * 1024 * 1024
"""Bytes of JSON that the images and files of one request may become: 96 MB of images, since base64 adds a third.

All of it goes to Codex, and comes back, in one line with the body. This is half of the longest line that is read; the
other half is for the body, which takes an eighth of it unless its limit is raised.
"""

TEXT_LIMIT = 16 * 1024 * 1024
"""Bytes of JSON that the files of one request may become: some million tokens, more than any context window has.

Unlike images, their text has characters to escape, which takes ten times as long to write as others.
"""

BROUGHT_IN_AT_ONCE = 8
"""Images and files of one request: enough that no host's delay counts much, and each may take 100 MB for a moment."""

BROUGHT_IN_WITHIN_S = 60.0
"""Seconds for all of them together: the clock of a turn begins after that."""


async def ready_items(request: TurnRequest, media: MediaLoader) -> tuple[Item, ...]:
    """Return the items with every image and file inside them, and the schema if Codex cannot carry it."""
    intake = _Intake(media)
    # Most items are text, and long histories have many of them: those are not looked into any further.
    items = tuple([item if _is_ready(item) else await _ready_item(item, intake) for item in request.items])
    output = request.spec.output
    if isinstance(output, JsonOfSchema) and not output.enforced:
        return (_schema_message(output), *items)
    return items


async def _ready_item(item: Item, intake: "_Intake") -> Item:
    if isinstance(item, Message):
        return replace(item, parts=await _ready_parts(item.parts, intake))
    if isinstance(item, FunctionCallOutput) and not isinstance(item.output, str):
        parts = await _ready_parts(item.output, intake)
        # One text is the same to the model as a string, and the one form that Codex gives to both.
        return replace(item, output=parts[0].text if _is_one_text(parts) else parts)
    return item


async def _ready_parts(parts: tuple[Part, ...], intake: "_Intake") -> tuple[Part, ...]:
    if _all_text(parts):
        return parts
    tasks = [asyncio.create_task(_ready_part(part, intake)) for part in parts]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        # Once one is refused, nobody waits for the others.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _ready_part(part: Part, intake: "_Intake") -> Part:
    if isinstance(part, ImagePart) and not part.url.startswith("data:"):
        return replace(part, url=await intake.image(part))
    if isinstance(part, FilePart):
        return TextPart(text=await intake.file_text(part))
    return part


class _Intake:
    """Brings in the images and files of one request, within what all of them may take together."""

    def __init__(self, media: MediaLoader) -> None:
        self._media = media
        self._places = asyncio.Semaphore(BROUGHT_IN_AT_ONCE)
        self._left = BROUGHT_IN_LIMIT
        self._text_left = TEXT_LIMIT
        self._end = asyncio.get_running_loop().time() + BROUGHT_IN_WITHIN_S

    async def image(self, part: ImagePart) -> str:
        try:
            async with asyncio.timeout_at(self._end), self._places:
                url = await self._media.image(part.url, param=part.param)
        except TimeoutError:
            raise InvalidRequest(
                f"The images of the request could not all be fetched within {BROUGHT_IN_WITHIN_S:g} seconds.",
                code="invalid_image_url",
                param=part.param,
            ) from None
        self._count(len(url), "image", part.param)
        return url

    async def file_text(self, part: FilePart) -> str:
        async with self._places:
            text = await self._media.file_text(part)
        # A control character is six bytes of JSON. In a thread, since there may be megabytes of them.
        written = await asyncio.to_thread(_written_bytes, text)
        self._text_left -= written
        if self._text_left < 0:
            raise InvalidRequest(
                f"With this file, the text of the request's files exceeds {TEXT_LIMIT // 2**20} MB, written as JSON. "
                "Send less of it.",
                code="file_too_large",
                param=part.param,
            )
        self._count(written, "file", part.param)
        return text

    def _count(self, size: int, kind: Literal["image", "file"], param: str) -> None:
        self._left -= size
        if self._left < 0:
            raise InvalidRequest(
                f"With this {kind}, the images and files that the gateway brings in for the request exceed "
                f"{BROUGHT_IN_LIMIT // 2**20} MB, written as base64 or JSON. Send fewer, or smaller ones.",
                code=f"{kind}_too_large",
                param=param,
            )


def _written_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())


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
