"""The state calls of the official OpenAI SDK for node, through the whole gateway and the real Codex."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import API_KEY, Bridge
from turnbridge.demo.replies import Reply, answer, message
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

FOLDER = Path(__file__).parents[1] / "node"

PATIENCE_S = 30
"""Far longer than the script takes."""


def respond(request: JsonObject) -> Reply:
    """Repeat what was said last."""
    items: Any = request["input"]
    return answer(message(f"You said: {items[-1]['content'][0]['text']}"))


@pytest.mark.skipif(
    shutil.which("node") is None or not (FOLDER / "node_modules" / "openai").is_dir(),
    reason="there is no node, or its packages are not installed",
)
async def test_the_node_sdk_keeps_its_conversations_here(bridge: Bridge) -> None:
    bridge.script()
    bridge.model.respond = respond
    async with asyncio.timeout(PATIENCE_S):
        script = await asyncio.create_subprocess_exec(
            "node",
            "state.mjs",
            cwd=FOLDER,
            env={**os.environ, "OPENAI_BASE_URL": f"{bridge.url}/v1", "OPENAI_API_KEY": API_KEY},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            printed, complaints = await script.communicate()
        finally:
            if script.returncode is None:
                script.kill()
                await script.wait()
    assert (script.returncode, complaints) == (0, b"")
    assert json.loads(printed) == {
        "texts": ["You said: first", "You said: second", "You said: second"],
        "context": ["first", "You said: first", "second"],
        "gone": {"status": 404, "code": "not_found"},
        "talk": ["in talk", "You said: in talk"],
        "metadata": {"topic": "other"},
        "deleted": True,
        "resumed": True,
        "found": [True],
    }
