"""What a client of the Messages API is told when something fails, through the real Codex."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from tests.real.test_errors import begun_and_then, failing, refusal
from tests.support.anthropic_client import anthropic_client
from tests.support.gateway import Bridge, running_bridge
from turnbridge.scripted_model.replies import (
    HttpReply,
    JsonObject,
    Reply,
    StreamReply,
    answer,
    created,
    failed,
    incomplete,
    message,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "claude-gpt-5.5"
HI: list[Any] = [{"role": "user", "content": "hi"}]
ASK: JsonObject = {"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}
PATIENCE_S = 25


@pytest.fixture
async def client(bridge: Bridge) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic_client(bridge.url) as made:
        yield made


# What the provider says; and the status, the type, the header `x-should-retry` and `retry-after`, and words.
FAILURES: dict[str, tuple[Reply, int, str, str | None, str | None, str]] = {
    "a bad request": (refusal(400, "some_code"), 400, "invalid_request_error", None, None, "No, says the provider."),
    "too long": (
        refusal(400, "context_length_exceeded"),
        400,
        "invalid_request_error",
        None,
        None,
        "prompt is too long: 272001 tokens > 272000 maximum. ",
    ),
    "foreign thinking": (
        refusal(400, "invalid_encrypted_content"),
        400,
        "invalid_request_error",
        None,
        None,
        "bound to a different conversation",
    ),
    "no login": (refusal(401), 403, "permission_error", "false", None, "rejected Codex's login"),
    "too fast": (refusal(429, "rate_limit_exceeded"), 429, "rate_limit_error", None, "5", "429"),
    "used up": (
        refusal(429, "insufficient_quota", "insufficient_quota"),
        429,
        "rate_limit_error",
        "false",
        "3600",
        "Quota exceeded",
    ),
    "broken": (refusal(500), 502, "api_error", None, None, "high demand"),
    "overloaded": (failing("server_is_overloaded"), 529, "overloaded_error", None, "5", "at capacity"),
    "refused": (failing("cyber_policy"), 400, "invalid_request_error", None, None, "No, says the provider."),
}


@pytest.mark.promise("anthropic.errors", "anthropic.errors.too-long", "anthropic.thinking")
@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_failure_before_any_output_is_a_status(
    bridge: Bridge, client: anthropic.AsyncAnthropic, name: str, streamed: bool
) -> None:
    reply, status, kind, retry, after, words = FAILURES[name]
    bridge.script(reply)
    with pytest.raises(anthropic.APIStatusError) as caught:
        await client.messages.create(model=MODEL, max_tokens=1000, messages=HI, stream=streamed)
    error, headers = caught.value, caught.value.response.headers
    body: Any = error.body
    assert (error.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert (headers.get("x-should-retry"), headers.get("retry-after")) == (retry, after)
    assert words in body["error"]["message"]
    assert error.request_id == body["request_id"] == headers["x-request-id"]
    assert len(bridge.model.requests) == 1


@pytest.mark.promise("anthropic.errors.mid-stream")
async def test_a_failure_after_output_is_the_last_event(bridge: Bridge, client: anthropic.AsyncAnthropic) -> None:
    read = asyncio.Event()
    bridge.script(begun_and_then(read, [failed("server_error", "Broken.")]))
    heard: list[str] = []

    async def listen() -> None:
        async with client.messages.stream(model=MODEL, max_tokens=1000, messages=HI) as stream:
            async for text in stream.text_stream:
                heard.append(text)
                read.set()

    with pytest.raises(anthropic.APIStatusError) as caught:
        await asyncio.wait_for(listen(), PATIENCE_S)
    body: Any = caught.value.body
    assert (heard, body["error"]["type"], body["type"]) == (["begun"], "api_error", "error")
    assert body["request_id"] == caught.value.response.headers["request-id"]


@pytest.mark.promise("anthropic.errors")
@pytest.mark.parametrize(("reason", "told"), [("max_output_tokens", "max_tokens"), ("content_filter", "refusal")])
async def test_an_answer_that_the_provider_cuts_off_says_why(
    bridge: Bridge, client: anthropic.AsyncAnthropic, reason: str, told: str
) -> None:
    bridge.script(StreamReply(steps=(created(), message("begun"), incomplete(reason))))
    answered = await client.messages.create(model=MODEL, max_tokens=1000, messages=HI)
    assert (answered.stop_reason, [block.to_dict() for block in answered.content]) == (
        told,
        [{"type": "text", "text": "begun"}],
    )


WRONG: dict[str, tuple[JsonObject, dict[str, str], int, str, str]] = {
    "an unknown model": ({"model": "gemini-3"}, {}, 404, "not_found_error", "gemini-3"),
    "an unknown version": ({}, {"anthropic-version": "2024-01-01"}, 400, "invalid_request_error", "2024-01-01"),
    "sampling": (
        {"temperature": 0.5},
        {"anthropic-version": "2026-10-21"},
        400,
        "invalid_request_error",
        "'temperature'",
    ),
    "no limit": ({"max_tokens": None}, {}, 400, "invalid_request_error", "'max_tokens'"),
    "a tool of Anthropic's": (
        {"tools": [{"type": "computer_20250124", "name": "computer"}]},
        {},
        400,
        "invalid_request_error",
        "Input tag 'computer_20250124'",
    ),
    "a schema that is none": (
        {"tools": [{"name": "f", "input_schema": {"type": "object", "properties": 1}}]},
        {},
        400,
        "invalid_request_error",
        "Invalid schema for function 'f'",
    ),
    "a broken image": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo="}}],
                }
            ]
        },
        {},
        400,
        "invalid_request_error",
        "image",
    ),
}


@pytest.mark.promise("anthropic.errors", "anthropic.versions")
@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_request_is_refused_before_the_model_is_asked(bridge: Bridge, name: str) -> None:
    fields, headers, status, kind, words = WRONG[name]
    bridge.script()
    refused = await bridge.http.post("/v1/messages", json={**ASK, **fields}, headers=headers)
    told = refused.json()
    assert (refused.status_code, told["error"]["type"]) == (status, kind), told
    assert words in told["error"]["message"]
    assert told["request_id"] == refused.headers["request-id"]
    assert refused.headers.get_list("request-id") == [told["request_id"]]
    assert bridge.model.requests == []


@pytest.mark.promise("anthropic.errors")
async def test_the_wrong_verb_and_a_body_that_is_no_json_are_told_alike(bridge: Bridge) -> None:
    wrong_verb = await bridge.http.get("/v1/messages")
    no_json = await bridge.http.post("/v1/messages", content=b"{")
    assert [
        (each.status_code, each.json()["type"], each.json()["error"]["type"]) for each in (wrong_verb, no_json)
    ] == [
        (405, "error", "invalid_request_error"),
        (400, "error", "invalid_request_error"),
    ]


@pytest.mark.promise("anthropic.errors", "anthropic.ignored")
async def test_the_operators_limits_are_told_alike(tmp_path_factory: pytest.TempPathFactory) -> None:
    chosen: dict[str, Any] = {"PROXY_RATE_LIMIT": "1/hour", "PROXY_MAX_BODY_MB": 0.001, "PROXY_STRICT_PARAMS": True}
    async with running_bridge(tmp_path_factory.mktemp("limits"), **chosen) as bridge:
        bridge.script(answer(message("hello")))
        betas = {"anthropic-beta": "never-heard-of-2030-01-01"}
        first = await bridge.http.post("/v1/messages", json=ASK, headers=betas)
        second = await bridge.http.post("/v1/messages", json=ASK)
        large = await bridge.http.post("/v1/messages/count_tokens", json={**ASK, "system": "x" * 2000})
        strict = await bridge.http.post("/v1/messages/count_tokens", json={**ASK, "temperature": 0.5})
    assert (first.status_code, first.headers["x-turnbridge-ignored"]) == (
        200,
        "anthropic-beta: never-heard-of-2030-01-01",
    )
    assert (second.status_code, second.json()["error"]["type"]) == (429, "rate_limit_error")
    assert int(second.headers["retry-after"]) > 60
    assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")
    assert strict.status_code == 200


@pytest.mark.promise("anthropic.errors")
async def test_the_sdk_retries_only_what_may_help(bridge: Bridge) -> None:
    replies: list[tuple[HttpReply, int]] = [
        (refusal(429, "insufficient_quota", "insufficient_quota"), 1),
        (refusal(401), 1),
        (refusal(400), 1),
    ]
    async with anthropic_client(bridge.url, max_retries=2) as client:
        for reply, requests in replies:
            bridge.script(*[reply] * 3)
            with pytest.raises(anthropic.APIStatusError):
                await client.messages.create(model=MODEL, max_tokens=1000, messages=HI)
            assert len(bridge.model.requests) == requests
