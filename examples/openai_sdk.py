"""The OpenAI SDK: an answer, a stream, and a function that the model calls."""

import json
import os

from openai import OpenAI

MODEL = os.environ.get("MODEL", "codex-5")
QUESTION = "What is the weather in Rome? Use get_weather."
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def get_weather(city: str) -> str:
    return f"It is sunny in {city}, and 21 °C."


client = OpenAI()

print(client.responses.create(model=MODEL, input="Say hello in one sentence.").output_text)

with client.responses.stream(model=MODEL, input="Count to five.") as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
print()

response = client.responses.create(model=MODEL, input=QUESTION, tools=[WEATHER])
while calls := [item for item in response.output if item.type == "function_call"]:
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": get_weather(**json.loads(call.arguments))}
        for call in calls
    ]
    response = client.responses.create(model=MODEL, input=outputs, tools=[WEATHER], previous_response_id=response.id)
print(response.output_text)
