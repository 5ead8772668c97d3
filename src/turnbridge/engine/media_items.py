"""The items of a request as Codex can carry them: images and files that they link to are loaded into them."""

import asyncio
import json
from typing import Literal, NamedTuple

from turnbridge.engine.ports import MediaLoader
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.images import MAX_TOTAL_PIXELS
from turnbridge.turn.items import (
    FilePart,
    FunctionCallOutput,
    ImagePart,
    Item,
    Message,
    Part,
    TextPart,
    parts_of,
    replace,
)
from turnbridge.turn.request import JsonOfSchema, TurnRequest

LOADED_LIMIT = 128 * 1024 * 1024
"""Bytes of JSON that the images and files of one request may become: 96 MB of images, since base64 adds a third.

All of it goes to Codex, and comes back, in one line with the body. This is half of the longest line that is read; the
other half is for the body, which takes an eighth of it unless its limit is raised.
"""

TEXT_LIMIT = 16 * 1024 * 1024
"""Bytes of JSON that the files of one request may become: some million tokens, more than any context window has.

Unlike images, their text has characters to escape, which takes ten times as long to encode as others.
"""

CONCURRENT_LOADS = 8
"""Images and files of one request: enough that no host's delay counts much, and each may take 100 MB for a moment."""

LOAD_TIMEOUT_S = 60.0
"""Seconds for all images together: the clock of a turn begins after that."""


class Ready(NamedTuple):
    """The items of a request as the model sees them."""

    items: tuple[Item, ...]
    linked: dict[str, Part]
    """What the parts that link to something have become, by their place in the request."""


async def ready_items(request: TurnRequest, media: MediaLoader) -> Ready:
    """Return the items with every image and file inside them, and the schema if the provider cannot enforce it."""
    items, linked, output = request.items, {}, request.spec.output
    # Most items are text, and long histories have many of them.
    if not all(map(_is_ready, items)):
        loads = _Loads(media, request.spec.client)
        items = tuple([item if _is_ready(item) else await loads.item(item) for item in items])
        linked = loads.linked
    if isinstance(output, JsonOfSchema) and not output.enforced:
        items = (_schema_message(output), *items)
    return Ready(items, linked)


class _Loads:
    """Loads the images and files of one request, within the limits for all of them together."""

    def __init__(self, media: MediaLoader, client: str) -> None:
        self._media = media
        self._client = client
        self._pixels = 0.0
        self.linked: dict[str, Part] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_LOADS)
        self._left = LOADED_LIMIT
        self._text_left = TEXT_LIMIT
        self._deadline = asyncio.get_running_loop().time() + LOAD_TIMEOUT_S

    async def item(self, item: Item) -> Item:
        if isinstance(item, Message):
            return replace(item, parts=await self._parts(item.parts))
        if isinstance(item, FunctionCallOutput) and not isinstance(item.output, str):
            parts = await self._parts(item.output)
            # One text is the same to the model as a string, and Codex gives both the same form.
            only = parts[0] if len(parts) == 1 else None
            return replace(item, output=only.text if isinstance(only, TextPart) else parts)
        return item

    async def _parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        if _all_text(parts):
            return parts
        tasks = [asyncio.create_task(self._part(part)) for part in parts]
        try:
            return tuple(await asyncio.gather(*tasks))
        finally:
            # If one fails, the others are not needed.
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _part(self, part: Part) -> Part:
        match part:
            case ImagePart() if not part.url.startswith("data:"):
                loaded: Part = replace(part, url=await self._image(part), file_id=None)
            case FilePart():
                loaded = TextPart(text=await self._file_text(part))
                if part.data is not None:
                    return loaded
            case _:
                return part
        self.linked[part.param] = loaded
        return loaded

    async def _image(self, part: ImagePart) -> str:
        try:
            async with asyncio.timeout_at(self._deadline), self._slots:
                if part.file_id is None:
                    loaded = await self._media.image(part.url, param=part.param)
                else:
                    loaded = await self._media.uploaded_image(self._client, part.file_id, param=part.param)
        except TimeoutError:
            problem = f"The images of the request could not all be fetched within {LOAD_TIMEOUT_S:g} seconds."
            raise InvalidRequest(problem, code="invalid_image_url", param=part.param) from None
        self._pixels += loaded.pixels
        if self._pixels > MAX_TOTAL_PIXELS:
            most = f"more than {MAX_TOTAL_PIXELS // 1_000_000} million pixels together"
            message = f"The images that the request links to have {most}. Send fewer, or smaller ones."
            raise InvalidRequest(message, code="image_too_large", param=part.param)
        self._count(len(loaded.url), "image", part.param)
        return loaded.url

    async def _file_text(self, part: FilePart) -> str:
        async with self._slots:
            whole = part if part.file_id is None else await self._media.uploaded_file(self._client, part)
            text = await self._media.file_text(whole)
            del whole
        # A control character is six bytes of JSON. In a thread, since there may be megabytes of them.
        encoded = await asyncio.to_thread(lambda: len(json.dumps(text, ensure_ascii=False).encode()))
        self._text_left -= encoded
        if self._text_left < 0:
            raise InvalidRequest(
                f"With this file, the text of the request's files exceeds {TEXT_LIMIT // 2**20} MB, written as JSON. "
                "Send less of it.",
                code="file_too_large",
                param=part.param,
            )
        self._count(encoded, "file", part.param)
        return text

    def _count(self, size: int, kind: Literal["image", "file"], param: str) -> None:
        self._left -= size
        if self._left < 0:
            raise InvalidRequest(
                f"With this {kind}, the images and files that the gateway brings in for the request exceed "
                f"{LOADED_LIMIT // 2**20} MB, written as base64 or JSON. Send fewer, or smaller ones.",
                code=f"{kind}_too_large",
                param=param,
            )


def _is_ready(item: Item) -> bool:
    """Tell whether nothing of an item is loaded, nor the parts of an output joined."""
    parts = parts_of(item)
    return not parts or (isinstance(item, Message) and _all_text(parts))


def _all_text(parts: tuple[Part, ...]) -> bool:
    return all(isinstance(part, TextPart) for part in parts)


def _schema_message(output: JsonOfSchema) -> Message:
    """Return a message with a schema outside the strict subset, which the provider would refuse."""
    about = f" ({output.description})" if output.description else ""
    schema = json.dumps(output.schema, ensure_ascii=False)
    text = f"Answer only with JSON named `{output.name}`{about} that conforms to this JSON Schema:\n{schema}"
    return Message(role="developer", parts=(TextPart(text=text),))
