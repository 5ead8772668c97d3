"""LangChain's agents run their tool loops through the gateway, in the words of each API."""

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.frameworks.weather_loop import QUESTION, WeatherLoop
from tests.support.gateway import API_KEY, Bridge
from tests.support.ollama_client import running_ollama
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


@pytest.mark.promise("tools.frameworks", "anthropic.tools", "anthropic.threads")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_agent_does_so_in_anthropics_words(bridge: Bridge, streamed: bool) -> None:
    loop = WeatherLoop(bridge)
    named: dict[str, Any] = {"model": f"claude-{MODEL}", "base_url": bridge.url, "api_key": SecretStr(API_KEY)}
    model = ChatAnthropic(**named, streaming=streamed, max_retries=0)
    agent: Any = create_agent(model, [loop.weather], system_prompt="Be brief.")
    result = await agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]})
    loop.check(result["messages"][-1].text)


@pytest.mark.promise("tools.frameworks", "ollama.clients", "ollama.threads")
async def test_an_agent_does_so_in_ollamas_words(tmp_path: Path) -> None:
    async with running_ollama(tmp_path) as running:
        loop, model = WeatherLoop(running.bridge), ChatOllama(model=MODEL, base_url=running.url)
        agent: Any = create_agent(model, [loop.weather], system_prompt="Be brief.")
        result = await agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]})
        await model._async_client._client.aclose()
    loop.check(result["messages"][-1].text)
