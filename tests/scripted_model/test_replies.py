"""The events that a script is made of are those of the Responses API."""

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from turnbridge.scripted_model.replies import (
    Beat,
    Hangup,
    JsonObject,
    Pause,
    StreamReply,
    Usage,
    answer,
    completed,
    created,
    custom_tool_call,
    failed,
    function_call,
    incomplete,
    message,
    reasoning,
    web_search_call,
)

OFFICIAL: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)

EVERYTHING = StreamReply(
    steps=(
        created(),
        reasoning(["First.", "Second."], encrypted="abc", text="Raw."),
        web_search_call("weather"),
        message("Let me see.", phase="commentary", pieces=["Let me ", "see."]),
        function_call("add", {"a": 1}, pieces=['{"a":', " 1}"]),
        custom_tool_call("note", "free text"),
        completed(),
        failed("server_error", "It broke."),
        incomplete("max_output_tokens"),
    )
)


def events(reply: StreamReply) -> list[JsonObject]:
    return [beat for beat in reply.render(1) if isinstance(beat, dict)]


@pytest.mark.parametrize("event", events(EVERYTHING), ids=lambda event: f"{event['sequence_number']}")
def test_the_official_client_reads_every_field_of_every_event(event: JsonObject) -> None:
    assert OFFICIAL.validate_python(event).to_dict() == event


def test_indexes_count_items_and_sequence_numbers_count_events() -> None:
    sent = events(answer(reasoning(["Hm."]), message("A"), message("B")))
    opened = [(e["output_index"], e["item"]) for e in sent if e["type"] == "response.output_item.added"]
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    assert opened == [
        (0, {"type": "reasoning", "id": "rs_1_0", "summary": [], "encrypted_content": None}),
        (
            1,
            {"type": "message", "id": "msg_1_1", "role": "assistant", "content": [], "status": "in_progress"},
        ),
        (
            2,
            {"type": "message", "id": "msg_1_2", "role": "assistant", "content": [], "status": "in_progress"},
        ),
    ]


def test_silences_stay_where_the_script_has_them() -> None:
    def kind(beat: Beat) -> object:
        return beat["delta"] if isinstance(beat, dict) and "delta" in beat else type(beat)

    pause = Pause(seconds=1)
    reply = StreamReply(steps=(created(), pause, message("ab", pieces=["a", pause, "b"]), Hangup()))
    assert [kind(beat) for beat in reply.render(1)] == [
        *(dict, Pause, dict, dict),
        *("a", Pause, "b"),
        *(dict, dict, dict, Hangup),
    ]


def test_ids_are_made_of_the_key_or_else_of_the_ordinal_unless_they_are_given() -> None:
    def ids(reply: StreamReply) -> list[tuple[object, ...]]:
        done = [event["item"] for event in reply.render(7) if isinstance(event, dict) and "item" in event]
        return [(item["id"], item["call_id"]) for item in done[1::2] if isinstance(item, dict)]

    unnamed = function_call("f", "{}")
    named = function_call("f", "{}", id="fc_x", call_id="call_x")
    assert ids(answer(unnamed, named)) == [("fc_7_0", "call_7_0"), ("fc_x", "call_x")]
    assert ids(answer(named, unnamed, key="k")) == [("fc_x", "call_x"), ("fc_k_1", "call_k_1")]


def test_the_response_has_one_id_in_all_its_events() -> None:
    responses = [event["response"] for event in events(answer(message("A"), key="k")) if "response" in event]
    assert [response["id"] for response in responses if isinstance(response, dict)] == ["resp_k", "resp_k"]


def test_usage_counts_reasoning_as_output() -> None:
    usage = Usage(input_tokens=7, cached_tokens=3, output_tokens=5, reasoning_tokens=4)
    assert usage.json() == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 12,
    }
