"""Clients that let the gateway keep their conversations, and two keys to do so with."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import openai
from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.tool_clients import bare
from turnbridge.turn.items import Json, JsonObject

MODEL = "gpt-5.5"
OTHER_KEY = "sk-test-another-0123456789"
BOTH_KEYS = f"{API_KEY}, {OTHER_KEY}"

THREAD = "x-turnbridge-thread"


def keeping_bridge(data_dir: Path, **chosen: object) -> AbstractAsyncContextManager[Bridge]:
    """Run a gateway that knows two keys."""
    return running_bridge(data_dir, api_key=BOTH_KEYS, **chosen)


def stranger(bridge: Bridge) -> AsyncOpenAI:
    """Return a client with another key."""
    return bridge.client.with_options(api_key=OTHER_KEY)


async def respond(bridge: Bridge, given: object, **options: object) -> tuple[Response, str]:
    """Ask once, and return the response and how it was served."""
    wanted: dict[str, Any] = {"model": MODEL, "input": given, **options}
    raw = await bridge.client.responses.with_raw_response.create(**wanted)
    response: Response = raw.parse()
    return response, str(raw.headers[THREAD])


def told(error: openai.APIStatusError) -> tuple[int, str | None, str | None]:
    """Return what a program can tell of an error."""
    return error.status_code, error.code, error.param


def shown(bridge: Bridge, number: int = -1) -> Json:
    """Return the items that the model was shown in one of its requests, as far as it can tell them apart."""
    return bare(bridge.model.requests[number].body["input"])


def user(text: str) -> JsonObject:
    """Return what the model sees of a user's words."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def assistant(text: str) -> JsonObject:
    """Return what the model sees of its own words."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def thought(encrypted: str, *summaries: str) -> JsonObject:
    """Return what the model sees of its own thoughts."""
    parts: list[Json] = [{"type": "summary_text", "text": summary} for summary in summaries]
    return {"type": "reasoning", "summary": parts, "encrypted_content": encrypted}


def traces(directory: Path, text: str) -> list[str]:
    """Return the files in which a text stands, in any part of their bytes."""
    mark = text.encode()
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    return [str(path.relative_to(directory)) for path in files if mark in _bytes_of(path)]


def _bytes_of(path: Path) -> bytes:
    """Return what is in a file; in one that Codex has removed since it was listed, there is nothing."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
