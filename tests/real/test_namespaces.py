"""Calls with a namespace, through the real Codex: told to the client, given back to the model, kept."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.gateway import Bridge
from tests.support.tool_clients import (
    HI,
    MODEL,
    ask,
    declared,
    output_item,
    weather_call,
)
from turnbridge.scripted_model.replies import OutputItem, answer, message

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def in_namespace(made: OutputItem, namespace: str) -> OutputItem:
    """Return a call of the model's with a namespace."""
    return replace(made, item={**made.item, "namespace": namespace})


async def test_the_namespace_of_a_call_reaches_the_client_and_goes_back_to_the_model(bridge: Bridge) -> None:
    calls = [in_namespace(weather_call("Oslo", "c1"), "functions"), weather_call("Bern", "c2")]
    bridge.script(answer(*calls), answer(message("Sunny.")), answer(message("Still.")))
    asked: dict[str, Any] = {"model": MODEL, "tools": declared("responses")}
    first = await bridge.client.responses.create(input=[HI], **asked)  # type: ignore[list-item]
    assert [item.namespace for item in first.output if item.type == "function_call"] == ["functions", None]
    kept = await bridge.client.responses.retrieve(first.id)
    assert kept.output == first.output
    outputs: Any = [output_item("responses", call_id, "sunny") for call_id in ("c1", "c2")]
    raw = await bridge.client.responses.with_raw_response.create(input=outputs, previous_response_id=first.id, **asked)
    assert raw.headers["x-turnbridge-thread"] == "parked"
    await bridge.client.responses.create(input="And now?", previous_response_id=raw.parse().id, **asked)
    for request in bridge.model.requests[1:]:
        items: Any = request.body["input"]
        assert [item.get("namespace") for item in items if item["type"] == "function_call"] == ["functions", None]


async def test_a_call_in_a_namespace_that_nobody_declared_is_answered_by_codex(bridge: Bridge) -> None:
    bridge.script(answer(in_namespace(weather_call("Oslo", "c1"), "crm")), answer(message("I cannot.")))
    shown, calls = await ask(bridge, "responses", [HI])
    assert (shown["text"], calls) == ("I cannot.", [])
