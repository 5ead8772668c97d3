"""Parameters that Codex does not know: met in the gateway, named as ignored, or refused. Through the real Codex."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from dirty_equals import IsStr
from openai.types.chat import ChatCompletionMessageParam

from tests.support.gateway import Bridge, running_bridge
from turnbridge.scripted_model.replies import (
    JsonObject,
    Pause,
    StreamReply,
    Wait,
    answer,
    created,
    failed,
    message,
    reasoning,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
ASK: dict[str, JsonObject] = {
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": MODEL, "input": "hi"},
}

PATIENCE_S = 25
"""Far longer than anything here takes; less than the test's own limit, so that a failure names its place."""


def endless(*pieces: str) -> StreamReply:
    """Return an answer that says these pieces and then never ends: only an interrupt ends it."""
    return answer(message("".join(pieces), pieces=[*pieces, Wait(gate=asyncio.Event())]))


async def dropped(bridge: Bridge, before: int, streams: int = 1) -> None:
    """Return once the model's streams have been dropped."""
    async with asyncio.timeout(PATIENCE_S):
        await bridge.model.until(lambda model: model.dropped >= before + streams)


STOPS: dict[str, tuple[list[str], str | list[str], str]] = {
    "within one piece": (["one STOP two"], "STOP", "one "),
    "across two pieces": (["one ST", "OP two"], "STOP", "one "),
    "one character at a time": (list("one STOP"), "STOP", "one "),
    "after a false start": (["one ST", "ST", "OP"], "STOP", "one ST"),
    "at once": (["STOP"], "STOP", ""),
    "the first of several": (["one, two; three"], [";", ","], "one"),
    "beyond ASCII": (["eins ", "— zwei"], "—", "eins "),
}


@pytest.mark.promise("parameters.stop")
@pytest.mark.parametrize(("pieces", "stop", "text"), STOPS.values(), ids=STOPS.keys())
async def test_a_stop_sequence_ends_the_answer_and_the_turn(
    bridge: Bridge, pieces: list[str], stop: str | list[str], text: str
) -> None:
    before = bridge.model.dropped
    bridge.script(endless(*pieces), endless(*pieces), endless(*pieces))
    async with asyncio.timeout(PATIENCE_S):
        completion = await bridge.client.chat.completions.create(model=MODEL, messages=HI, stop=stop)
        chunks = await bridge.client.chat.completions.create(model=MODEL, messages=HI, stop=stop, stream=True)
        choices = [choice async for chunk in chunks for choice in chunk.choices]
        response = await bridge.client.responses.create(model=MODEL, input="hi", extra_body={"stop": stop})
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == (text, "stop")
    assert "".join(choice.delta.content or "" for choice in choices) == text
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    assert (response.output_text, response.status) == (text, "completed")
    await dropped(bridge, before, streams=3)


@pytest.mark.promise("parameters.stop.nothing-lost")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_text_that_must_be_held_back_for_a_while_disturbs_nothing(bridge: Bridge, stream: bool) -> None:
    # The pauses make every piece arrive alone, so that there are moments with nothing to pass on.
    pieces = [beat for piece in "one STOP" for beat in (piece, Pause(seconds=0.01))]
    bridge.script(answer(message("one STOP", pieces=pieces)))
    response = await bridge.http.post(CHAT, json={**ASK[CHAT], "stop": "STOP", "stream": stream})
    assert (response.status_code, '"finish_reason":"stop"' in response.text) == (200, True)


@pytest.mark.promise("parameters.stop.nothing-lost")
@pytest.mark.parametrize("pieces", [["one ST"], ["one STO", "RE"], ["one", " two"]])
async def test_what_only_looks_like_a_stop_sequence_is_not_lost(bridge: Bridge, pieces: list[str]) -> None:
    bridge.script(answer(message("".join(pieces), pieces=pieces)))
    chunks = await bridge.client.chat.completions.create(model=MODEL, messages=HI, stop="STOP", stream=True)
    text = [choice.delta.content or "" async for chunk in chunks for choice in chunk.choices]
    assert "".join(text) == "".join(pieces)


@pytest.mark.promise("parameters.stop")
async def test_a_stop_sequence_in_narration_stops_nothing(bridge: Bridge) -> None:
    bridge.script(answer(message("First STOP.", phase="commentary"), message("hello")))
    completion = await bridge.client.chat.completions.create(model=MODEL, messages=HI, stop="STOP")
    assert completion.choices[0].message.content == "hello"


WORDS = [f"{number} " for number in range(100)]
"""Two tokens each, a number and a space."""


@pytest.mark.promise("parameters.max-tokens", "usage.told")
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_a_token_limit_ends_a_chat_completion_and_the_turn(bridge: Bridge, name: str) -> None:
    before = bridge.model.dropped
    bridge.script(endless(*WORDS))
    response = await bridge.http.post(CHAT, json={**ASK[CHAT], name: 6})
    body = response.json()
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "0 1 2 ", "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    assert body["usage"]["completion_tokens"] == 6
    assert response.headers["x-turnbridge-usage"] == "estimated"
    await dropped(bridge, before)


@pytest.mark.promise("usage.estimated")
async def test_a_thought_in_an_answer_that_was_cut_is_counted_as_one(bridge: Bridge) -> None:
    bridge.script(answer(reasoning(["Numbers."]), message("0 1 2 3 ", pieces=[*WORDS[:4], Wait(gate=asyncio.Event())])))
    body = (await bridge.http.post(CHAT, json={**ASK[CHAT], "max_tokens": 6})).json()
    assert body["choices"][0]["message"]["reasoning_content"] == "Numbers."
    thought = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert thought > 0
    assert body["usage"]["completion_tokens"] == 6 + thought


@pytest.mark.promise("parameters.max-tokens", "usage.told")
async def test_a_token_limit_ends_a_chat_stream_and_says_that_the_usage_is_estimated(bridge: Bridge) -> None:
    before = bridge.model.dropped
    bridge.script(endless(*WORDS))
    asked: JsonObject = {"stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 6}
    response = await bridge.http.post(CHAT, json={**ASK[CHAT], **asked})
    assert ": x-turnbridge-usage: estimated\n\n" in response.text
    assert '"finish_reason":"length"' in response.text
    assert '"completion_tokens":6,' in response.text
    await dropped(bridge, before)


@pytest.mark.promise("parameters.max-tokens")
async def test_a_token_limit_ends_a_response_as_incomplete_and_the_turn(bridge: Bridge) -> None:
    before = bridge.model.dropped
    bridge.script(endless(*WORDS), endless(*WORDS))
    raw = await bridge.client.responses.with_raw_response.create(model=MODEL, input="hi", max_output_tokens=16)
    whole = raw.parse()
    events = await bridge.client.responses.create(model=MODEL, input="hi", max_output_tokens=16, stream=True)
    (streamed,) = [event.response async for event in events if event.type == "response.incomplete"]
    for response in (whole, streamed):
        assert response.incomplete_details is not None
        assert response.usage is not None
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (response.output_text, response.output[0].to_dict()["status"]) == ("0 1 2 3 4 5 6 7 ", "incomplete")
        assert (response.max_output_tokens, response.usage.output_tokens) == (16, 16)
    assert raw.headers["x-turnbridge-usage"] == "estimated"
    await dropped(bridge, before, streams=2)


@pytest.mark.promise("usage.estimated", "usage.told")
async def test_an_answer_within_its_limit_is_complete_and_its_usage_exact(bridge: Bridge) -> None:
    bridge.script(answer(message("hello", pieces=["hel", "lo"])))
    raw = await bridge.client.responses.with_raw_response.create(model=MODEL, input="hi", max_output_tokens=16)
    response = raw.parse()
    assert (response.status, response.output_text) == ("completed", "hello")
    assert raw.headers["x-turnbridge-usage"] == "exact"


@pytest.mark.promise("parameters.n")
async def test_n_choices_are_n_model_calls_with_one_usage(bridge: Bridge) -> None:
    bridge.script(answer(message("a")), answer(message("b")), answer(message("c")))
    completion = await bridge.client.chat.completions.create(model=MODEL, messages=HI, n=3)
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert sorted(choice.message.content or "" for choice in completion.choices) == ["a", "b", "c"]
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (30, 15)
    assert len(bridge.model.requests) == 3


@pytest.mark.promise("parameters.n")
async def test_n_choices_stream_at_once_each_in_its_own_order(bridge: Bridge) -> None:
    all_are_open = asyncio.Event()
    reply = answer(message("hello", pieces=["hel", Wait(gate=all_are_open), "lo"]))
    bridge.script(reply, reply, reply)
    begun: set[int] = set()
    pieces: dict[int, list[str | None]] = {0: [], 1: [], 2: []}
    async with asyncio.timeout(PATIENCE_S):
        chunks = await bridge.client.chat.completions.create(
            model=MODEL, messages=HI, n=3, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in chunks:
            for choice in chunk.choices:
                pieces[choice.index].append(choice.delta.content or choice.finish_reason)
                begun |= {choice.index} if choice.delta.content else set()
            if len(begun) == 3:
                all_are_open.set()
    assert pieces == {index: [None, "hel", "lo", "stop"] for index in range(3)}
    assert chunk.usage is not None
    assert chunk.usage.total_tokens == 45


@pytest.mark.promise("parameters.n.failure")
async def test_one_failed_choice_fails_all(bridge: Bridge) -> None:
    all_are_open = asyncio.Event()
    failing = StreamReply(
        steps=(created(), Wait(gate=all_are_open), failed("rate_limit_exceeded", "Too fast.")),
    )
    before = bridge.model.dropped
    bridge.script(endless("a"), failing, endless("c"))
    asked = asyncio.ensure_future(bridge.client.chat.completions.create(model=MODEL, messages=HI, n=3))
    await bridge.model.until(lambda model: model.active == 3)
    all_are_open.set()
    with pytest.raises(openai.RateLimitError):
        await asked
    await dropped(bridge, before, streams=2)


IGNORED: dict[str, tuple[str, JsonObject, str]] = {
    "chat, each": (
        CHAT,
        {
            "temperature": 0.2,
            "top_p": 0.5,
            "presence_penalty": 1,
            "frequency_penalty": -1,
            "logit_bias": {"50256": -100},
            "seed": 7,
        },
        "temperature, top_p, presence_penalty, frequency_penalty, logit_bias, seed",
    ),
    "chat, a parameter that nobody knows": (CHAT, {"wished_for": 1}, "wished_for"),
    "chat, an unknown tier": (CHAT, {"service_tier": "scale"}, "service_tier"),
    "responses, each": (RESPONSES, {"temperature": 0.2, "top_p": 0.5}, "temperature, top_p"),
    "responses, a wish to include": (
        RESPONSES,
        {"include": ["file_search_call.results"]},
        "include[file_search_call.results]",
    ),
    "a name that is no header": (RESPONSES, {"wünsche\r\nx-evil": 1}, "w?nsche??x-evil"),
}


@pytest.mark.promise("parameters.ignored", "parameters.unknown")
@pytest.mark.parametrize(("path", "fields", "named"), IGNORED.values(), ids=IGNORED.keys())
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_cannot_be_met_is_accepted_and_named(
    bridge: Bridge, path: str, fields: JsonObject, named: str, stream: bool
) -> None:
    bridge.says("hello")
    response = await bridge.http.post(path, json={**ASK[path], **fields, "stream": stream})
    assert (response.status_code, response.headers["x-turnbridge-ignored"]) == (200, named)


AT_DEFAULT: dict[str, JsonObject] = {
    CHAT: {
        "temperature": 1,
        "top_p": 1.0,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "logit_bias": {},
        "seed": None,
        "n": 1,
        "logprobs": False,
        "store": False,
        "service_tier": "auto",
        "modalities": ["text"],
        "response_format": {"type": "text"},
    },
    RESPONSES: {
        "temperature": 1,
        "top_p": 1.0,
        "top_logprobs": 0,
        "store": False,
        "background": False,
        "truncation": "disabled",
        "service_tier": "default",
        "previous_response_id": None,
        "text": {"format": {"type": "text"}},
    },
}


@pytest.fixture(scope="module")
async def strict(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that refuses what it would ignore."""
    del anyio_backend  # Named so that its scope fits.
    async with running_bridge(tmp_path_factory.mktemp("strict"), PROXY_STRICT_PARAMS=True) as running:
        yield running


@pytest.mark.promise("parameters.default-values")
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_a_parameter_at_its_default_is_neither_named_nor_refused(
    bridge: Bridge, strict: Bridge, path: str
) -> None:
    for gateway in (bridge, strict):
        gateway.says("hello")
        response = await gateway.http.post(path, json={**ASK[path], **AT_DEFAULT[path]})
        assert (response.status_code, response.headers.get("x-turnbridge-ignored")) == (200, None)


@pytest.mark.promise("parameters.strict")
@pytest.mark.parametrize(("path", "fields", "named"), IGNORED.values(), ids=IGNORED.keys())
async def test_strict_parameters_refuse_what_would_be_ignored(
    strict: Bridge, path: str, fields: JsonObject, named: str
) -> None:
    strict.script()
    response = await strict.http.post(path, json={**ASK[path], **fields})
    refused: object = next(iter(fields)) if "?" in named else named.partition(", ")[0]
    error = {
        "message": IsStr(regex="(?s).*PROXY_STRICT_PARAMS.*"),
        "type": "invalid_request_error",
        "param": refused,
        "code": "unsupported_parameter",
    }
    assert (response.status_code, response.json()) == (400, {"error": error})
    assert strict.model.requests == []


REFUSED: list[tuple[str, JsonObject, str, str]] = [
    (CHAT, {"logprobs": True}, "unsupported_parameter", "logprobs"),
    (CHAT, {"top_logprobs": 3}, "unsupported_parameter", "top_logprobs"),
    (CHAT, {"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
    (RESPONSES, {"top_logprobs": 3}, "unsupported_parameter", "top_logprobs"),
    (RESPONSES, {"include": ["message.output_text.logprobs"]}, "unsupported_parameter", "include"),
    (RESPONSES, {"prompt": {"id": "pmpt_1"}}, "unsupported_parameter", "prompt"),
]


@pytest.mark.promise("responses.prompt", "parameters.logprobs")
@pytest.mark.parametrize(("path", "fields", "code", "param"), REFUSED, ids=[f"{c[0]} {c[1]}" for c in REFUSED])
async def test_what_would_change_the_answers_meaning_is_refused(
    bridge: Bridge, path: str, fields: JsonObject, code: str, param: str
) -> None:
    bridge.script()
    response = await bridge.http.post(path, json={**ASK[path], **fields})
    error = {"message": IsStr(min_length=20), "type": "invalid_request_error", "param": param, "code": code}
    assert (response.status_code, response.json()) == (400, {"error": error})
    assert bridge.model.requests == []


@pytest.mark.promise("parameters.metadata")
async def test_metadata_and_user_are_echoed_and_carried(bridge: Bridge) -> None:
    bridge.says("hello")
    response = await bridge.client.responses.create(
        model=MODEL, input="hi", metadata={"ticket": "42"}, user="ann", safety_identifier="a1"
    )
    assert (response.metadata, response.user, response.safety_identifier) == ({"ticket": "42"}, "ann", "a1")
    carried = bridge.seen()["client_metadata"]
    assert isinstance(carried, dict)
    assert '"ticket":"42"' in str(carried["x-codex-turn-metadata"])


@pytest.mark.promise("responses.envelope")
async def test_what_is_in_force_is_shown_in_the_envelope(bridge: Bridge) -> None:
    bridge.says("hello")
    response = await bridge.client.responses.create(
        model="gpt-5.5-high",
        input="hi",
        instructions="Be brief.",
        temperature=0.2,
        truncation="auto",
        service_tier="priority",
        reasoning={"summary": "concise"},
        text={"verbosity": "low"},
    )
    assert (response.model, response.instructions, response.temperature) == ("gpt-5.5-high", "Be brief.", 1.0)
    assert (response.truncation, response.service_tier) == ("disabled", "priority")
    assert response.reasoning is not None
    assert response.reasoning.to_dict() == {"effort": "high", "summary": "concise"}
    assert response.text is not None
    assert response.text.to_dict() == {"format": {"type": "text"}, "verbosity": "low"}
