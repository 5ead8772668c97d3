"""While the model is silent, something goes out that clients accept; while it speaks, nothing does."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import httpx2
import openai
import pytest

from tests.support.gateway import Bridge, running_bridge
from turnbridge.scripted_model.replies import (
    Hangup,
    Pause,
    Reply,
    Wait,
    answer,
    message,
    reasoning,
)
from turnbridge.turn.items import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.real]

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
ASK: dict[str, JsonObject] = {
    CHAT: {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": "gpt-5.5", "input": "hi"},
}
BOTH_APIS = pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])

INTERVAL_MS = 150
SILENCE = Pause(seconds=6 * INTERVAL_MS / 1000)
"""Long enough for several keepalives, also of a non-streamed answer, whose first one comes later."""
CALM_MS = 1500
"""Longer than a model that speaks is not heard on a busy machine."""
KEEPALIVE = ": keepalive"
PATIENCE_S = 25
"""After this a test has failed."""


@pytest.fixture(scope="module")
async def quick(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that sends its headers at once, and keepalives soon."""
    del anyio_backend  # Named so that its scope fits.
    directory = tmp_path_factory.mktemp("quick")
    async with running_bridge(directory, PROXY_SSE_KEEPALIVE_MS=INTERVAL_MS, PROXY_STREAM_HOLD_MS=0) as running:
        yield running


@pytest.fixture(scope="module")
async def calm(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that sends its headers at once, and keepalives only after a long silence."""
    del anyio_backend  # Named so that its scope fits.
    directory = tmp_path_factory.mktemp("calm")
    async with running_bridge(directory, PROXY_SSE_KEEPALIVE_MS=CALM_MS, PROXY_STREAM_HOLD_MS=0) as running:
        yield running


def silent_first(gate: asyncio.Event) -> Reply:
    return answer(Wait(gate=gate), message("Well."))


def thinking_first(gate: asyncio.Event) -> Reply:
    """Return an answer of which nothing but its beginning is told until the gate opens."""
    return answer(reasoning(), Wait(gate=gate), message("Well."))


async def lines_until(lines: AsyncIterator[str], mark: str, count: int) -> list[str]:
    """Return the lines up to the one in which `mark` is found for the nth time."""
    seen: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        async for line in lines:
            seen.append(line)
            if sum(mark in line for line in seen) == count:
                return seen
    raise AssertionError(f"The stream ended without {mark!r}: {seen}")


@pytest.mark.promise("limits.keepalive")
async def test_a_chat_stream_has_comments_while_the_model_is_silent_and_none_after(quick: Bridge) -> None:
    gate = asyncio.Event()
    quick.script(silent_first(gate))
    async with quick.http.stream("POST", CHAT, json={**ASK[CHAT], "stream": True}) as response:
        lines = response.aiter_lines()
        silence = await lines_until(lines, KEEPALIVE, 3)
        gate.set()
        rest = [line async for line in lines]
    opening, *signs = (line for line in silence if line)
    assert json.loads(opening.removeprefix("data: "))["choices"][0]["delta"]["role"] == "assistant"
    assert signs == [KEEPALIVE] * 3
    assert "".join(rest).count("[DONE]") == 1


@pytest.mark.promise("limits.keepalive")
async def test_a_response_stream_has_data_while_the_model_is_silent_and_stays_in_order(quick: Bridge) -> None:
    gate = asyncio.Event()
    quick.script(silent_first(gate))
    async with quick.client.responses.stream(model="gpt-5.5", input="hi") as stream:
        events = []
        async for event in stream:
            events.append(event)
            if [event.type for event in events].count("response.in_progress") == 4:
                gate.set()
        response = await stream.get_final_response()
    assert response.output_text == "Well."
    assert [event.type for event in events[:5]] == ["response.created", *["response.in_progress"] * 4]
    # The SDK's own summary of a text has the number of the event that it follows.
    numbers = [event.sequence_number for event in events if event.type != "response.output_text.done"]
    assert numbers == sorted(set(numbers))


@pytest.mark.promise("limits.keepalive.whole")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_official_client_does_not_notice_signs_of_life_in_a_chat(quick: Bridge, stream: bool) -> None:
    quick.script(answer(SILENCE, message("Well.")))
    if stream:
        chunks = await quick.client.chat.completions.create(
            model="gpt-5.5", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        said = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
    else:
        whole = await quick.client.chat.completions.create(
            model="gpt-5.5", messages=[{"role": "user", "content": "hi"}]
        )
        said = whole.choices[0].message.content or ""
    assert said == "Well."


@pytest.mark.promise("limits.keepalive.whole")
@BOTH_APIS
async def test_a_whole_answer_that_takes_long_begins_with_blanks_and_is_valid_json(quick: Bridge, path: str) -> None:
    gate = asyncio.Event()
    quick.script(thinking_first(gate))
    async with quick.http.stream("POST", path, json=ASK[path]) as response:
        pieces = response.aiter_bytes()
        async with asyncio.timeout(PATIENCE_S):
            blanks = await anext(pieces) + await anext(pieces)
        gate.set()
        rest = b"".join([piece async for piece in pieces])
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert blanks.strip() == b""
    assert b"Well." in rest
    assert json.loads(blanks + rest)["object"] in ("chat.completion", "response")


HEADER = {"x-no-keepalive": "1"}


@pytest.mark.promise("limits.keepalive.off")
@pytest.mark.parametrize(
    ("path", "stream", "headers"),
    [
        (CHAT, True, HEADER),
        (RESPONSES, True, HEADER),
        (CHAT, False, HEADER),
        (f"{RESPONSES}?no_keepalive=1", True, {}),
        (f"{RESPONSES}?no_keepalive=1", False, {}),
    ],
)
async def test_a_client_that_wants_no_signs_of_life_gets_none(
    quick: Bridge, path: str, stream: bool, headers: dict[str, str]
) -> None:
    quick.script(answer(SILENCE, message("Well.")))
    asked = {**ASK[path.partition("?")[0]], "stream": stream}
    response = await quick.http.post(path, json=asked, headers=headers)
    assert (response.status_code, signs_of_life(response)) == (200, 0)
    assert "Well." in response.text


@pytest.mark.promise("limits.keepalive")
@BOTH_APIS
async def test_a_stream_has_no_signs_of_life_while_the_model_speaks(calm: Bridge, path: str) -> None:
    # For longer than two silences.
    pieces: Sequence[str | Pause] = [piece for _ in range(160) for piece in ("word ", Pause(seconds=0.02))]
    calm.script(answer(message("word " * 160, pieces=pieces)))
    response = await calm.http.post(path, json={**ASK[path], "stream": True})
    assert (response.status_code, signs_of_life(response)) == (200, 0)


@pytest.mark.promise("limits.keepalive.whole")
@BOTH_APIS
async def test_a_whole_answer_that_fails_after_its_first_blank_is_broken_off_and_never_a_good_one(
    quick: Bridge, path: str
) -> None:
    quick.script(answer(reasoning(), SILENCE, Hangup()))
    asking = (
        quick.client.chat.completions.create(model="gpt-5.5", messages=[{"role": "user", "content": "hi"}])
        if path == CHAT
        else quick.client.responses.create(model="gpt-5.5", input="hi")
    )
    with pytest.raises(openai.APIConnectionError):
        await asking


@pytest.mark.promise("limits.keepalive.whole")
@BOTH_APIS
async def test_a_whole_answer_has_no_blanks_before_the_model_has_said_anything(quick: Bridge, path: str) -> None:
    """Else a provider that never answers could not be told by a status any more."""
    quick.script(answer(SILENCE, message("Well.")))
    response = await quick.http.post(path, json=ASK[path])
    # The first is due as soon as the model has begun; the silence before has room for four.
    assert (response.status_code, signs_of_life(response) <= 1) == (200, True)
    quick.script(answer(SILENCE, Hangup()))
    assert (await quick.http.post(path, json=ASK[path])).status_code == 502


def signs_of_life(response: httpx2.Response) -> int:
    """Return how many of them an answer holds."""
    text = response.text
    if "event-stream" not in response.headers["content-type"]:
        return len(text) - len(text.lstrip())
    # One such event belongs to every stream.
    extra = text.count("event: response.in_progress") - text.count("event: response.created")
    return text.count(KEEPALIVE) + extra
