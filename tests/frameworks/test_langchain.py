"""LangChain's agents run their tool loops through the gateway, over either route."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.frameworks.weather_loop import QUESTION, WeatherLoop
from tests.support.gateway import API_KEY, Bridge
from tests.support.tool_clients import MODEL

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.mark.promise("tools.frameworks")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_agent_runs_its_tool_loop_in_one_turn(bridge: Bridge, api: str, streamed: bool) -> None:
    loop = WeatherLoop(bridge)
    model = ChatOpenAI(
        model=MODEL,
        base_url=f"{bridge.url}/v1",
        api_key=SecretStr(API_KEY),
        use_responses_api=api == "responses",
        streaming=streamed,
        max_retries=0,
    )
    agent: Any = create_agent(model, [loop.weather], system_prompt="Be brief.")
    result = await agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]})
    loop.check(result["messages"][-1].text)
