"""Tool loops of the official OpenAI SDK for node, through the whole gateway and the real Codex."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.gateway import API_KEY, Bridge
from tests.support.tool_clients import inputs, shown_outputs, threads, weather_call
from turnbridge.demo.replies import Reply, answer, message, reasoning
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

FOLDER = Path(__file__).parents[1] / "node"

PATIENCE_S = 30
"""Far longer than all of the script's loops take."""


def respond(request: JsonObject) -> Reply:
    """Ask for two cities, then for a third, and be content."""
    match len(shown_outputs(request["input"])):
        case 0:
            rome, oslo = weather_call("Rome", "call_1"), weather_call("Oslo", "call_2")
            return answer(reasoning(["Two cities."], encrypted="SECRET"), rome, oslo)
        case 2:
            return answer(message("One more."), weather_call("Bern", "call_3"))
        case _:
            return answer(message("Sunny everywhere."))


@pytest.mark.skipif(
    shutil.which("node") is None or not (FOLDER / "node_modules" / "openai").is_dir(),
    reason="there is no node, or its packages are not installed",
)
async def test_the_node_sdk_runs_its_tool_loops_each_in_one_turn(bridge: Bridge) -> None:
    bridge.script()
    bridge.model.respond = respond
    async with asyncio.timeout(PATIENCE_S):
        script = await asyncio.create_subprocess_exec(
            "node",
            "tools.mjs",
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
    loop: JsonObject = {"text": "Sunny everywhere.", "cities": ["Rome", "Oslo", "Bern"]}
    assert json.loads(printed) == {"chat": loop, "chatStream": loop, "responses": loop, "responsesStream": loop}
    assert shown_outputs(inputs(bridge)[-1]) == ["sunny in Rome", "sunny in Oslo", "sunny in Bern"]
    assert threads(bridge) == 4
