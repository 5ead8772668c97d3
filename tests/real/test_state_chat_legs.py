"""Stored chats across restarts: the model sees its reasoning, calls and outputs as if nothing had happened."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Bridge, running_bridge
from tests.support.tool_clients import HI, WEATHER, Seen, declared, inputs, weather_call
from turnbridge.scripted_model.replies import Reply, answer, function_call, message, reasoning
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

STRICT: Any = declared("chat", [{"name": "weather", "parameters": WEATHER, "strict": True}])
CUSTOM: JsonObject = {"type": "custom", "custom": {"name": "sql"}}
SUNNY = answer(reasoning(["So."], encrypted="Z"), message("Sunny."))
ROME, OSLO = weather_call("Rome", "call_1"), weather_call("Oslo", "call_2")

CASES: dict[str, tuple[list[Reply], dict[str, Any]]] = {
    "two rounds, the first of two calls": (
        [
            answer(reasoning(["Hm."], encrypted="A"), message("Looking."), ROME, OSLO),
            answer(reasoning(["And."], encrypted="B"), weather_call("Bern", "call_3")),
            SUNNY,
        ],
        {"tools": declared("chat")},
    ),
    "a custom tool": (
        [answer(reasoning(["Hm."], encrypted="A"), function_call("sql", {"input": "SELECT 1"}, call_id="c1")), SUNNY],
        {"tools": [CUSTOM]},
    ),
    "one call at a time": (
        [answer(reasoning(["Hm."], encrypted="A"), ROME, OSLO), SUNNY],
        {"tools": declared("chat"), "parallel_tool_calls": False},
    ),
    "a corrected call": (
        [
            answer(reasoning(["Hm."], encrypted="A"), function_call("weather", {"city": 7}, call_id="call_0")),
            answer(reasoning(["Oh."], encrypted="B"), ROME),
            SUNNY,
        ],
        {"tools": STRICT},
    ),
    "a call that was demanded": (
        [
            answer(reasoning(["Hm."], encrypted="A"), message("No.")),
            answer(reasoning(["Oh."], encrypted="B"), ROME),
            SUNNY,
        ],
        {"tools": declared("chat"), "tool_choice": "required"},
    ),
}


async def leg(bridge: Bridge, history: list[Any], options: dict[str, Any]) -> JsonObject:
    """Ask once, and add the answer and the outputs of its calls to the history."""
    # What was demanded once is not demanded of the answer.
    later = {**options, "tool_choice": "auto"} if len(history) > 1 else options
    raw = await bridge.http.post(
        "/v1/chat/completions", json={"model": "gpt-5.5", "messages": history, "store": True, **later}
    )
    assert raw.status_code == 200, raw.text
    said: Any = raw.json()["choices"][0]["message"]
    history.append({key: said[key] for key in ("role", "content", "tool_calls") if said.get(key) is not None})
    for call in said.get("tool_calls") or []:
        history.append({"role": "tool", "tool_call_id": call["id"], "content": f"output of {call['id']}"})
    shown: JsonObject = {"text": said["content"], "calls": said.get("tool_calls") or []}
    return shown


async def talk(directory: Path, case: str, *, restarts: bool) -> Seen:
    """Have the whole conversation, with or without a restart of the gateway before each request."""
    replies, options = CASES[case]
    history: list[Any] = [HI]
    seen = Seen()
    left = list(replies)
    while not seen.client or history[-1]["role"] == "tool":
        async with running_bridge(directory) as bridge:
            bridge.script(*left)
            while True:
                seen.client.append(await leg(bridge, history, options))
                if restarts or history[-1]["role"] != "tool":
                    break
            shown = inputs(bridge)
            seen.model += shown
            left = left[len(shown) :]
    return seen


@pytest.mark.promise("state.chats.reasoning", "state.restart")
@pytest.mark.parametrize("case", CASES)
async def test_a_restart_between_the_legs_of_a_stored_chat_changes_nothing(tmp_path: Path, case: str) -> None:
    whole = await talk(tmp_path / "whole", case, restarts=False)
    broken = await talk(tmp_path / "broken", case, restarts=True)
    assert broken.client == whole.client
    assert broken.model == whole.model
    last: Any = whole.model[-1]
    assert {"reasoning", "function_call", "function_call_output"} <= {item["type"] for item in last}


HIDING: list[Reply] = [
    answer(reasoning(["Hm."], encrypted="A"), function_call("weather", {"city": 7}, call_id="call_0")),
    answer(reasoning(["Oh."], encrypted="B"), ROME, OSLO),
    SUNNY,
]


@pytest.mark.promise("state.hidden-calls", "state.restart")
@pytest.mark.parametrize("background", [False, True])
async def test_a_stored_response_keeps_the_calls_that_its_client_was_not_given(
    tmp_path: Path, background: bool
) -> None:
    tools = declared("responses", [{"name": "weather", "parameters": WEATHER, "strict": True}])
    options = {"model": "gpt-5.5", "tools": tools, "parallel_tool_calls": False}
    seen = {}
    for restarts in (False, True):
        directory, left, shown = tmp_path / str(restarts), HIDING, list[Any]()
        body: Any = {"input": [HI], "background": background, **options}
        while left:
            async with running_bridge(directory) as bridge:
                bridge.script(*left)
                while True:
                    response = (await bridge.http.post("/v1/responses", json=body)).json()
                    while response["status"] in ("queued", "in_progress"):
                        response = (await bridge.http.get(f"/v1/responses/{response['id']}")).json()
                    calls = [item["call_id"] for item in response["output"] if item["type"] == "function_call"]
                    outputs = [{"type": "function_call_output", "call_id": each, "output": "dry"} for each in calls]
                    body = {"input": outputs, "previous_response_id": response["id"], **options}
                    if restarts or not calls:
                        break
                shown += inputs(bridge)
                left = left[len(inputs(bridge)) :]
        seen[restarts] = shown
    assert [item.get("call_id") for item in seen[False][-1]][1:] == [
        *(None, "call_0", "call_0", None, "call_1", "call_2", "call_1", "call_2")
    ]
    assert seen[True] == seen[False]
