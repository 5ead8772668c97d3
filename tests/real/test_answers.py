"""What a client gets in one piece, through the real Codex: the same as the stream, folded."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from dirty_equals import IsInt, IsStr
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.responses import Response, ResponseIncludable, ResponseOutputMessage

from tests.support.gateway import Bridge
from turnbridge.scripted_model.replies import (
    JsonObject,
    OutputItem,
    Usage,
    answer,
    function_call,
    message,
    reasoning,
)

pytestmark = [pytest.mark.anyio, pytest.mark.real]

MODEL = "gpt-5.5"
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
ASK_CHAT = ("/v1/chat/completions", {"model": MODEL, "messages": HI})
ASK_RESPONSES = ("/v1/responses", {"model": MODEL, "input": "hi"})

CITATION: JsonObject = {
    "type": "url_citation",
    "url": "https://example.com/",
    "title": "Example",
    "start_index": 0,
    "end_index": 5,
}


async def whole(bridge: Bridge, path: str, body: Mapping[str, object]) -> JsonObject:
    """Return the answer to a request that does not stream."""
    response = await bridge.http.post(path, json=body)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    answered: JsonObject = response.json()
    return answered


def cited(text: str) -> OutputItem:
    """Return a message with a citation."""
    part: JsonObject = {"type": "output_text", "text": text, "annotations": [CITATION], "logprobs": []}
    plain = message(text)
    return OutputItem(item={**plain.item, "content": [part]}, opening=plain.opening, beats=plain.beats)


def without(answered: Mapping[str, object], *names: str) -> dict[str, object]:
    """Return an answer without what differs from one request to the next."""
    return {name: value for name, value in answered.items() if name not in names}


@pytest.mark.promise("responses.envelope")
async def test_the_envelope_of_a_response_holds_every_field_at_the_value_in_force(bridge: Bridge) -> None:
    bridge.script(answer(message("hello"), key="one"))
    assert await whole(bridge, *ASK_RESPONSES) == {
        "id": IsStr(regex="resp_[0-9a-f]{32}"),
        "object": "response",
        "created_at": IsInt(gt=1_700_000_000),
        "completed_at": IsInt(gt=1_700_000_000),
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "model": MODEL,
        "output": [
            {
                "type": "message",
                "id": "msg_one_0",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}],
            }
        ],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": "medium", "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 15,
        },
        "user": None,
    }


@pytest.mark.promise("chat.completion")
async def test_a_chat_completion_is_whole(bridge: Bridge) -> None:
    bridge.says("hello")
    assert await whole(bridge, *ASK_CHAT) == {
        "id": IsStr(regex="chatcmpl-[0-9a-f]{32}"),
        "object": "chat.completion",
        "created": IsInt(gt=1_700_000_000),
        "model": MODEL,
        "service_tier": "default",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello", "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
            "completion_tokens": 5,
            "completion_tokens_details": {
                "reasoning_tokens": 1,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
            "total_tokens": 15,
        },
    }


@pytest.mark.promise("chat.completion", "responses.sdk-types")
async def test_both_answers_are_what_the_sdks_types_demand(bridge: Bridge) -> None:
    said = answer(reasoning(["Thinking."], encrypted="sealed"), cited("hello"))
    bridge.script(said, said)
    Response.model_validate(await whole(bridge, *ASK_RESPONSES))
    ChatCompletion.model_validate(await whole(bridge, *ASK_CHAT))


@pytest.mark.promise("responses.fold")
async def test_a_response_is_the_fold_of_its_stream(bridge: Bridge) -> None:
    said = answer(
        reasoning(["One.", "Two."], encrypted="sealed", text="Raw."),
        message("Let me see.", phase="commentary"),
        cited("hello"),
        message("", phase="final_answer"),
        key="same",
    )
    bridge.script(said, said)
    answered = await bridge.client.responses.create(model=MODEL, input="hi", metadata={"a": "b"})
    events = await bridge.client.responses.create(model=MODEL, input="hi", metadata={"a": "b"}, stream=True)
    (folded,) = [event.response async for event in events if event.type == "response.completed"]
    passing = ("id", "created_at", "completed_at")
    assert without(answered.to_dict(), *passing) == without(folded.to_dict(), *passing)


@pytest.mark.promise("chat.fold", "reasoning.chat")
async def test_a_chat_completion_is_the_fold_of_its_stream(bridge: Bridge) -> None:
    said = answer(reasoning(["One.", "Two."]), message("Let me see.", phase="commentary"), message("hello"))
    bridge.script(said, said)
    answered = await bridge.client.chat.completions.create(model=MODEL, messages=HI)
    async with bridge.client.chat.completions.stream(
        model=MODEL, messages=HI, stream_options={"include_usage": True}
    ) as stream:
        folded = await stream.get_final_completion()
    (one,), (other,) = answered.choices, folded.choices
    # The SDK's fold adds a fingerprint of null.
    passing = ("id", "created", "choices", "system_fingerprint")
    assert without(answered.to_dict(), *passing) == without(folded.to_dict(), *passing)
    assert one.finish_reason == other.finish_reason
    # An empty list of annotations has no delta.
    message_of_one = without(one.message.to_dict(exclude_none=True), "annotations")
    assert message_of_one == other.message.to_dict(exclude_none=True)
    assert message_of_one == {
        "role": "assistant",
        "content": "hello",
        "reasoning_content": "One.\n\nTwo.\n\nLet me see.",
    }


@pytest.mark.promise("usage.exact")
async def test_usage_is_the_sum_of_the_turns_model_calls(bridge: Bridge) -> None:
    long = Usage(input_tokens=1000, cached_tokens=400, output_tokens=300, reasoning_tokens=200)
    # Codex itself answers a call of a function that nobody declared, and asks the model again.
    calls = (answer(function_call("undeclared", {}), usage=long), answer(message("hello"), usage=Usage()))
    bridge.script(*calls, *calls)
    response = await bridge.client.responses.create(model=MODEL, input="hi")
    completion = await bridge.client.chat.completions.create(model=MODEL, messages=HI)
    assert len(bridge.model.requests) == 4
    assert response.usage is not None
    assert response.usage.to_dict() == {
        "input_tokens": 1010,
        "input_tokens_details": {"cached_tokens": 402, "cache_write_tokens": 0},
        "output_tokens": 305,
        "output_tokens_details": {"reasoning_tokens": 201},
        "total_tokens": 1315,
    }
    assert completion.usage is not None
    assert completion.usage.to_dict() == {
        "prompt_tokens": 1010,
        "prompt_tokens_details": {"cached_tokens": 402, "audio_tokens": 0},
        "completion_tokens": 305,
        "completion_tokens_details": {
            "reasoning_tokens": 201,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
        "total_tokens": 1315,
    }


@pytest.mark.promise("reasoning.encrypted")
@pytest.mark.parametrize("include", [[], ["reasoning.encrypted_content"]], ids=["not asked for", "asked for"])
async def test_encrypted_reasoning_is_given_only_to_those_who_ask(
    bridge: Bridge, include: list[ResponseIncludable]
) -> None:
    said = answer(reasoning(["Thinking."], encrypted="sealed"), message("hello"), key="one")
    bridge.script(said, said)
    answered = await bridge.client.responses.create(model=MODEL, input="hi", include=include)
    events = await bridge.client.responses.create(model=MODEL, input="hi", include=include, stream=True)
    done, _ = [event.item async for event in events if event.type == "response.output_item.done"]
    thought = {
        "type": "reasoning",
        "id": "rs_one_0",
        "summary": [{"type": "summary_text", "text": "Thinking."}],
        "content": [],
    }
    assert done == answered.output[0]
    assert done.to_dict() == ({**thought, "encrypted_content": "sealed"} if include else thought)


@pytest.mark.promise("reasoning.narration.responses")
async def test_narration_is_an_item_of_its_own_in_a_response(bridge: Bridge) -> None:
    bridge.script(answer(message("Let me see.", phase="commentary"), message("hello", phase="final_answer")))
    response = await bridge.client.responses.create(model=MODEL, input="hi")
    messages = [item for item in response.output if isinstance(item, ResponseOutputMessage)]
    said = [(item.phase, part.text) for item in messages for part in item.content if part.type == "output_text"]
    assert said == [("commentary", "Let me see."), ("final_answer", "hello")]


@pytest.mark.promise("reasoning.narration.chat")
async def test_narration_is_on_the_reasoning_side_of_a_chat_completion(bridge: Bridge) -> None:
    bridge.script(answer(message("Let me see.", phase="commentary"), message("hello", phase="final_answer")))
    completion = await bridge.client.chat.completions.create(model=MODEL, messages=HI)
    assert completion.choices[0].message.to_dict() == {
        "role": "assistant",
        "content": "hello",
        "refusal": None,
        "annotations": [],
        "reasoning_content": "Let me see.",
    }


@pytest.mark.promise("chat.several-messages")
async def test_two_messages_are_one_chat_text_with_a_blank_line_between(bridge: Bridge) -> None:
    bridge.script(answer(message("One."), message("Two.")))
    completion = await bridge.client.chat.completions.create(model=MODEL, messages=HI)
    assert completion.choices[0].message.content == "One.\n\nTwo."


@pytest.mark.promise("responses.citations")
async def test_citations_arrive_in_a_response_and_its_stream(bridge: Bridge) -> None:
    bridge.script(answer(cited("hello"), key="one"), answer(cited("hello"), key="one"))
    response = await bridge.client.responses.create(model=MODEL, input="hi")
    assert [item.to_dict() for item in response.output] == [
        {
            "type": "message",
            "id": "msg_one_0",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hello", "annotations": [CITATION], "logprobs": []}],
        }
    ]
    events = await bridge.client.responses.create(model=MODEL, input="hi", stream=True)
    added = [event async for event in events if event.type == "response.output_text.annotation.added"]
    assert [event.to_dict()["annotation"] for event in added] == [CITATION]


CHAT_CITATION = {"type": "url_citation", "url_citation": without(CITATION, "type")}


@pytest.mark.promise("chat.citations")
async def test_citations_arrive_in_a_chat_completion(bridge: Bridge) -> None:
    bridge.script(answer(cited("hello")))
    completion = await bridge.client.chat.completions.create(model=MODEL, messages=HI)
    assert [citation.to_dict() for citation in completion.choices[0].message.annotations or []] == [CHAT_CITATION]


@pytest.mark.promise("chat.citations")
async def test_citations_arrive_in_a_chat_stream(bridge: Bridge) -> None:
    bridge.script(answer(cited("hello")))
    chunks = await bridge.client.chat.completions.create(model=MODEL, messages=HI, stream=True)
    deltas = [choice.delta.to_dict() async for chunk in chunks for choice in chunk.choices]
    assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [[CHAT_CITATION]]


@pytest.mark.promise("reasoning.narration.responses")
async def test_a_phase_that_the_provider_tells_only_at_the_end_is_told(bridge: Bridge) -> None:
    whole_message = message("hello", phase="final_answer")
    bridge.script(answer(replace(whole_message, opening={**whole_message.opening, "phase": None})))
    answered = await whole(bridge, *ASK_RESPONSES)
    part: JsonObject = {"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}
    said: JsonObject = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    assert answered["output"] == [{**said, "id": IsStr(), "phase": "final_answer"}]
