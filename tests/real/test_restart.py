"""A gateway that was started again between two legs: it knows nothing of the calls, and the client cannot tell."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import running_bridge
from tests.support.tool_clients import (
    ask,
    bare,
    output_item,
    weather_call,
)
from turnbridge.scripted_model.replies import answer, message

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.mark.promise("tools.replay.unknown-calls", "state.restart")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_outputs_that_come_after_a_restart_are_replayed(tmp_path: Path, api: Any, stream: bool) -> None:
    history: list[Any] = [{"role": "user", "content": "weather?"}]
    async with running_bridge(tmp_path / "before") as bridge:
        bridge.script(answer(weather_call("Rome", "call_restart")))
        _, calls = await ask(bridge, api, history, stream=stream)
        (before,) = bridge.model.requests
    history.append(output_item(api, calls[0][0], "sun"))
    async with running_bridge(tmp_path / "after") as bridge:
        bridge.script(answer(message("Sunny.")))
        shown, _ = await ask(bridge, api, history, stream=stream)
        seen: Any = bare(bridge.seen()["input"])
    assert shown == {"text": "Sunny.", "calls": []}
    asked: Any = bare(before.body["input"])
    call_id, name, arguments = calls[0]
    assert seen == [
        *asked,
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": "sun"},
    ]
