"""The official OpenAI SDK for node, through the whole gateway and the real Codex."""

import asyncio
import json

import pytest

from tests.support.gateway import Bridge
from tests.support.node import run_script
from turnbridge.scripted_model.replies import (
    Json,
    JsonObject,
    Reply,
    Wait,
    answer,
    error_reply,
    message,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]

COLOUR: JsonObject = {"name": "red", "rgb": [255, 0, 0]}


def respond(request: JsonObject) -> Reply:
    """Do what the words in the request stand for."""
    match request["input"]:
        case [{"content": [{"text": "hello"}]}]:
            return answer(message("hello", pieces=["hel", "lo"]))
        case [{"content": [{"text": "colour"}]}]:
            return answer(message(json.dumps(COLOUR)))
        case [{"content": [{"text": "too fast"}]}]:
            return error_reply(429, "Too fast.")
        case [{"content": [{"text": "endless"}]}]:
            return answer(message("begun", pieces=["begun", Wait(gate=asyncio.Event())]))
        case other:
            return error_reply(400, f"The script has no reply to {other}.")


@pytest.fixture(scope="module")
async def results(shared: Bridge) -> JsonObject:
    """Return what each scenario of the script reported."""
    shared.script()
    shared.model.respond = respond
    before = shared.model.dropped
    reported = await run_script("client.mjs", shared)
    # Both aborts have reached the model.
    await shared.model.until(lambda model: model.dropped == before + 2)
    return reported


RATE_LIMITED: JsonObject = {
    "class": "RateLimitError",
    "status": 429,
    "code": "rate_limit_exceeded",
    "param": None,
    "type": "rate_limit_error",
    "retryAfter": "5",
}

EXPECTED: dict[str, Json] = {
    "chat": {"text": "hello", "finish": "stop", "total": 15},
    "chatStream": {"pieces": ["hel", "lo"], "text": "hello", "total": 15},
    "responses": {"text": "hello", "status": "completed", "total": 15},
    "responsesStream": {
        "types": [
            *("created", "in_progress", "output_item.added", "content_part.added"),
            *("output_text.delta", "output_text.delta", "output_text.done"),
            *("content_part.done", "output_item.done", "completed"),
        ],
        "text": "hello",
    },
    "chatParse": COLOUR,
    "responsesParse": COLOUR,
    "rateLimited": RATE_LIMITED,
    "rateLimitedStream": RATE_LIMITED,
    "unknownModel": {
        "class": "NotFoundError",
        "status": 404,
        "code": "model_not_found",
        "param": "model",
        "type": "invalid_request_error",
        "retryAfter": None,
    },
    "wrongKey": {
        "class": "AuthenticationError",
        "status": 401,
        "code": "invalid_api_key",
        "param": None,
        "type": "invalid_request_error",
        "retryAfter": None,
    },
    "abortChat": "begun",
    "abortResponses": "begun",
}


@pytest.mark.promise("chat.sdks", "responses.sdks", "structured.sdks")
@pytest.mark.parametrize("scenario", EXPECTED)
async def test_the_node_sdk_gets_what_it_should(results: JsonObject, scenario: str) -> None:
    assert results[scenario] == EXPECTED[scenario]


async def test_every_scenario_is_judged(results: JsonObject) -> None:
    assert results.keys() == EXPECTED.keys()
