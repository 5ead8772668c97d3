"""Two replicas on one Postgres, with and without Redis: whichever is asked, the answer is the same."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent

from tests.store.postgres_server import running_postgres
from tests.support.gateway import Bridge, running_bridge
from tests.support.redis_server import RedisServer
from tests.support.state_clients import MODEL, respond, thought
from tests.support.tool_clients import HI, ROUTES, bare, declared, weather_call
from tests.support.waiting import until
from turnbridge.api.responses import background
from turnbridge.replicas import registry
from turnbridge.scripted_model.replies import Reply, Wait, answer, message, reasoning
from turnbridge.turn.items import Json

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PATIENCE_S = 25
"""Far longer than anything here takes; less than the test's own limit, so that a failure names its place."""

NUMBERS = itertools.count()
SUNNY = answer(message("Sunny."))


def calls() -> Reply:
    """Return an answer with two calls, whose ids nobody has seen before."""
    rome, oslo = (weather_call(city, f"call_{next(NUMBERS)}") for city in ("Rome", "Oslo"))
    return answer(reasoning(["Hm."], encrypted="A"), message("Looking."), rome, oslo)


@dataclass(frozen=True)
class Pair:
    """Two replicas."""

    one: Bridge
    two: Bridge


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Return the URL of a Postgres."""
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="module", params=["postgres", "redis"])
async def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: str, anyio_backend: object
) -> AsyncIterator[Pair]:
    """Return two replicas on a Postgres, alone or beside a Redis."""
    del anyio_backend  # Named so that its scope is this one's.
    folder = tmp_path_factory.mktemp("replicas")
    async with contextlib.AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(registry, "HEARTBEAT_S", 0.1)
        # Only a message can tell a replica that its response was ended.
        patch.setattr(background, "RENEWAL_S", 3600.0)
        chosen: dict[str, Any] = {"PROXY_DATABASE_URL": postgres}
        if request.param == "redis":
            redis = RedisServer(folder)
            await stack.enter_async_context(redis.running())
            chosen["PROXY_RATE_LIMIT_STORAGE"] = redis.url
        # Both at once on an empty database: one migrates it, the other waits.
        one, two = await asyncio.gather(
            *(stack.enter_async_context(running_bridge(folder / name, **chosen)) for name in ("one", "two"))
        )
        await until(lambda: not any(alone(bridge) for bridge in (one, two)))
        yield Pair(one, two)


def alone(bridge: Bridge) -> bool:
    """Tell whether a replica does not know the other one, or cannot hear it."""
    shared = bridge.gateway.shared
    return shared is None or shared.alone() or not shared.messages.connected.is_set()


async def asked(bridge: Bridge, api: str, history: list[Any], **options: Any) -> tuple[Any, str]:
    """Ask once over an API, and return the answer and how it was served."""
    field = "messages" if api == "chat" else "input"
    body = {"model": MODEL, field: history, "tools": declared(api), **options}  # type: ignore[arg-type]
    raw = await bridge.http.post(ROUTES[api], json=body)  # type: ignore[index]
    assert raw.status_code == 200, raw.text
    return raw.json(), raw.headers["x-turnbridge-thread"]


def chat_outputs(answered: Any) -> list[Any]:
    """Return what a chat client sends back: its reasoning is lost."""
    said = answered["choices"][0]["message"]
    kept = {key: said[key] for key in ("role", "content", "tool_calls")}
    return [kept, *({"role": "tool", "tool_call_id": call["id"], "content": "18°"} for call in said["tool_calls"])]


def response_outputs(answered: Any, *, thoughts: bool) -> list[Any]:
    """Return what a client of Responses sends back, with or without the reasoning."""
    said = [item for item in answered["output"] if thoughts or item["type"] != "reasoning"]
    calls = [item["call_id"] for item in said if item["type"] == "function_call"]
    return [*said, *({"type": "function_call_output", "call_id": call, "output": "18°"} for call in calls)]


async def both_legs(first: Bridge, second: Bridge, how: str) -> tuple[str, Json]:
    """Have a conversation with calls, its second leg elsewhere; return how that was served and what the model saw."""
    second.script(SUNNY)
    first.script(calls(), SUNNY)
    api = "chat" if how == "chat" else "responses"
    begun, _ = await asked(first, api, [HI], **({} if api == "chat" else {"store": how == "by id"}))
    if how == "chat":
        history: list[Any] = [HI, *chat_outputs(begun)]
        _, way = await asked(second, api, history)
    elif how == "by id":
        outputs = response_outputs(begun, thoughts=False)[-2:]
        _, way = await asked(second, api, outputs, previous_response_id=begun["id"])
    else:
        history = [HI, *response_outputs(begun, thoughts=how == "with reasoning")]
        _, way = await asked(second, api, history, store=False)
    return way, bare(second.model.requests[-1].body["input"])


def without_call_ids(shown: Json) -> Json:
    """Return what the model was shown without the ids of calls, which differ in each conversation."""
    items: Any = shown
    return [{key: value for key, value in item.items() if key != "call_id"} for item in items]


@pytest.mark.promise("state.replicas.calls")
@pytest.mark.parametrize("how", ["chat", "by id", "with reasoning", "without reasoning"])
async def test_outputs_of_a_call_parked_elsewhere_are_replayed_without_loss(pair: Pair, how: str) -> None:
    parked = await both_legs(pair.one, pair.one, how)
    replayed = await both_legs(pair.one, pair.two, how)
    assert (parked[0], replayed[0]) == ("parked", "replayed")
    assert without_call_ids(replayed[1]) == without_call_ids(parked[1])
    assert thought("A", "Hm.") in parked[1]  # type: ignore[operator]
    # The holder lets go at once: nothing of the turn is left in Codex.
    await until(lambda: len(pair.one.gateway.calls) == 0)


@pytest.mark.promise("state.replicas.calls")
async def test_outputs_that_come_to_both_are_answered_by_both(pair: Pair) -> None:
    pair.two.script(SUNNY)
    pair.one.script(calls(), SUNNY)
    begun, _ = await asked(pair.one, "chat", [HI])
    history = [HI, *chat_outputs(begun)]
    answers = await asyncio.gather(*(asked(bridge, "chat", history) for bridge in (pair.one, pair.two)))
    texts = [answered["choices"][0]["message"]["content"] for answered, _ in answers]
    assert texts == ["Sunny.", "Sunny."]
    saw = [bare(bridge.model.requests[-1].body["input"]) for bridge in (pair.one, pair.two)]
    assert saw[0] == saw[1]
    await until(lambda: len(pair.one.gateway.calls) == 0)


async def begin(bridge: Bridge, gate: asyncio.Event) -> Response:
    """Begin a response in the background that stops halfway until the gate is open; its client leaves."""
    bridge.script(answer(message("one two", pieces=["one ", Wait(gate=gate), "two"])))
    stream = await bridge.client.responses.create(model=MODEL, input="hi", background=True, stream=True)
    async with stream:
        async for event in stream:
            assert event.type == "response.created"
            return event.response
    raise AssertionError("A stream begins with `response.created`.")


async def read(bridge: Bridge, response_id: str, after: int | None = None) -> list[ResponseStreamEvent]:
    """Read a response's stream to its end, without what failed responses raise in the SDK."""
    events: list[ResponseStreamEvent] = []
    async with asyncio.timeout(PATIENCE_S):
        place: dict[str, Any] = {} if after is None else {"starting_after": after}
        with contextlib.suppress(openai.APIError):
            async for event in await bridge.client.responses.retrieve(response_id, stream=True, **place):
                events.append(event)
    return events


def numbered(events: list[ResponseStreamEvent]) -> list[tuple[int, str]]:
    return [(event.sequence_number, event.type) for event in events]


@pytest.mark.promise("state.replicas.stream")
async def test_a_response_is_streamed_elsewhere_as_it_is_made(pair: Pair) -> None:
    gate = asyncio.Event()
    begun = await begin(pair.one, gate)
    live: list[ResponseStreamEvent] = []

    async def follow() -> None:
        async for event in await pair.two.client.responses.retrieve(begun.id, stream=True):
            live.append(event)

    async with asyncio.timeout(PATIENCE_S):
        following = asyncio.create_task(follow())
        await until(lambda: any(event.type == "response.output_text.delta" for event in live))
        assert not gate.is_set()
        third = asyncio.create_task(read(pair.two, begun.id, after=2))
        gate.set()
        await following
    here, later = await read(pair.one, begun.id), await read(pair.two, begun.id)
    assert [number for number, _ in numbered(live)] == list(range(len(live)))
    assert (live[-1].type, live) == ("response.completed", here)
    assert (later, await third) == (here, here[3:])
    assert [event async for event in await pair.two.client.responses.retrieve(begun.id, stream=True)] == here


@pytest.mark.promise("state.replicas.cancel")
@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_response_is_ended_from_elsewhere_by_a_message(pair: Pair, how: str) -> None:
    begun = await begin(pair.one, asyncio.Event())
    await pair.one.model.until(lambda model: model.active == 1)
    following = asyncio.create_task(read(pair.two, begun.id))
    if how == "cancel":
        assert (await pair.two.client.responses.cancel(begun.id)).status == "cancelled"
    else:
        await pair.two.client.responses.delete(begun.id)
    await pair.one.model.until(lambda model: model.active == 0)
    assert [event.type for event in await following][-1] == "response.incomplete"
    for bridge in (pair.one, pair.two):
        if how == "cancel":
            assert (await bridge.client.responses.retrieve(begun.id)).status == "cancelled"
        else:
            with pytest.raises(openai.NotFoundError):
                await bridge.client.responses.retrieve(begun.id)


@pytest.mark.promise("state.replicas.conversation")
async def test_two_responses_on_one_conversation_are_added_in_the_order_of_their_ends(pair: Pair) -> None:
    conversation = await pair.one.client.conversations.create()
    gate = asyncio.Event()
    pair.one.script(answer(message("slow", pieces=[Wait(gate=gate), "slow"])))
    pair.two.script(answer(message("quick")))
    async with asyncio.timeout(PATIENCE_S):
        slow = asyncio.create_task(respond(pair.one, "to one", conversation=conversation.id))
        await pair.one.model.until(lambda model: model.active == 1)
        await respond(pair.two, "to two", conversation=conversation.id)
        gate.set()
        await slow
    for bridge in (pair.one, pair.two):
        listed = await bridge.http.get(f"/v1/conversations/{conversation.id}/items", params={"order": "asc"})
        texts = [item["content"][0]["text"] for item in listed.json()["data"]]
        assert texts == ["to two", "quick", "to one", "slow"]
