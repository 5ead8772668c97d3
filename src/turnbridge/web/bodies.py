"""Reads large bodies beside the event loop, so that nobody else waits for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from turnbridge.turn.items import JsonObject
from turnbridge.wire.body_budget import check_body
from turnbridge.wire.validation import parse_body

T = TypeVar("T")

LARGE_BODY_BYTES = 128 * 1024
"""What is smaller is read within ten milliseconds, whatever it holds; to use a thread takes a tenth of one."""

# One for all: each step of another one would keep the interpreter's lock from the event loop for longer.
_thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")


async def beside(work: Callable[[], T], *, large: bool) -> T:
    """Return what the work gives; if it is on something large, beside the event loop."""
    if not large:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)


async def parsed(body: bytes) -> JsonObject:
    """Return the request's JSON object."""
    return await beside(lambda: _parsed(body), large=is_large(body))


def is_large(body: bytes) -> bool:
    """Tell whether what goes through a whole body takes long."""
    return len(body) > LARGE_BODY_BYTES


def _parsed(body: bytes) -> JsonObject:
    if is_large(body):
        check_body(body)
    return parse_body(body)
