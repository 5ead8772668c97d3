"""What reaches the model through Codex 0.92.0, apart from what the client sent."""

import asyncio

from tests.support.gateway import Bridge
from turnbridge.codex.legacy.flat_text import BUILT_IN, NO_WORKSPACE
from turnbridge.scripted_model.replies import (
    Pause,
    Wait,
    answer,
    message,
)
from turnbridge.turn.items import Json, JsonObject

MODEL = "gpt-5.2"

LATE = "late" * 25
"""What a model still says to nobody."""

# The patch tool is declared for models that know it, as this one does.
BUILT_IN_TOOLS = [
    "list_mcp_resources",
    "list_mcp_resource_templates",
    "read_mcp_resource",
    "update_plan",
    "apply_patch",
    "view_image",
]
assert set(BUILT_IN_TOOLS) < set(BUILT_IN)


def text(said: str) -> JsonObject:
    """Return a text of an input."""
    return {"type": "input_text", "text": said}


def image(url: str) -> list[JsonObject]:
    """Return an image of an input, in the tags that this Codex puts round it."""
    return [text("<image>"), {"type": "input_image", "image_url": url}, text("</image>")]


def as_seen(request: JsonObject) -> tuple[list[str], list[Json], list[str]]:
    """Return the developer's instructions, the content of the client's input, and the names of its tools.

    All that Codex adds by itself is held to be exactly what is known, and left out.
    """
    items, tools = request["input"], request["tools"]
    assert isinstance(items, list)
    assert isinstance(tools, list)
    permissions, developer, environment, *rest = [item for item in items if isinstance(item, dict)]
    assert _only_text(permissions, "developer").startswith("<permissions instructions>")
    assert _only_text(environment, "user").startswith("<environment_context>")
    told = _only_text(developer, "developer")
    assert told.startswith(NO_WORKSPACE)
    names = [str(tool.get("name", tool["type"])) for tool in tools if isinstance(tool, dict)]
    assert names[: len(BUILT_IN_TOOLS)] == BUILT_IN_TOOLS
    (asked,) = rest
    assert asked["role"] == "user"
    content = asked["content"]
    assert isinstance(content, list)
    return (
        [part for part in told.removeprefix(NO_WORKSPACE).split("\n\n") if part],
        content,
        names[len(BUILT_IN_TOOLS) :],
    )


def unhurried(text: str) -> list[str | Pause | Wait]:
    """Return pieces that come one by one, and no end after them."""
    pieces = [piece for letter in text for piece in (letter, Pause(seconds=0.01))]
    return [*pieces, Wait(gate=asyncio.Event())]


async def serve_another_turn(bridge: Bridge) -> None:
    """Run a turn, whatever the script; what Codex still asks for an interrupted one comes meanwhile."""
    respond = bridge.model.respond
    bridge.model.respond = lambda _: answer(message("next"))
    response = await bridge.client.responses.create(model=MODEL, input="hi")
    assert response.output_text == "next"
    bridge.model.respond = respond


def _only_text(item: JsonObject, role: str) -> str:
    match item:
        case {"type": "message", "role": str(speaker), "content": [{"type": "input_text", "text": str(said)}]}:
            assert speaker == role
            return said
        case _:
            raise AssertionError(item)
