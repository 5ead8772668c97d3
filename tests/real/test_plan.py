"""The plan behind Codex, as a provider tells it in the headers of its answers."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import openai
import pytest

from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.issued_keys import bearer, issued, known
from turnbridge.scripted_model.replies import HttpReply, StreamReply, answer, message
from turnbridge.store.schema import store_url
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CHAT = "/v1/chat/completions"
HI: JsonObject = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]}
PREFIX = "x-turnbridge-plan-"


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    """Return a gateway of its own, which knows nothing of a plan."""
    async with running_bridge(tmp_path) as running:
        yield running


def told(reply: StreamReply, **headers: object) -> StreamReply:
    """Return an answer with the provider's headers."""
    return replace(reply, headers={f"x-codex-{name.replace('_', '-')}": str(value) for name, value in headers.items()})


async def plan_of(bridge: Bridge, key: str = API_KEY) -> dict[str, str]:
    answered = await bridge.http.post(CHAT, json=HI, headers=bearer(key))
    return {name.removeprefix(PREFIX): value for name, value in answered.headers.items() if name.startswith(PREFIX)}


@pytest.mark.promise("plan.shown")
async def test_the_owner_sees_how_the_plan_stands_and_others_do_not(bridge: Bridge, tmp_path: Path) -> None:
    reset = int(time.time()) + 3600
    windows = {
        "primary_used_percent": 41.6,
        "primary_window_minutes": 300,
        "primary_reset_at": reset,
        "secondary_used_percent": 7,
        "secondary_window_minutes": 10080,
        "secondary_reset_at": reset + 86400,
    }
    expected = {
        "primary-used-percent": "42",
        "primary-window-minutes": "300",
        "primary-reset-at": str(reset),
        "secondary-used-percent": "7",
        "secondary-window-minutes": "10080",
        "secondary-reset-at": str(reset + 86400),
    }
    bridge.script(told(answer(message("one")), **windows))
    assert await plan_of(bridge) == expected

    # Without headers, Codex tells nulls: what was known stays.
    bridge.says("two")
    assert await plan_of(bridge) == expected
    bridge.script(told(answer(message("three")), primary_used_percent=50, primary_window_minutes=300))
    assert await plan_of(bridge) == {**expected, "primary-used-percent": "50"}

    key = await issued(store_url(tmp_path), "alice")
    await known(bridge, key)
    bridge.says("four")
    assert await plan_of(bridge, key) == {}
    metrics = (await bridge.http.get("/metrics")).text
    assert 'turnbridge_plan_used_ratio{account="default",window="primary"} 0.5' in metrics
    assert 'turnbridge_plan_used_ratio{account="default",window="secondary"} 0.07' in metrics
    assert 'turnbridge_plan_reset_timestamp_seconds{account="default",window="primary"}' in metrics


@pytest.mark.promise("plan.spent")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_spent_plan_says_when_it_comes_back(bridge: Bridge, streamed: bool) -> None:
    reset = int(time.time()) + 1234
    spent: JsonObject = {
        "error": {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus"}
    }
    headers = {
        "x-codex-primary-used-percent": "100",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": str(reset),
    }
    bridge.model.respond = lambda _: HttpReply(status=429, body=spent, headers=headers)

    with pytest.raises(openai.RateLimitError) as refused:
        await bridge.client.responses.create(model="gpt-5.5", input="hi", stream=streamed)

    assert refused.value.code == "insufficient_quota"
    answered = refused.value.response.headers
    assert abs(int(answered["retry-after"]) - (reset - time.time())) < 10
    assert answered[f"{PREFIX}primary-used-percent"] == "100"
    # It is the plan of now: nobody is refused by memory.
    bridge.says("back")
    assert (await bridge.http.post(CHAT, json=HI)).status_code == 200
