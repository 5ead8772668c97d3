"""What an agent's requests cost the gateway: long histories of calls and outputs, and many tools, sent each time."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

from bench.client import ASK, CHAT, DELTAS, MESSAGES, MOST_TOKENS, RESPONSES, Client
from bench.processes import gateway_alone
from bench.report import Section, at_most, table
from bench.rounds import Measured, Side, interleaved, warm_up

TITLE = "An agent's requests"
STEPS = 50
TOOLS = 20
SHORT_OUTPUT, LONG_OUTPUT = 20, 2000
REQUESTS, ROUNDS = 20, 6
# The outputs are copied a few times on their way, but nothing is done with each of their characters.
MOST_FOR_TEXT = 1.5
INTRODUCTION = (
    f"The gateway alone, on an app-server of recorded shapes. Each request brings {STEPS} steps: a question, a call, "
    "its output, an answer. It starts a thread of its own; milliseconds of processor time."
)

Body = Mapping[str, object]


def chat(output: str, tools: Sequence[Body]) -> Body:
    """Return the steps as messages of Chat Completions."""
    messages: list[Body] = []
    for step in range(STEPS):
        call = {"name": "tool_0", "arguments": json.dumps({"place": "here"})}
        messages += [
            {"role": "user", "content": f"Do step {step}."},
            {"role": "assistant", "tool_calls": [{"id": f"call_{step}", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": f"call_{step}", "content": output},
            {"role": "assistant", "content": "Done."},
        ]
    declared = [{"type": "function", "function": tool} for tool in tools]
    return {"messages": [*messages, {"role": "user", "content": ASK}], "tools": declared}


def responses(output: str, tools: Sequence[Body]) -> Body:
    """Return the steps as items of Responses."""
    items: list[Body] = []
    for step in range(STEPS):
        call = {"name": "tool_0", "arguments": json.dumps({"place": "here"})}
        items += [
            {"role": "user", "content": f"Do step {step}."},
            {"type": "function_call", "call_id": f"call_{step}", **call},
            {"type": "function_call_output", "call_id": f"call_{step}", "output": output},
            {"role": "assistant", "content": "Done."},
        ]
    declared = [{"type": "function", **tool} for tool in tools]
    return {"input": [*items, {"role": "user", "content": ASK}], "tools": declared, "store": False}


def messages(output: str, tools: Sequence[Body]) -> Body:
    """Return the steps as messages of Anthropic's API, whose roles alternate."""
    turns: list[Body] = []
    for step in range(STEPS):
        use = {"type": "tool_use", "id": f"toolu_{step}", "name": "tool_0", "input": {"place": "here"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": output}
        turns += [
            {"role": "user", "content": f"Do step {step}."},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "Done."},
        ]
    declared = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in tools
    ]
    return {"messages": [*turns, {"role": "user", "content": ASK}], "tools": declared, "max_tokens": MOST_TOKENS}


APIS: dict[str, tuple[str, Callable[[str, Sequence[Body]], Body]]] = {
    "Chat Completions": (CHAT, chat),
    "Responses, not stored": (RESPONSES, responses),
    "Anthropic Messages": (MESSAGES, messages),
}
KINDS = {
    f"outputs of {SHORT_OUTPUT} characters": (SHORT_OUTPUT, 0),
    f"outputs of {LONG_OUTPUT:,} characters": (LONG_OUTPUT, 0),
    f"the same, and {TOOLS} tools": (LONG_OUTPUT, TOOLS),
}


def tool(number: int) -> Body:
    """Return a tool with a schema of 1 KB, as agents have them."""
    about = "What this parameter is for, in a sentence that tells the model enough to fill it in."
    properties: dict[str, Body] = {f"field_{index}": {"type": "string", "description": about} for index in range(6)}
    properties["places"] = {"type": "array", "items": {"type": "string", "enum": ["here", "there", "elsewhere"]}}
    schema = {"type": "object", "properties": properties, "required": ["field_0"], "additionalProperties": False}
    return {"name": f"tool_{number}", "description": "Does something useful. " * 10, "parameters": schema}


async def run(directory: Path, *, quick: bool) -> Section:
    """Measure requests that are alike but for their outputs and tools, through each API."""
    tools = [tool(number) for number in range(TOOLS)]
    # Kept threads would hold the history already.
    async with gateway_alone(directory / "gateway", PROXY_WARM_THREADS_MAX=0) as running:
        sides: list[Side] = []
        for (name, (path, body)), (size, many) in product(APIS.items(), KINDS.values()):
            client = Client(running.url, path)
            sides.append(_side(name, client, client.request(body("x" * size, tools[:many])), running.pid))
        await warm_up(sides, requests=4)
        measured = await interleaved(sides, at_once=1, requests=2 if quick else REQUESTS, rounds=1 if quick else ROUNDS)
    return _section(measured)


def _side(name: str, client: Client, request: bytes, pid: int) -> Side:
    return Side(name=name, ask=lambda: client.ask(request, deltas=DELTAS), own=[pid])


def _section(measured: Sequence[Measured]) -> Section:
    by_api = [measured[place : place + len(KINDS)] for place in range(0, len(measured), len(KINDS))]
    rows = [[name, *(f"{one.own_ms:.2f}" for one in kinds)] for name, kinds in zip(APIS, by_api, strict=True)]
    goals = [
        at_most(
            f"agents: CPU, outputs of {LONG_OUTPUT:,} characters : of {SHORT_OUTPUT}, {name}",
            kinds[1].own_ms / kinds[0].own_ms,
            MOST_FOR_TEXT,
        )
        for name, kinds in zip(APIS, by_api, strict=True)
    ]
    return Section(title=TITLE, lines=[INTRODUCTION, "", *table(("", *KINDS), rows)], goals=goals)
