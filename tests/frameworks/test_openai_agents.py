"""Agents of OpenAI's own SDK run their tool loops through the gateway, with either of its models."""

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)

from tests.frameworks.weather_loop import QUESTION, WeatherLoop
from tests.support.gateway import Bridge
from tests.support.tool_clients import MODEL

pytestmark = [pytest.mark.anyio, pytest.mark.real]

NO_TRACES = RunConfig(tracing_disabled=True)


def agent_of(bridge: Bridge, loop: WeatherLoop, api: str) -> Agent[None]:
    kind = OpenAIChatCompletionsModel if api == "chat" else OpenAIResponsesModel
    model = kind(model=MODEL, openai_client=bridge.client)
    return Agent(name="forecaster", instructions="Be brief.", model=model, tools=[function_tool(loop.weather)])


@pytest.mark.promise("tools.frameworks")
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_agent_runs_its_tool_loop_in_one_turn(bridge: Bridge, api: str) -> None:
    loop = WeatherLoop(bridge)
    result = await Runner.run(agent_of(bridge, loop, api), QUESTION, run_config=NO_TRACES)
    loop.check(result.final_output)


@pytest.mark.promise("tools.frameworks")
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_agent_that_streams_does_so_too(bridge: Bridge, api: str) -> None:
    loop = WeatherLoop(bridge)
    running = Runner.run_streamed(agent_of(bridge, loop, api), QUESTION, run_config=NO_TRACES)
    kinds = [event.type async for event in running.stream_events()]
    assert "run_item_stream_event" in kinds
    loop.check(running.final_output)
