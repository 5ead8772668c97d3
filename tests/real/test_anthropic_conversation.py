"""A long conversation as Claude Code has it: one thread of Codex's from the first turn to the last."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.logs import logged_requests
from tests.support.tool_clients import threads
from turnbridge.scripted_model.replies import Reply, answer, function_call, message, reasoning
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

TURNS = 10


@pytest.fixture
async def warm(tmp_path: Path) -> AsyncIterator[Bridge]:
    """Return a gateway that keeps threads."""
    async with running_bridge(tmp_path, PROXY_WARM_THREADS_MAX=64) as running:
        yield running


TOOLS: list[JsonObject] = [
    {
        "name": name,
        "description": f"{name} something.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    }
    for name in ("Read", "Bash")
]
SYSTEM: list[JsonObject] = [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.327;"},
    {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
]
HEADERS = {"x-api-key": API_KEY, "anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219"}
USER: JsonObject = {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'}


def marked(text: str) -> list[JsonObject]:
    """Return a text as the newest message has it; in the next request the same is a bare string."""
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]


def replies() -> list[Reply]:
    """Return what the model does: every second question takes two tools first."""
    told: list[Reply] = []
    for turn in range(TURNS):
        if turn % 2:
            calls = [
                function_call(name, {"path": str(turn)}, call_id=f"call_{turn}_{name}") for name in ("Read", "Bash")
            ]
            told.append(answer(reasoning([f"Turn {turn}."], encrypted=f"E{turn}"), message("I look."), *calls))
        told.append(answer(message(f"Answer {turn}.")))
    return told


@pytest.mark.promise("anthropic.threads", "anthropic.content", "anthropic.system", "anthropic.parameters")
async def test_ten_turns_ride_one_thread(warm: Bridge) -> None:
    warm.script(*replies())
    history: list[Any] = [
        {"role": "user", "content": "<system-reminder>A note.</system-reminder>"},
        {"role": "system", "content": "The date is 2026-11-18."},
    ]
    expected: list[str] = []
    with structlog.testing.capture_logs() as logs:
        for turn in range(TURNS):
            history.append({"role": "user", "content": marked(f"Question {turn}?")})
            said = await _ask(warm, history)
            expected.append("warm" if turn else "fresh")
            if turn % 2:
                calls = [block for block in said if block["type"] == "tool_use"]
                assert len(calls) == 2
                results: list[JsonObject] = [
                    {"type": "tool_result", "tool_use_id": call["id"], "content": "done"} for call in calls
                ]
                history.append({"role": "user", "content": [*results[:-1], {**results[-1], "is_error": True}]})
                said = await _ask(warm, history)
                expected.append("parked")
            assert said[-1] == {"type": "text", "text": f"Answer {turn}."}
        lines = await logged_requests(logs, len(expected))
    assert [line["served_by"] for line in lines] == expected
    assert threads(warm) == 1


async def _ask(bridge: Bridge, history: list[Any]) -> list[Any]:
    """Ask as Claude Code does, add the answer to the history, and return its blocks."""
    body = {"model": "claude-gpt-5.5", "max_tokens": 32_000, "system": SYSTEM, "messages": history, "tools": TOOLS}
    body |= {"thinking": {"type": "adaptive"}, "metadata": USER, "context_management": {"edits": []}}
    answered = await bridge.http.post("/v1/messages?beta=true", json=body, headers=HEADERS)
    assert answered.status_code == 200, answered.text
    blocks: list[Any] = answered.json()["content"]
    newest = history[-1]["content"]
    if isinstance(newest, list) and newest[0]["type"] == "text":
        history[-1] = {"role": "user", "content": newest[0]["text"]}
    history.append({"role": "assistant", "content": blocks})
    return blocks
