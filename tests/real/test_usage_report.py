"""What clients have used, in OpenAI's shape and by `turnbridge usage`; and token limits."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.command import run
from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.issued_keys import bearer, issued, known
from tests.support.sockets import connected
from turnbridge.scripted_model.replies import Usage, answer, error_reply, message
from turnbridge.store.schema import store_url
from turnbridge.turn.clients import ClientLimits
from turnbridge.turn.items import JsonObject
from turnbridge.turn.usage import DAY_S, TokenLimit

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
CHAT = "/v1/chat/completions"
USAGE = "/v1/organization/usage/completions"
HI: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
SPENT = Usage(input_tokens=100, cached_tokens=60, output_tokens=30, reasoning_tokens=20)


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    """Return a gateway whose model always uses as much."""
    async with running_bridge(tmp_path) as running:
        running.model.respond = lambda _: answer(message("ok"), usage=SPENT)
        yield running


async def counted(bridge: Bridge, key: str, requests: int, tokens: int = 0, **query: object) -> list[dict[str, Any]]:
    """Return the results of this day once so many requests and tokens of input are stored."""
    wanted: Any = {"start_time": int(time.time()) - DAY_S, "limit": 3, **query}
    async with asyncio.timeout(30):
        while True:
            page = (await bridge.http.get(USAGE, params=wanted, headers=bearer(key))).json()
            results = [result for bucket in page["data"] for result in bucket["results"]]
            found = [sum(result[name] for result in results) for name in ("num_model_requests", "input_tokens")]
            if found[0] >= requests and found[1] >= tokens:
                return results
            await bridge.gateway.meter.flush()


@pytest.mark.promise("usage.stored", "usage.own")
async def test_usage_is_counted_by_key_and_model_and_shown_to_whom_it_belongs(bridge: Bridge, tmp_path: Path) -> None:
    url = store_url(tmp_path)
    alice, bob = await issued(url, "alice"), await issued(url, "bob")
    await known(bridge, alice, bob)
    for key in (alice, alice, bob):
        assert (await bridge.http.post(CHAT, json=HI, headers=bearer(key))).status_code == 200
    background = await bridge.client.with_options(api_key=alice).responses.create(
        model=MODEL, input="later", background=True
    )
    client = bridge.client.with_options(api_key=alice)
    async for _ in await client.responses.retrieve(background.id, stream=True):
        pass  # Until its end.
    async with connected(bridge.url, key=bob) as socket:
        await socket.ask("hi")
    bridge.model.respond = lambda _: error_reply(400, "No.")
    assert (await bridge.http.post(CHAT, json=HI, headers=bearer(bob))).status_code >= 400
    assert (await bridge.http.post(CHAT, json={**HI, "model": "nonsense"}, headers=bearer(bob))).status_code == 404
    assert background.status == "queued"

    own = await counted(bridge, alice, 3, 300, **{"group_by[]": ["api_key_id", "model"]})
    shown = [{name: value for name, value in each.items() if value} for each in own]
    assert shown == [
        {
            "object": "organization.usage.completions.result",
            "input_tokens": 300,
            "output_tokens": 90,
            "input_cached_tokens": 180,
            "output_reasoning_tokens": 60,
            "num_model_requests": 3,
            "api_key_id": "alice",
            "model": MODEL,
        }
    ]
    # Whatever she asks for, she is shown nothing of anybody else.
    assert await counted(bridge, alice, 0, api_key_ids="bob") == []
    everything = await counted(bridge, API_KEY, 7, 500, group_by="api_key_id")
    assert {each["api_key_id"]: (each["num_model_requests"], each["num_failed_requests"]) for each in everything} == {
        "alice": (3, 0),
        "bob": (4, 2),
    }
    by_model = await counted(bridge, API_KEY, 4, group_by="model", api_key_ids="bob")
    assert {each["model"]: each["num_failed_requests"] for each in by_model} == {"": 1, MODEL: 1}

    listed = await run(tmp_path, "usage", "--json", "--days", "2", PROXY_DATA_DIR=str(tmp_path))
    assert [(line["client"], line["requests"], line["input"]) for line in json.loads(listed.out)] == [
        ("alice", 3, 300),
        ("bob", 4, 200),
    ]
    table = await run(tmp_path, "usage", "--by", "model", PROXY_DATA_DIR=str(tmp_path))
    assert table.out.splitlines()[-1].split() == ["total", "7", "2", "500", "300", "150", "100"]


@pytest.mark.promise("usage.openai")
async def test_the_official_sdk_pages_through_usage(bridge: Bridge, tmp_path: Path) -> None:
    del tmp_path
    await bridge.http.post(CHAT, json=HI)
    await counted(bridge, API_KEY, 1)
    admin = bridge.client.with_options(admin_api_key=API_KEY).admin.organization.usage
    start = int(time.time()) - 3 * DAY_S

    first = await admin.completions(start_time=start, limit=2, group_by=["model"])
    assert (len(first.data), first.has_more) == (2, True)
    assert [bucket.results for bucket in first.data] == [[], []]
    second = await admin.completions(start_time=start, limit=2, group_by=["model"], page=str(first.next_page))
    (result,) = [each for bucket in second.data for each in bucket.results or []]
    found: Any = result
    assert (found.model, found.input_tokens, found.num_model_requests) == (MODEL, 100, 1)
    assert (second.has_more, second.next_page) == (False, None)
    assert second.data[0].start_time == first.data[-1].end_time
    by_hour: Any = await admin.completions(start_time=int(time.time()) - 3600, bucket_width="1h")
    assert sum(each.input_tokens for bucket in by_hour.data for each in bucket.results or []) == 100


@pytest.mark.promise("usage.openai")
@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({}, "start_time"),
        ({"start_time": "yesterday"}, "start_time"),
        ({"start_time": "9" * 40}, "start_time"),
        ({"start_time": "-1"}, "start_time"),
        ({"start_time": 0, "bucket_width": "1m"}, "bucket_width"),
        ({"start_time": 0, "limit": 32}, "limit"),
        ({"start_time": 0, "limit": 0}, "limit"),
        ({"start_time": 0, "group_by": "owner"}, "group_by"),
        ({"start_time": 0, "page": "page_1"}, "page"),
        ({"start_time": 0, "page": "86400"}, "page"),
        ({"start_time": 0, "models": "m" * 300}, "models"),
        ({"start_time": 0, "api_key_ids": ",".join(map(str, range(500)))}, "api_key_ids"),
    ],
)
async def test_a_wrong_question_is_refused(shared: Bridge, query: dict[str, Any], param: str) -> None:
    refused = await shared.http.get(USAGE, params=query)

    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


@pytest.mark.promise("keys.tokens")
async def test_a_key_that_has_used_its_tokens_waits_for_the_next_window(bridge: Bridge, tmp_path: Path) -> None:
    limits = ClientLimits(tokens=(TokenLimit(200, "week"), TokenLimit(10**9, "day")))
    key = await issued(store_url(tmp_path), "carol", limits)
    await known(bridge, key)
    client = bridge.client.with_options(api_key=key)

    first = await client.responses.with_raw_response.create(model=MODEL, input="hi")
    assert (first.headers["x-ratelimit-limit-tokens"], first.headers["x-ratelimit-remaining-tokens"]) == ("200", "200")
    second = await client.responses.with_raw_response.create(model=MODEL, input="hi")
    assert second.headers["x-ratelimit-remaining-tokens"] == "70"
    with pytest.raises(openai.RateLimitError) as spent:
        await client.responses.create(model=MODEL, input="hi")
    monday = 4 * DAY_S + (int(time.time()) - 4 * DAY_S) // (7 * DAY_S) * 7 * DAY_S + 7 * DAY_S
    told = spent.value.response.headers
    assert spent.value.code == "rate_limit_exceeded"
    assert abs(int(told["retry-after"]) - (monday - time.time())) < 5
    assert told["x-ratelimit-remaining-tokens"] == "0"
    # Another key goes on, and the store knows it after a restart.
    assert (await bridge.http.post(CHAT, json=HI)).status_code == 200
    await bridge.gateway.meter.flush()
    async with running_bridge(tmp_path) as restarted:
        again = await restarted.http.post(CHAT, json=HI, headers=bearer(key))
        assert (again.status_code, again.headers["x-ratelimit-remaining-tokens"]) == (429, "0")
