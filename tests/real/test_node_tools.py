"""Tool loops of the official OpenAI SDK for node, through the whole gateway and the real Codex."""

import pytest

from tests.support.gateway import Bridge
from tests.support.node import run_script
from tests.support.tool_clients import (
    inputs,
    shown_outputs,
    threads,
    weather_call,
)
from turnbridge.scripted_model.replies import (
    Reply,
    answer,
    message,
    reasoning,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]


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


@pytest.mark.promise("tools.parked", "tools.frameworks")
async def test_the_node_sdk_runs_its_tool_loops_each_in_one_turn(bridge: Bridge) -> None:
    bridge.script()
    bridge.model.respond = respond
    printed = await run_script("tools.mjs", bridge)
    loop: JsonObject = {"text": "Sunny everywhere.", "cities": ["Rome", "Oslo", "Bern"]}
    assert printed == {"chat": loop, "chatStream": loop, "responses": loop, "responsesStream": loop}
    assert shown_outputs(inputs(bridge)[-1]) == ["sunny in Rome", "sunny in Oslo", "sunny in Bern"]
    assert threads(bridge) == 4
