"""What clients send does not stay: the gateway is as large after hundreds of megabytes as before them."""

import asyncio
import base64
import os
import struct
import zlib
from collections.abc import Callable

import pytest

from tests.hostile.site import Site
from tests.support.plain_http import CHAT, RESPONSES
from tests.support.processes import resident_mb
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MOST_GROWTH_MB = 40.0
"""What the system may not have been given back yet. All that is sent here is at least twice as much."""
AT_ONCE = 2
FIRST = 4
"""Requests after which all that stays loaded is loaded, and has its room."""
PIXELS = 570
"""The side of a picture whose data URL has 1.3 MB."""


def noise(characters: int) -> str:
    """Return a text that nobody has sent before."""
    return os.urandom(characters // 2).hex()


def picture(number: int) -> JsonObject:
    """Ask about a picture."""
    rows = b"".join(b"\0" + os.urandom(3 * PIXELS) for _ in range(PIXELS))
    size = struct.pack(">IIBBBBB", PIXELS, PIXELS, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", size), (b"IDAT", zlib.compress(rows, level=0)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    question: JsonObject = {"type": "text", "text": f"What is in picture {number}?"}
    content: list[JsonObject] = [{"type": "image_url", "image_url": {"url": url}}, question]
    return {"model": "gpt-5.5", "messages": [{"role": "user", "content": content}]}  # type: ignore[dict-item]  # JSON.


def documents(number: int) -> JsonObject:
    """Ask about long documents, as a RAG application does."""
    found, question = noise(1_500_000), f"What do they say about {number}?"
    said: list[JsonObject] = [{"role": "user", "content": found}, {"role": "user", "content": question}]
    return {"model": "gpt-5.5", "messages": said}  # type: ignore[dict-item]  # JSON.


def instructions(number: int) -> JsonObject:
    """Ask under instructions that nobody else has."""
    return {"model": "gpt-5.5", "instructions": noise(4_000_000), "input": f"Hello {number}", "store": False}


def tools(number: int) -> JsonObject:
    """Ask with a tool that nobody else has."""
    tool: JsonObject = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    declared: list[JsonObject] = [{**tool, "description": noise(4_000_000)}]
    return {"model": "gpt-5.5", "tools": declared, "input": f"Hello {number}", "store": False}  # type: ignore[dict-item]  # JSON.


@pytest.mark.promise("limits.memory")
@pytest.mark.parametrize(
    ("path", "body", "count"),
    [(CHAT, picture, 70), (CHAT, documents, 60), (RESPONSES, instructions, 16), (RESPONSES, tools, 16)],
    ids=["pictures", "documents", "instructions", "tools"],
)
async def test_the_gateway_does_not_grow_with_what_it_is_sent(
    site: Site, path: str, body: Callable[[int], JsonObject], count: int
) -> None:
    async def ask(number: int) -> None:
        assert (await site.hostile.post(path, json=body(number))).status_code == 200

    async def ask_all(numbers: range) -> None:
        left = iter(numbers)

        async def one_after_another() -> None:
            for number in left:
                await ask(number)

        await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))

    await ask_all(range(FIRST))
    before = resident_mb(site.gateway.pid)
    await ask_all(range(FIRST, count))
    assert resident_mb(site.gateway.pid) - before < MOST_GROWTH_MB
    await site.assert_neighbour_is_served()
