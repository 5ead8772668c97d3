"""Clients that send raw JSON and call any kind of tool, on either API, streamed or not."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from tests.support.gateway import Bridge
from tests.support.tool_clients import HI, MODEL, ROUTES, Api, Seen, Way, bare, inputs, threads
from turnbridge.scripted_model.replies import Reply

Outputs = Callable[[Sequence[Any]], list[Any]]

CALLS = ("function_call", "custom_tool_call", "tool_search_call")


async def answered(bridge: Bridge, api: Api, body: dict[str, Any], *, stream: bool = False) -> tuple[list[Any], str]:
    """Return what an answer adds to the history, and how it was served."""
    raw = await bridge.http.post(ROUTES[api], json={"model": MODEL, "stream": stream, **body})
    assert raw.status_code == 200, raw.text
    served = raw.headers["x-turnbridge-thread"]
    if not stream:
        whole = raw.json()
        return ([whole["choices"][0]["message"]] if api == "chat" else whole["output"]), served
    events = [json.loads(line[6:]) for line in raw.text.split("\n") if line.startswith("data: {")]
    if api == "chat":
        return [_message(events)], served
    return [event["item"] for event in events if event["type"] == "response.output_item.done"], served


def _message(chunks: Sequence[Any]) -> dict[str, Any]:
    """Return the message that a client makes of a stream."""
    calls: dict[int, Any] = {}
    text = ""
    for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
        text += delta.get("content") or ""
        for piece in delta.get("tool_calls") or []:
            call = calls.setdefault(piece["index"], piece)
            if call is not piece:
                kind, field = ("custom", "input") if "custom" in piece else ("function", "arguments")
                call[kind][field] += piece[kind][field]
    made = [{key: value for key, value in call.items() if key != "index"} for call in calls.values()]
    message: dict[str, Any] = {"role": "assistant", "content": None if made and not text else text}
    return {**message, "tool_calls": made} if made else message


def calls_in(said: Sequence[Any]) -> list[Any]:
    """Return the calls of an answer."""
    return [call for item in said for call in (item.get("tool_calls") or ([item] if item.get("type") in CALLS else []))]


def plain_outputs(calls: Sequence[Any]) -> list[Any]:
    """Return an output for each call, in the words of its API."""
    return [
        {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": f"done {call['call_id']}"}
        if "call_id" in call
        else {"role": "tool", "tool_call_id": call["id"], "content": f"done {call['id']}"}
        for call in calls
    ]


async def converse_raw(
    bridge: Bridge,
    replies: Sequence[Reply],
    *,
    api: Api,
    way: Way | Literal["as it comes"],
    stream: bool = False,
    outputs: Outputs = plain_outputs,
    **options: Any,
) -> tuple[Seen, list[str]]:
    """Let a client talk to the model until no call is left; return what both saw, and how it was served."""
    bridge.script(*replies)
    seen, ways = Seen(), list[str]()
    history: list[Any] = [HI]
    while True:
        body = {("messages" if api == "chat" else "input"): history, **options}
        said, served = await answered(bridge, api, body, stream=stream)
        seen.client.append(said)
        ways.append(served)
        history += said
        if not (calls := calls_in(said)):
            break
        history += outputs(calls)
        if way == "replayed":
            bridge.gateway.calls.close()
    seen.model = inputs(bridge)
    assert len(bridge.model.requests) == len(replies)
    return seen, ways


async def both_ways(
    bridge: Bridge, replies: Sequence[Reply], *, api: Api, stream: bool = False, **options: Any
) -> Seen:
    """Have the same conversation parked and replayed, check that nobody can tell which is which, and return it."""
    parked, ways = await converse_raw(bridge, replies, api=api, way="parked", stream=stream, **options)
    assert (ways[1:], threads(bridge)) == (["parked"] * (len(ways) - 1), 1)
    replayed, ways = await converse_raw(bridge, replies, api=api, way="replayed", stream=stream, **options)
    assert ways[1:] == ["replayed"] * (len(ways) - 1)
    assert (bare(parked.client), parked.model) == (bare(replayed.client), replayed.model)
    return parked
