"""A LangChain agent with a tool. `ChatOpenAI` reads OPENAI_BASE_URL and OPENAI_API_KEY."""

import os

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

MODEL = os.environ.get("MODEL", "codex-5")


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"It is sunny in {city}, and 21 °C."


agent = create_agent(ChatOpenAI(model=MODEL, use_responses_api=True), [get_weather], system_prompt="Be brief.")
result = agent.invoke({"messages": [{"role": "user", "content": "What is the weather in Rome? Use get_weather."}]})
print(result["messages"][-1].text)
