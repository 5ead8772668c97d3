"""OpenAI's Agents SDK with a tool."""

import os

from agents import Agent, Runner, function_tool, set_tracing_disabled

MODEL = os.environ.get("MODEL", "codex-5")

# Traces would go to OpenAI, under a key that is not OpenAI's.
set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"It is sunny in {city}, and 21 °C."


agent = Agent(name="Weather", model=MODEL, instructions="Be brief.", tools=[get_weather])
print(Runner.run_sync(agent, "What is the weather in Rome? Use get_weather.").final_output)
