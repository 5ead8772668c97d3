"""What a client is told when something fails, through the real Codex: a status before any output, else a last event."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import KW_ONLY, dataclass, replace

import httpx2
import openai
import pytest
from dirty_equals import IsStr
from openai.types.chat import ChatCompletionMessageParam

from tests.support.gateway import Bridge, running_bridge
from turnbridge.scripted_model.replies import (
    Beat,
    Hangup,
    HttpReply,
    JsonObject,
    Pause,
    Reply,
    StreamReply,
    Wait,
    answer,
    created,
    failed,
    incomplete,
    message,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
CHAT, RESPONSES = "/chat/completions", "/responses"
BOTH_APIS = pytest.mark.parametrize("path", [CHAT, RESPONSES])
ASK: dict[str, JsonObject] = {
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": MODEL, "input": "hi"},
}

PATIENCE_S = 25
"""Far longer than anything here takes; less than the test's own limit, so that a failure names its place."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the client must be told, as the SDK shows it."""

    status: int
    kind: str
    raised: type[openai.APIStatusError]
    code: str
    _: KW_ONLY
    param: str | None = None
    retry_after: str | None = None
    words: str = "No, says the provider."


def wrong(code: str, *, param: str | None = None, words: str = "No, says the provider.") -> Told:
    """Return an error that is the request's own fault."""
    return Told(400, "invalid_request_error", openai.BadRequestError, code, param=param, words=words)


TOO_LONG = wrong("context_length_exceeded", param="input", words="This model's maximum context length is")
LOGIN = Told(401, "authentication_error", openai.AuthenticationError, "codex_login_required", words="turnbridge login")
TOO_FAST = Told(429, "rate_limit_error", openai.RateLimitError, "rate_limit_exceeded", retry_after="5", words="429")
USED_UP = Told(429, "insufficient_quota", openai.RateLimitError, "insufficient_quota", words="Quota exceeded")
BROKEN = Told(502, "server_error", openai.InternalServerError, "upstream_error")
BUSY = Told(503, "server_error", openai.InternalServerError, "server_is_overloaded", retry_after="5")


def refusal(status: int, code: str | None = None, kind: str = "provider_error", param: str | None = None) -> HttpReply:
    """Return an HTTP error of the provider."""
    error: JsonObject = {"message": "No, says the provider.", "type": kind, "param": param, "code": code}
    return HttpReply(status=status, body={"error": error})


def failing(code: str, words: str = "No, says the provider.") -> StreamReply:
    """Return a stream that fails before it has said anything."""
    return StreamReply(steps=(created(), failed(code, words)))


FAILURES: dict[str, tuple[Reply, Told]] = {
    "HTTP 400": (refusal(400, "some_code", param="input"), wrong("some_code", param="input")),
    "HTTP 400 in ChatGPT's shape": (
        HttpReply(status=400, body={"detail": "Not this model."}),
        wrong("upstream_bad_request", words="Not this model."),
    ),
    "HTTP 400 context_length_exceeded": (refusal(400, "context_length_exceeded"), TOO_LONG),
    "HTTP 400 invalid_prompt": (refusal(400, "invalid_prompt"), wrong("invalid_prompt")),
    "HTTP 401": (refusal(401), LOGIN),
    "HTTP 403": (refusal(403), LOGIN),
    "HTTP 404": (refusal(404), wrong("upstream_not_found")),
    "HTTP 413": (refusal(413), TOO_LONG),
    "HTTP 429": (refusal(429, "rate_limit_exceeded"), TOO_FAST),
    "HTTP 429 insufficient_quota": (refusal(429, "insufficient_quota", "insufficient_quota"), USED_UP),
    "HTTP 429 usage_limit_reached": (refusal(429, kind="usage_limit_reached"), replace(USED_UP, words="usage limit")),
    "HTTP 500": (refusal(500), replace(BROKEN, words="high demand")),
    "HTTP 502": (refusal(502), BROKEN),
    "HTTP 503": (refusal(503), BUSY),
    "failed rate_limit_exceeded": (
        failing("rate_limit_exceeded", "Too fast. Please try again in 6.2s."),
        replace(TOO_FAST, retry_after="7", words="try again in 6.2s"),
    ),
    "failed insufficient_quota": (failing("insufficient_quota"), USED_UP),
    "failed context_length_exceeded": (failing("context_length_exceeded"), TOO_LONG),
    "failed invalid_prompt": (failing("invalid_prompt"), wrong("invalid_prompt")),
    "failed cyber_policy": (failing("cyber_policy"), wrong("content_policy_violation")),
    "failed server_is_overloaded": (failing("server_is_overloaded"), replace(BUSY, words="at capacity")),
    "failed server_error": (failing("server_error"), BROKEN),
    "failed with an unknown code": (failing("martian"), BROKEN),
    "failed after a silence": (
        StreamReply(steps=(created(), Pause(seconds=0.2), failed("server_error", "No, says the provider."))),
        BROKEN,
    ),
    "the stream ends too early": (StreamReply(steps=(created(),)), replace(BROKEN, words="before completion")),
    "the connection breaks": (StreamReply(steps=(created(), Hangup())), replace(BROKEN, words="before completion")),
    "incomplete, unknown why": (
        StreamReply(steps=(created(), incomplete("martian"))),
        replace(BROKEN, words="martian"),
    ),
}


@pytest.mark.promise(
    "responses.sdks",
    "streaming.headers-wait",
    "errors.before-output",
    "errors.retry-after",
    "errors.providers-words",
    "errors.context-length",
)
@pytest.mark.parametrize(("reply", "told"), FAILURES.values(), ids=FAILURES.keys())
@BOTH_APIS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_failure_before_any_output_is_a_status(
    bridge: Bridge, path: str, stream: bool, reply: Reply, told: Told
) -> None:
    bridge.script(reply)
    with pytest.raises(openai.APIStatusError) as caught:
        await bridge.client.post(path, body={**ASK[path], "stream": stream}, cast_to=httpx2.Response)
    error = caught.value
    assert (error.status_code, error.type, type(error)) == (told.status, told.kind, told.raised)
    assert (error.code, error.param) == (told.code, told.param)
    assert error.response.headers.get("retry-after") == told.retry_after
    assert told.words in error.message
    assert len(bridge.model.requests) == 1


AFTER_OUTPUT: dict[str, tuple[list[Beat], str]] = {
    "failed rate_limit_exceeded": ([failed("rate_limit_exceeded", "Too fast.")], "rate_limit_exceeded"),
    "failed insufficient_quota": ([failed("insufficient_quota", "Used up.")], "insufficient_quota"),
    "failed context_length_exceeded": ([failed("context_length_exceeded", "Too long.")], "context_length_exceeded"),
    "failed server_error": ([failed("server_error", "Broken.")], "upstream_error"),
    "the stream ends too early": ([], "upstream_error"),
    "the connection breaks": ([Hangup()], "upstream_error"),
}


# The codes of a failed response are few.
LISTED = {
    "rate_limit_exceeded": "rate_limit_exceeded",
    "insufficient_quota": "rate_limit_exceeded",
    "context_length_exceeded": "invalid_prompt",
}


@pytest.mark.promise("errors.after-output.responses", "errors.failed-codes")
@pytest.mark.parametrize(("ending", "code"), AFTER_OUTPUT.values(), ids=AFTER_OUTPUT.keys())
async def test_a_failure_after_output_ends_a_response_stream_as_failed(
    bridge: Bridge, ending: list[Beat], code: str
) -> None:
    first_was_read = asyncio.Event()
    bridge.script(begun_and_then(first_was_read, ending))
    asked = bridge.http.stream("POST", f"/v1{RESPONSES}", json={**ASK[RESPONSES], "stream": True})
    events: list[JsonObject] = []
    async with asyncio.timeout(PATIENCE_S), asked as answered:
        async for line in answered.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                if events[-1]["type"] == "response.output_text.delta":
                    first_was_read.set()
    assert [str(event["type"]).removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "error", "failed"),
    ]
    told, response = events[-2], events[-1]["response"]
    param = "input" if code == "context_length_exceeded" else None
    said: JsonObject = {"code": code, "message": told["message"], "param": param}
    assert told == {"type": "error", "sequence_number": 8, **said, "error": {**said, "type": IsStr(min_length=1)}}
    assert told["message"]
    assert isinstance(response, dict)
    listed = LISTED.get(code, "server_error")
    assert (response["status"], response["error"]) == ("failed", {"code": listed, "message": told["message"]})
    assert response["output"] == [
        {
            "type": "message",
            "id": "msg_cut_0",
            "status": "incomplete",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "begun", "annotations": [], "logprobs": []}],
        }
    ]


@pytest.mark.promise("errors.after-output.responses")
async def test_the_sdk_raises_what_ends_a_response_stream(bridge: Bridge) -> None:
    """It does so at an `error` inside an event, and at nothing else: an answer that broke off would look whole."""
    first_was_read = asyncio.Event()
    bridge.script(begun_and_then(first_was_read, [failed("rate_limit_exceeded", "Too fast.")]))
    types: list[str] = []

    async def read() -> None:
        async for event in await bridge.client.responses.create(model=MODEL, input="hi", stream=True):
            types.append(event.type)
            if event.type == "response.output_text.delta":
                first_was_read.set()

    with pytest.raises(openai.APIError) as raised:
        await asyncio.wait_for(read(), PATIENCE_S)
    assert raised.value.code == "rate_limit_exceeded"
    assert types[-1] == "response.output_item.done"


@pytest.mark.promise("errors.after-output.chat")
@pytest.mark.parametrize(("ending", "code"), AFTER_OUTPUT.values(), ids=AFTER_OUTPUT.keys())
async def test_a_failure_after_output_ends_a_chat_stream_in_an_error_and_no_done(
    bridge: Bridge, ending: list[Beat], code: str
) -> None:
    first_was_read = asyncio.Event()
    bridge.script(begun_and_then(first_was_read, ending))
    body = ""
    async with (
        asyncio.timeout(PATIENCE_S),
        bridge.http.stream("POST", f"/v1{CHAT}", json={**ASK[CHAT], "stream": True}) as response,
    ):
        async for text in response.aiter_text():
            body += text
            if "begun" in body:
                first_was_read.set()
    *chunks, last = [json.loads(frame.removeprefix("data: ")) for frame in body.removesuffix("\n\n").split("\n\n")]
    assert [choice["delta"] for chunk in chunks for choice in chunk["choices"]] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "begun"},
    ]
    told = {"message": IsStr(min_length=1), "type": IsStr(min_length=1), "code": code}
    assert last == {"error": {**told, "param": "input" if code == "context_length_exceeded" else None}}


@pytest.mark.promise("chat.sdks", "errors.after-output.chat")
async def test_the_sdk_raises_the_error_of_a_chat_stream_with_its_code(bridge: Bridge) -> None:
    first_was_read = asyncio.Event()
    bridge.script(begun_and_then(first_was_read, [failed("rate_limit_exceeded", "Too fast.")]))
    chunks = await bridge.client.chat.completions.create(model=MODEL, messages=HI, stream=True)
    opening, begun = [(await anext(chunks)).choices[0].delta for _ in range(2)]
    assert (opening.role, begun.content) == ("assistant", "begun")
    first_was_read.set()
    with pytest.raises(openai.APIError) as caught:
        await anext(chunks)
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "rate_limit_error")


@pytest.mark.promise("errors.not-streamed")
@BOTH_APIS
async def test_a_failure_after_output_is_a_status_for_those_who_do_not_stream(bridge: Bridge, path: str) -> None:
    bridge.script(StreamReply(steps=(created(), message("begun"), failed("rate_limit_exceeded", "Too fast."))))
    with pytest.raises(openai.RateLimitError) as caught:
        await bridge.client.post(path, body=ASK[path], cast_to=httpx2.Response)
    assert caught.value.code == "rate_limit_exceeded"


CUT_SHORT = pytest.mark.parametrize(
    ("reason", "finish_reason"), [("max_output_tokens", "length"), ("content_filter", "content_filter")]
)


@pytest.mark.promise("chat.finish-reason", "responses.incomplete")
@pytest.mark.parametrize("text", ["", "begun"], ids=["before output", "after output"])
@CUT_SHORT
async def test_an_answer_that_the_provider_cut_short_is_incomplete(
    bridge: Bridge, text: str, reason: str, finish_reason: str
) -> None:
    reply = StreamReply(steps=(created(), *([message(text)] if text else []), incomplete(reason)))
    bridge.script(reply, reply)
    response = await bridge.client.responses.create(model=MODEL, input="hi")
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason, response.output_text) == ("incomplete", reason, text)
    completion = await bridge.client.chat.completions.create(model=MODEL, messages=HI)
    choice = completion.choices[0]
    assert (choice.finish_reason, choice.message.content) == (finish_reason, text)


@pytest.mark.promise("responses.incomplete")
@pytest.mark.parametrize("text", ["", "begun"], ids=["before output", "after output"])
@CUT_SHORT
async def test_a_stream_that_the_provider_cut_short_ends_as_incomplete(
    bridge: Bridge, text: str, reason: str, finish_reason: str
) -> None:
    reply = StreamReply(steps=(created(), *([message(text)] if text else []), incomplete(reason)))
    bridge.script(reply, reply)
    *_, last = [event async for event in await bridge.client.responses.create(model=MODEL, input="hi", stream=True)]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert (last.response.incomplete_details.reason, last.response.output_text) == (reason, text)
    chunks = await bridge.client.chat.completions.create(model=MODEL, messages=HI, stream=True)
    choices = [choice async for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == text
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == [finish_reason]


@pytest.fixture(scope="module")
async def hasty(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Bridge]:
    """Return a gateway that hardly waits for output, and takes no more than 1 kB."""
    del anyio_backend  # Named so that its scope fits.
    async with running_bridge(
        tmp_path_factory.mktemp("hasty"), PROXY_STREAM_HOLD_MS=20, PROXY_MAX_BODY_MB=1 / 1024
    ) as running:
        yield running


@pytest.mark.promise("streaming.headers-wait")
@BOTH_APIS
async def test_a_silent_model_gets_its_headers_after_the_hold_and_its_failure_in_the_stream(
    hasty: Bridge, path: str
) -> None:
    headers_came = asyncio.Event()
    hasty.script(StreamReply(steps=(created(), Wait(gate=headers_came), failed("rate_limit_exceeded", "Too fast."))))
    asked = hasty.http.stream("POST", f"/v1{path}", json={**ASK[path], "stream": True})
    async with asyncio.timeout(PATIENCE_S), asked as response:
        headers_came.set()
        frames = [line.removeprefix("data: ") async for line in response.aiter_lines() if line.startswith("data: ")]
    *opening, last = [json.loads(frame) for frame in frames]
    assert response.status_code == 200
    assert len(opening) == (3 if path == RESPONSES else 1)
    error = last["response"]["error"] if path == RESPONSES else last["error"]
    assert error["code"] == "rate_limit_exceeded"


@pytest.mark.promise("streaming.headers-wait")
async def test_a_model_that_speaks_after_the_hold_is_heard_whole(hasty: Bridge) -> None:
    headers_came = asyncio.Event()
    hasty.script(answer(Wait(gate=headers_came), message("hello", pieces=["hel", "lo"])))
    async with asyncio.timeout(PATIENCE_S):
        events = await hasty.client.responses.create(model=MODEL, input="hi", stream=True)
        headers_came.set()
        read = [event async for event in events]
    assert [event.sequence_number for event in read] == list(range(10))
    assert [event.delta for event in read if event.type == "response.output_text.delta"] == ["hel", "lo"]


@pytest.mark.promise("errors.body-limit")
async def test_a_body_over_the_limit_is_refused(hasty: Bridge) -> None:
    hasty.script()
    with pytest.raises(openai.APIStatusError) as caught:
        await hasty.client.responses.create(model=MODEL, input="x" * 1024)
    error = caught.value
    assert (error.status_code, error.type, error.code) == (413, "invalid_request_error", "request_too_large")
    assert "PROXY_MAX_BODY_MB" in error.message
    assert hasty.model.requests == []


def chat(**fields: object) -> bytes:
    """Return a chat request with these fields."""
    return json.dumps({**ASK[CHAT], **fields}).encode()


def responses(**fields: object) -> bytes:
    """Return a Responses request with these fields."""
    return json.dumps({**ASK[RESPONSES], **fields}).encode()


def spoken(**fields: object) -> bytes:
    """Return a chat request with one message of these fields."""
    return chat(messages=[fields])


AUDIO = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
MISSING, TYPE, VALUE = "missing_required_parameter", "invalid_type", "invalid_value"
PARAMETERS = "invalid_function_parameters"
TOOL = {"type": "function", "name": "f"}
NOTHING = {"name": "f", "parameters": {"type": "null"}}
MALFORMED: list[tuple[str, bytes, str | None, str | None]] = [
    (CHAT, b"", "invalid_json", None),
    (CHAT, b'{"model": ', "invalid_json", None),
    (CHAT, b"\xff", "invalid_json", None),
    (RESPONSES, b"[]", "invalid_json", None),
    (RESPONSES, b"[" * 100_000, "invalid_json", None),
    (CHAT, chat(model=None), MISSING, "model"),
    (CHAT, chat(messages=None), MISSING, "messages"),
    (CHAT, chat(messages=[]), "empty_array", "messages"),
    (RESPONSES, responses(model=None), MISSING, "model"),
    (RESPONSES, responses(input=None), MISSING, "input"),
    (CHAT, chat(model=5), TYPE, "model"),
    (CHAT, chat(messages=["hi"]), TYPE, "messages[0]"),
    (CHAT, chat(stream="yes"), TYPE, "stream"),
    (CHAT, chat(temperature="hot"), TYPE, "temperature"),
    (CHAT, chat(stream_options={"include_usage": 3}), TYPE, "stream_options.include_usage"),
    (CHAT, chat(stream_options={"include_usage": True}), None, "stream_options"),
    (RESPONSES, responses(stream_options={}), None, "stream_options"),
    (CHAT, chat(max_tokens=100.0), TYPE, "max_tokens"),
    (RESPONSES, responses(max_output_tokens=100.0), TYPE, "max_output_tokens"),
    (RESPONSES, responses(input=5), TYPE, "input"),
    (RESPONSES, responses(input=["hi"]), TYPE, "input[0]"),
    (RESPONSES, responses(metadata={"a": 1}), TYPE, "metadata.a"),
    (CHAT, spoken(content="hi"), MISSING, "messages[0].role"),
    (CHAT, spoken(role="user"), MISSING, "messages[0].content"),
    (CHAT, spoken(role="robot", content="hi"), VALUE, "messages[0].role"),
    (CHAT, spoken(role="user", content=[{"type": "text"}]), TYPE, "messages[0].content[0].text"),
    (CHAT, spoken(role="user", content=[AUDIO]), "unsupported_content_part", "messages[0].content[0].type"),
    (CHAT, spoken(role="tool", content="4"), MISSING, "messages[0].tool_call_id"),
    (RESPONSES, responses(input=[{"role": "user"}]), MISSING, "input[0].content"),
    (RESPONSES, responses(input=[{"role": "robot", "content": "hi"}]), VALUE, "input[0].role"),
    (RESPONSES, responses(input=[{"type": "martian"}]), "unsupported_item", "input[0].type"),
    (RESPONSES, responses(input=[{"role": "assistant", "content": "a", "phase": "bad"}]), VALUE, "input[0].phase"),
    (RESPONSES, responses(tools=[{**TOOL, "description": 5}]), TYPE, "tools[0].description"),
    (CHAT, chat(tools=[{"type": "function", "function": NOTHING}]), PARAMETERS, "tools[0].function.parameters"),
    (RESPONSES, responses(tools=[{"type": "function", **NOTHING}]), PARAMETERS, "tools[0].parameters"),
    (CHAT, chat(reasoning_effort="hardest"), "unsupported_value", "reasoning_effort"),
    (RESPONSES, responses(reasoning={"effort": "hardest"}), "unsupported_value", "reasoning.effort"),
    (RESPONSES, responses(reasoning={"summary": "long"}), VALUE, "reasoning.summary"),
    (RESPONSES, responses(text={"verbosity": "chatty"}), VALUE, "text.verbosity"),
    (RESPONSES, responses(truncation="some"), VALUE, "truncation"),
    (RESPONSES, responses(max_output_tokens=1), "integer_below_min_value", "max_output_tokens"),
    (CHAT, chat(max_tokens=0), "integer_below_min_value", "max_tokens"),
    (CHAT, chat(n=129), "integer_above_max_value", "n"),
    (CHAT, chat(stop=["a", "b", "c", "d", "e"]), "array_above_max_length", "stop"),
    (RESPONSES, responses(metadata={"k" * 65: ""}), "string_above_max_length", "metadata"),
]


@pytest.mark.promise("reasoning.effort.unknown", "tools.objects", "errors.shape", "errors.malformed")
@pytest.mark.parametrize(
    ("path", "body", "code", "param"), MALFORMED, ids=[f"{c[0]} {c[2]} {c[3]} {i}" for i, c in enumerate(MALFORMED)]
)
async def test_a_malformed_request_is_told_what_is_wrong_and_where(
    bridge: Bridge, path: str, body: bytes, code: str | None, param: str | None
) -> None:
    bridge.script()
    response = await bridge.http.post(f"/v1{path}", content=body)
    error = {"message": IsStr(min_length=10), "type": "invalid_request_error", "param": param, "code": code}
    assert (response.status_code, response.json()) == (400, {"error": error})
    assert bridge.model.requests == []


@pytest.mark.promise("models.unknown")
@BOTH_APIS
async def test_an_unknown_model_is_not_found_and_its_neighbours_are_named(bridge: Bridge, path: str) -> None:
    bridge.script()
    with pytest.raises(openai.NotFoundError) as caught:
        await bridge.client.post(path, body={**ASK[path], "model": "gpt-5.55"}, cast_to=httpx2.Response)
    error = caught.value
    assert (error.type, error.code, error.param) == ("invalid_request_error", "model_not_found", "model")
    assert "`gpt-5.5`" in error.message
    assert bridge.model.requests == []


def begun_and_then(gate: asyncio.Event, ending: list[Beat]) -> StreamReply:
    """Return an answer whose first piece is `begun`, and which ends so once the gate is open."""
    opened = message("begun").at(0, "cut")
    beats = [beat for beat in opened if isinstance(beat, dict) and not str(beat["type"]).endswith("done")]
    return StreamReply(steps=(created(), *beats, Wait(gate=gate), *ending))


@pytest.mark.promise("items.uncarried")
@pytest.mark.parametrize("depth", [140, 500])
async def test_an_item_that_codex_cannot_read_is_refused_at_once(bridge: Bridge, depth: int) -> None:
    bridge.script()
    deep: JsonObject = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    deep["action"] = json.loads("[" * depth + "]" * depth)
    response = await bridge.http.post("/v1/responses", json={"model": MODEL, "input": [deep]})
    error = {"message": IsStr(regex=".*levels deep.*"), "type": "invalid_request_error", "param": "input[0]"}
    assert (response.status_code, response.json()) == (400, {"error": {**error, "code": "invalid_value"}})
    assert bridge.model.requests == []
