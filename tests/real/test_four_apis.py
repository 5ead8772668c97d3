"""One conversation told in all four APIs: the model cannot tell through which one it came."""

import base64
from typing import Any

import pytest

from tests.real.test_anthropic import shown
from tests.real.test_images import png
from tests.support.ollama_client import OllamaBridge
from turnbridge.scripted_model.replies import answer, message

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
PICTURE = base64.b64encode(png(4, 4)).decode()
URL = f"data:image/png;base64,{PICTURE}"
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SCHEMA: dict[str, Any] = {**PARAMETERS, "additionalProperties": False}
FUNCTION = {"name": "weather", "description": "The weather.", "parameters": PARAMETERS}
# Responses takes functions for strict where it can; the other APIs do not.
LAX = {"strict": False}

Told = dict[str, dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def both(text: str) -> list[dict[str, Any]]:
    return [user("a"), {"role": "assistant", "content": "b"}, user(text)]


def call(call_id: str, city: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": f'{{"city":"{city}"}}'}


def output(call_id: str, given: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": given}


def chat_call(call_id: str, city: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": f'{{"city":"{city}"}}'}
    return {"id": call_id, "type": "function", "function": function}


CASES: dict[str, Told] = {
    "a system message and texts": {
        "chat": {"messages": [{"role": "system", "content": "Be kind."}, *both("c")]},
        "responses": {"input": [{"role": "system", "content": "Be kind."}, *both("c")]},
        "anthropic": {"messages": [{"role": "system", "content": "Be kind."}, *both("c")]},
        "ollama": {"messages": [{"role": "system", "content": "Be kind."}, *both("c")]},
    },
    "a system message in mid-conversation": {
        api: {
            "input" if api == "responses" else "messages": [
                *(user("a"), {"role": "assistant", "content": "b"}),
                *({"role": "system", "content": "Be brief."}, user("c")),
            ]
        }
        for api in ("chat", "responses", "anthropic", "ollama")
    },
    "an image": {
        "chat": {
            "messages": [
                user([{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": URL}}])  # type: ignore[arg-type]
            ]
        },
        "responses": {
            "input": [
                user([{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": URL}])  # type: ignore[arg-type]
            ]
        },
        "anthropic": {
            "messages": [
                user(
                    [  # type: ignore[arg-type]
                        {"type": "text", "text": "Look."},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
                    ]
                )
            ]
        },
        "ollama": {"messages": [{**user("Look."), "images": [PICTURE]}]},
    },
    "calls and their results": {
        "chat": {
            "tools": [{"type": "function", "function": FUNCTION}],
            "messages": [
                user("hi"),
                {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [chat_call("c1", "Rome"), chat_call("c2", "Oslo")],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "sun"},
                {"role": "tool", "tool_call_id": "c2", "content": "rain"},
                user("So?"),
            ],
        },
        "responses": {
            "tools": [{"type": "function", **FUNCTION, **LAX}],
            "input": [
                user("hi"),
                {"role": "assistant", "content": "I look."},
                *(call("c1", "Rome"), call("c2", "Oslo"), output("c1", "sun"), output("c2", "rain")),
                user("So?"),
            ],
        },
        "anthropic": {
            "tools": [{"name": "weather", "description": "The weather.", "input_schema": PARAMETERS}],
            "messages": [
                user("hi"),
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}},
                        {"type": "tool_use", "id": "c2", "name": "weather", "input": {"city": "Oslo"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "sun"},
                        {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "rain"}]},
                        {"type": "text", "text": "So?"},
                    ],
                },
            ],
        },
        "ollama": {
            "tools": [{"type": "function", "function": FUNCTION}],
            "messages": [
                user("hi"),
                {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [
                        {"id": "c1", "function": {"name": "weather", "arguments": {"city": "Rome"}}},
                        {"id": "c2", "function": {"name": "weather", "arguments": {"city": "Oslo"}}},
                    ],
                },
                {"role": "tool", "tool_name": "weather", "content": "sun"},
                {"role": "tool", "content": "rain"},
                user("So?"),
            ],
        },
    },
    "a result with an image": {
        "chat": {
            "tools": [{"type": "function", "function": FUNCTION}],
            "messages": [
                user("hi"),
                {"role": "assistant", "content": None, "tool_calls": [chat_call("c1", "Rome")]},
                {
                    "role": "tool",
                    "tool_call_id": "c1",
                    "content": [
                        {"type": "text", "text": "Look."},
                        {"type": "image_url", "image_url": {"url": URL}},
                    ],
                },
            ],
        },
        "responses": {
            "tools": [{"type": "function", **FUNCTION, **LAX}],
            "input": [
                user("hi"),
                call("c1", "Rome"),
                output("c1", [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": URL}]),
            ],
        },
        "anthropic": {
            "tools": [{"name": "weather", "description": "The weather.", "input_schema": PARAMETERS}],
            "messages": [
                user("hi"),
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "c1",
                            "content": [
                                {"type": "text", "text": "Look."},
                                {
                                    "type": "image",
                                    "source": {"type": "base64", "media_type": "image/png", "data": PICTURE},
                                },
                            ],
                        }
                    ],
                },
            ],
        },
        "ollama": {
            "tools": [{"type": "function", "function": FUNCTION}],
            "messages": [
                user("hi"),
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": {"city": "Rome"}}}],
                },
                {"role": "tool", "tool_name": "weather", "content": "Look.", "images": [PICTURE]},
            ],
        },
    },
    "a structured answer": {
        "chat": {
            "messages": [user("hi")],
            "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}},
        },
        "responses": {"input": "hi", "text": {"format": {"type": "json_schema", "name": "output", "schema": SCHEMA}}},
        "anthropic": {
            "messages": [user("hi")],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
        "ollama": {"messages": [user("hi")], "format": SCHEMA},
    },
    "an effort": {
        "chat": {"messages": [user("hi")], "reasoning_effort": "low"},
        "responses": {"input": "hi", "reasoning": {"effort": "low"}},
        "anthropic": {"messages": [user("hi")], "output_config": {"effort": "low"}},
        "ollama": {"messages": [user("hi")], "think": "low"},
    },
}

# Each API says in its own way that summaries are wanted: two show them unasked.
ALIKE: Told = {
    "chat": {},
    "responses": {"reasoning": {"summary": "auto"}},
    "anthropic": {"max_tokens": 50_000, "thinking": {"type": "adaptive"}},
    "ollama": {"stream": False},
}
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
}


def merged(wishes: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """Return a request in which an object of both is the union of the two."""
    both_objects = {name: {**wishes[name], **told[name]} for name in wishes.keys() & told.keys()}
    return {"model": MODEL, **wishes, **told, **both_objects}


@pytest.mark.promise("anthropic.fidelity", "ollama.fidelity", "items.history")
@pytest.mark.parametrize("name", CASES)
async def test_the_model_sees_the_same_through_all_four_apis(ollama_bridge: OllamaBridge, name: str) -> None:
    bridge = ollama_bridge.bridge
    bridge.script(*[answer(message('{"city": "Rome"}'))] * len(PATHS))
    for api, path in PATHS.items():
        # Through the listener for Ollama's clients, which serves all of them.
        answered = await ollama_bridge.http.post(path, json=merged(ALIKE[api], CASES[name][api]))
        assert (answered.status_code, answered.headers.get("x-turnbridge-ignored")) == (200, None), answered.text
        assert answered.headers["x-turnbridge-fidelity"] == "exact"
    chat, responses, anthropic, ollama = (shown(request.body) for request in bridge.model.requests)
    assert responses == chat
    assert anthropic == chat
    assert ollama == chat
