"""Clients that send their whole history each time go on in the thread that holds it, through the real Codex."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.support.gateway import API_KEY, Bridge, running_bridge
from tests.support.tool_clients import bare
from turnbridge.scripted_model.replies import (
    Reply,
    Wait,
    answer,
    function_call,
    message,
    reasoning,
)
from turnbridge.turn.items import Json, JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

OTHER_KEY = "sk-test-another-0123456789"
WEATHER: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
]


@pytest.fixture(scope="module")
async def warm(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that keeps threads."""
    del anyio_backend
    async with running_bridge(tmp_path_factory.mktemp("warm"), PROXY_WARM_THREADS_MAX=64) as running:
        yield running


def echo(request: JsonObject) -> Reply:
    """Answer with what was said last, so that every answer of a conversation differs."""
    items: Any = request["input"]
    return answer(reasoning([], encrypted=f"E{len(items)}"), message(f"You said: {items[-1]['content'][0]['text']}"))


async def say(bridge: Bridge, history: list[Any], text: str, **options: Any) -> str:
    """Say something more, and return how it was served."""
    history.append({"role": "user", "content": text})
    raw = await bridge.client.chat.completions.with_raw_response.create(model="gpt-5.5", messages=history, **options)
    reply = raw.parse().choices[0].message
    assert reply.content == f"You said: {text}"
    history.append({"role": "assistant", "content": reply.content})
    return str(raw.headers["x-turnbridge-thread"])


def cache_keys(bridge: Bridge) -> list[Json]:
    return [request.body["prompt_cache_key"] for request in bridge.model.requests]


@pytest.mark.promise("threads.warm", "threads.told")
async def test_a_chat_of_ten_turns_stays_on_one_thread(warm: Bridge) -> None:
    warm.script()
    warm.model.respond = echo
    history: list[Any] = [{"role": "system", "content": "Echo."}]
    assert [await say(warm, history, f"ten {n}") for n in range(10)] == ["fresh", *["warm"] * 9]
    assert len(set(cache_keys(warm))) == 1
    seen: Any = bare(warm.model.requests[-1].body["input"])
    spoken = [item for item in seen if item["type"] == "message"]
    assert [(item["role"], item["content"][0]["text"]) for item in spoken] == [
        ("developer" if m["role"] == "system" else m["role"], m["content"]) for m in history[:-1]
    ]


@pytest.mark.promise("threads.warm")
async def test_streams_and_responses_stay_on_their_thread_too(warm: Bridge) -> None:
    warm.script()
    warm.model.respond = echo
    items: list[Any] = []
    for n in range(4):
        items.append({"role": "user", "content": f"stream {n}"})
        async with warm.client.responses.stream(model="gpt-5.5", input=items) as events:
            final = await events.get_final_response()
        assert final.output_text == f"You said: stream {n}"
        items += [item.model_dump(exclude_none=True) for item in final.output if item.type == "message"]
    assert len(set(cache_keys(warm))) == 1


@pytest.mark.promise("threads.told", "threads.edited")
@pytest.mark.parametrize(
    "change",
    [
        lambda history: history[0].update(content="Another prompt."),
        lambda history: history[1].update(content="edited"),
        lambda history: history[2].update(content="You said: something else"),
        lambda history: history.pop(1),
        lambda history: history.insert(1, {"role": "user", "content": "inserted"}),
    ],
    ids=["system edited", "user edited", "answer edited", "message dropped", "message added"],
)
async def test_any_other_history_is_replayed_on_a_thread_of_its_own(warm: Bridge, change: Any) -> None:
    warm.script()
    warm.model.respond = echo
    history: list[Any] = [{"role": "system", "content": "Echo."}]
    await say(warm, history, "first")
    assert await say(warm, history, "second") == "warm"
    change(history)
    assert await say(warm, history, "third") == "replayed"
    seen: Any = bare(warm.model.requests[-1].body["input"])
    roles = {"system": "developer"}
    assert [(i["role"], i["content"][0]["text"]) for i in seen] == [
        (roles.get(m["role"], m["role"]), m["content"]) for m in history[:-1]
    ]


@pytest.mark.promise("threads.edited")
@pytest.mark.parametrize(
    "options",
    [
        {"reasoning_effort": "high"},
        {"verbosity": "high"},
        {"tools": WEATHER},
        {"response_format": {"type": "json_object"}},
        {"service_tier": "flex"},
    ],
    ids=str,
)
async def test_other_settings_do_not_go_on_in_a_thread(warm: Bridge, options: Any) -> None:
    warm.script()
    warm.model.respond = echo
    history: list[Any] = []
    await say(warm, history, "first json")
    history.append({"role": "user", "content": "second json"})
    try:
        raw = await warm.client.chat.completions.with_raw_response.create(model="gpt-5.5", messages=history, **options)
        assert raw.headers["x-turnbridge-thread"] == "replayed"
    except openai.UnprocessableEntityError:
        assert "response_format" in options
    assert len(set(cache_keys(warm))) > 1


@pytest.mark.promise("threads.alone")
async def test_two_requests_never_share_a_thread(warm: Bridge) -> None:
    warm.script()
    warm.model.respond = echo
    history: list[Any] = []
    await say(warm, history, "shared")
    ways = await asyncio.gather(*(say(warm, list(history), "branch") for _ in range(4)))
    assert sorted(ways) == ["replayed", "replayed", "replayed", "warm"]
    assert len(set(cache_keys(warm))) == 4


@pytest.mark.promise("threads.cut-off")
async def test_a_thread_that_was_cut_off_is_not_kept(warm: Bridge) -> None:
    gate = asyncio.Event()
    warm.script(answer(message("one two STOP", pieces=["one two ", "STOP", Wait(gate=gate)])), answer(message("next")))
    history: list[Any] = [{"role": "user", "content": "cut"}]
    first = await warm.client.chat.completions.create(model="gpt-5.5", messages=history, stop="STOP")
    history += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "go on"},
    ]
    raw = await warm.client.chat.completions.with_raw_response.create(model="gpt-5.5", messages=history)
    assert raw.headers["x-turnbridge-thread"] == "replayed"
    gate.set()


@pytest.mark.promise("threads.keys")
async def test_another_key_never_gets_a_thread(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with running_bridge(
        tmp_path_factory.mktemp("keys"), PROXY_WARM_THREADS_MAX=64, api_key=f"{API_KEY}, {OTHER_KEY}"
    ) as bridge:
        bridge.model.respond = echo
        history: list[Any] = []
        await say(bridge, history, "mine")
        history.append({"role": "user", "content": "theirs"})
        other = bridge.client.with_options(api_key=OTHER_KEY)
        raw = await other.chat.completions.with_raw_response.create(model="gpt-5.5", messages=history)
        assert raw.headers["x-turnbridge-thread"] == "replayed"


@pytest.mark.promise("threads.warm", "threads.told")
async def test_a_conversation_with_calls_goes_on_warm_after_them(warm: Bridge) -> None:
    warm.script(
        answer(function_call("weather", "{}", call_id="call_warm_1")),
        answer(message("Sunny.")),
        answer(message("Still sunny.")),
    )
    history: list[Any] = [{"role": "user", "content": "weather?"}]
    ways = []
    for then in (
        {"role": "tool", "tool_call_id": "call_warm_1", "content": "sun"},
        {"role": "user", "content": "and now?"},
        None,
    ):
        raw = await warm.client.chat.completions.with_raw_response.create(
            model="gpt-5.5", messages=history, tools=WEATHER
        )
        ways.append(raw.headers["x-turnbridge-thread"])
        history += [raw.parse().choices[0].message.model_dump(exclude_none=True), then]
    assert ways == ["fresh", "parked", "warm"]
    assert len(set(cache_keys(warm))) == 1


@pytest.mark.promise("threads.warm", "tools.unfit")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_chat_with_arguments_nested_too_deep_to_be_read_goes_on(warm: Bridge, stream: bool) -> None:
    warm.script(answer(message("Deep.")), answer(message("Still.")))
    call = {
        "id": "call_deep",
        "type": "function",
        "function": {"name": "weather", "arguments": "[" * 100_000 + "]" * 100_000},
    }
    history: list[Any] = [
        {"role": "user", "content": f"weather? {stream}"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_deep", "content": "sun"},
    ]
    ways = []
    for text in ("Deep.", "Still."):
        raw = await warm.http.post(
            "/v1/chat/completions",
            json={"model": "gpt-5.5", "messages": history, "tools": WEATHER, "stream": stream},
        )
        assert (raw.status_code, text in raw.text) == (200, True)
        ways.append(raw.headers["x-turnbridge-thread"])
        history += [{"role": "assistant", "content": text}, {"role": "user", "content": "and now?"}]
    assert ways == ["replayed", "warm"]


@pytest.mark.promise("tools.unfit")
@pytest.mark.parametrize(
    ("depth", "answers"), [(127, ["call", "Done."]), (128, ["Done."]), (2000, ["Done."])], ids=["127", "128", "2000"]
)
async def test_a_call_that_codex_cannot_read_is_answered_by_codex_itself_and_any_other_by_the_client(
    warm: Bridge, depth: int, answers: list[str]
) -> None:
    call = function_call("weather", "[" * depth + "1" + "]" * depth, call_id=f"call_{depth}")
    warm.script(answer(call), answer(message("Done.")))
    history: list[Any] = [{"role": "user", "content": f"{depth} deep?"}]
    heard = []
    for _ in answers:
        reply = await warm.client.chat.completions.create(model="gpt-5.5", messages=history, tools=WEATHER)
        told = reply.choices[0].message
        heard.append(told.content or "call")
        output = {"role": "tool", "tool_call_id": f"call_{depth}", "content": "sun"}
        history += [told.model_dump(exclude_none=True), output]
    shown: Any = warm.model.requests[-1].body["input"]
    given = [item["output"] for item in shown if item["type"] == "function_call_output"]
    assert (heard, given == ["sun"], len(warm.model.requests)) == (answers, len(answers) == 2, 2)
