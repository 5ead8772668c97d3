"""The state calls of the official OpenAI SDK for node, through the whole gateway and the real Codex."""

from typing import Any

import pytest

from tests.support.gateway import Bridge
from tests.support.node import run_script
from turnbridge.scripted_model.replies import Reply, answer, message
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def respond(request: JsonObject) -> Reply:
    """Repeat what was said last."""
    items: Any = request["input"]
    return answer(message(f"You said: {items[-1]['content'][0]['text']}"))


@pytest.mark.promise("state.sdks")
async def test_the_node_sdk_keeps_its_conversations_here(bridge: Bridge) -> None:
    bridge.script()
    bridge.model.respond = respond
    printed = await run_script("state.mjs", bridge)
    assert printed == {
        "texts": ["You said: first", "You said: second", "You said: second"],
        "context": ["first", "You said: first", "second"],
        "gone": {"status": 404, "code": "not_found"},
        "talk": ["in talk", "You said: in talk"],
        "metadata": {"topic": "other"},
        "deleted": True,
        "resumed": True,
        "found": [True],
    }
