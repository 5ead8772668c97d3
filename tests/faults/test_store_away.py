"""A store that hangs: answers leave without it, and a response in the background has one end, told to everybody."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai.types.responses import Response
from structlog.testing import capture_logs

from tests.store.postgres_server import running_postgres
from tests.support.gateway import Bridge, running_bridge
from tests.support.hanging_store import hanging
from turnbridge.api.responses import background
from turnbridge.engine.records import RUNNING
from turnbridge.scripted_model.replies import Wait, answer, message
from turnbridge.store.database import BreakerTiming
from turnbridge.store.schema import store_url

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
BOUND_S = 25
AFTER = 5
"""Requests that come while it is known that the store is away."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Return the URL of a Postgres."""
    with running_postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database."""
    return store_url(tmp_path / "shared") if request.param == "sqlite" else request.getfixturevalue("postgres")


@pytest.fixture
async def keeping(url: str, tmp_path: Path) -> AsyncIterator[Bridge]:
    """Return a gateway that has kept something."""
    async with running_bridge(tmp_path / "data", PROXY_DATABASE_URL=url) as bridge:
        bridge.says("before")
        await bridge.client.responses.create(model=MODEL, input="hi")
        yield bridge


async def answered(bridge: Bridge, **options: object) -> tuple[Response, float]:
    """Return an answer, and how long it took."""
    bridge.says("ready")
    began = time.monotonic()
    wanted: dict[str, Any] = {"model": MODEL, "input": "hi", **options}
    found = await bridge.client.responses.create(**wanted)
    if options.get("stream"):
        *_, last = [event async for event in found]
        found = last.response
    return found, time.monotonic() - began


def is_kept(response: Response) -> bool:
    assert (response.status, response.output_text) == ("completed", "ready")
    return response.to_dict()["store"] is not False


async def until_kept(bridge: Bridge) -> Response:
    """Ask until answers are kept again."""
    async with asyncio.timeout(BOUND_S):
        while not is_kept(found := (await answered(bridge))[0]):
            pass
    return found


@pytest.mark.promise("state.hanging-store")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_answers_that_are_ready_leave_without_a_store_that_hangs(keeping: Bridge, url: str, stream: bool) -> None:
    with capture_logs() as logs:
        with await hanging(url):
            answers = [await answered(keeping, stream=stream) for _ in range(1 + AFTER)]
        again = await until_kept(keeping)
    responses, times = zip(*answers, strict=True)
    assert not any(map(is_kept, responses))
    # They would take this long together if each waited for itself.
    assert sum(times[1:]) < AFTER * BreakerTiming().timeout_s
    not_kept = [line["response"] for line in logs if line["event"] == "response_not_kept"]
    assert not_kept[: 1 + AFTER] == [response.id for response in responses]
    assert [line["event"] for line in logs if line["event"] in ("store_away", "store_back")] == [
        "store_away",
        "store_back",
    ]
    assert (await keeping.client.responses.retrieve(again.id)).output_text == "ready"


@pytest.mark.promise("state.hanging-store")
async def test_many_answers_at_once_leave_within_the_time_of_one(keeping: Bridge, url: str) -> None:
    keeping.model.respond = lambda _: answer(message("ready"))
    with await hanging(url):
        began = time.monotonic()
        wanted: Any = {"model": MODEL, "input": "hi"}
        found = await asyncio.gather(*(keeping.client.responses.create(**wanted) for _ in range(12)))
        took = time.monotonic() - began
    assert not any(map(is_kept, found))
    # One after the other, or eight at a time, they would take at least twice as long.
    assert took < 2 * BreakerTiming().timeout_s
    await until_kept(keeping)


@pytest.mark.promise("state.hanging-store")
async def test_what_needs_the_store_is_refused_while_it_hangs(keeping: Bridge, url: str) -> None:
    keeping.script()
    hi = {"model": MODEL, "input": "hi"}
    asked: list[tuple[str, str, dict[str, object] | None]] = [
        ("POST", "/v1/conversations", {}),
        ("POST", "/v1/responses", {**hi, "background": True}),
        ("POST", "/v1/responses", {**hi, "previous_response_id": "resp_1"}),
        ("POST", "/v1/responses", {**hi, "conversation": "conv_1"}),
        ("GET", "/v1/responses/resp_1", None),
        ("GET", "/v1/chat/completions", None),
        ("DELETE", "/v1/conversations/conv_1", None),
    ]
    with await hanging(url):
        began = time.monotonic()
        told = [await keeping.http.request(method, path, json=body) for method, path, body in asked]
        took = time.monotonic() - began
    assert {(each.status_code, each.json()["error"]["code"]) for each in told} == {(503, "store_unavailable")}
    assert took < 2 * BreakerTiming().timeout_s
    assert keeping.model.requests == []


@pytest.mark.promise("state.hanging-store")
async def test_a_gateway_ends_while_its_store_hangs(url: str, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        bridge = await stack.enter_async_context(running_bridge(tmp_path / "data", PROXY_DATABASE_URL=url))
        gate = asyncio.Event()
        bridge.script(answer(message("one two", pieces=["one ", Wait(gate=gate), "two"])))
        await bridge.client.responses.create(model=MODEL, input="hi", background=True)
        await bridge.model.until(lambda model: model.active == 1)
        with await hanging(url):
            async with asyncio.timeout(BOUND_S):
                await bridge.gateway.drain(0)
                await stack.aclose()


async def begun(bridge: Bridge, gate: asyncio.Event) -> tuple[str, "asyncio.Task[list[str]]"]:
    """Start a response in the background that waits in its middle; return its id, and a reader of its stream."""
    bridge.script(answer(message("one two", pieces=["one ", Wait(gate=gate), "two"])))
    response = await bridge.client.responses.create(model=MODEL, input="hi", background=True)

    async def read() -> list[str]:
        stream = await bridge.client.responses.retrieve(response.id, stream=True)
        return [event.type async for event in stream]

    reading = asyncio.create_task(read())
    await bridge.model.until(lambda model: model.active == 1)
    return response.id, reading


async def polled(bridge: Bridge, response_id: str) -> httpx2.Response:
    return await bridge.http.get(f"/v1/responses/{response_id}")


@pytest.mark.promise("state.background.one-end")
async def test_a_response_that_ends_while_the_store_is_away_ends_so_for_everybody(
    keeping: Bridge, url: str, tmp_path: Path
) -> None:
    gate = asyncio.Event()
    response_id, reading = await begun(keeping, gate)
    with await hanging(url):
        gate.set()
        async with asyncio.timeout(BOUND_S):
            while (during := await polled(keeping, response_id)).json().get("status") in RUNNING:
                pass
        assert (during.status_code, during.json()["error"]["code"]) == (503, "store_unavailable")
        assert not reading.done()
    async with asyncio.timeout(BOUND_S):
        heard = await reading
    again = [event.type async for event in await keeping.client.responses.retrieve(response_id, stream=True)]
    assert (heard[-1], again) == ("response.completed", heard)
    # There another gateway finds it, and goes on.
    async with running_bridge(tmp_path / "other", PROXY_DATABASE_URL=url) as other:
        found, here = [(await polled(each, response_id)).json() for each in (other, keeping)]
        assert (found["status"], found) == ("completed", here)
        other.says("three")
        await other.client.responses.create(model=MODEL, input="and?", previous_response_id=response_id)
        assert [item["role"] for item in other.seen()["input"]] == ["user", "assistant", "user"]  # type: ignore[union-attr,index,call-overload]


@pytest.mark.promise("state.background.one-end")
async def test_a_response_that_outlived_its_lease_is_told_when_the_store_is_back(
    keeping: Bridge, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LEASE_S", 0.2)
    monkeypatch.setattr(background, "RENEWAL_S", 0.05)
    monkeypatch.setattr(background, "GRACE_S", 5.0)
    gate = asyncio.Event()
    async with running_bridge(tmp_path / "other", PROXY_DATABASE_URL=url) as other:
        response_id, reading = await begun(keeping, gate)
        with await hanging(url):
            # Both notice that the store is away, and the lease ends.
            for bridge in (keeping, other):
                assert not is_kept((await answered(bridge))[0])
            gate.set()
            async with asyncio.timeout(BOUND_S):
                while (during := await polled(keeping, response_id)).json().get("status") in RUNNING:
                    pass
            assert (during.status_code, during.json()["error"]["code"]) == (503, "store_unavailable")
            assert not reading.done()
        async with asyncio.timeout(BOUND_S):
            heard = await reading
        assert heard[-1] == "response.completed"
        statuses = {(await polled(bridge, response_id)).json()["status"] for bridge in (keeping, other)}
    assert statuses == {"completed"}
