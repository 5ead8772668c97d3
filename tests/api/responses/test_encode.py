"""What a client of the Responses API reads, live and whole."""

from collections.abc import Iterable
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseError

from tests.api.responses.decoded import decode
from tests.api.responses.rebuilt import TERMINALS, Reader
from tests.api.shared.event_streams import event_streams
from tests.api.shared.official import EVENTS, unknown_fields
from tests.support.frames import parsed
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.engine.ports import Model
from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import Json, JsonObject

CREATED, ENDED = 1_700_000_000, 1_700_000_007
MODEL = Model(
    id="gpt-5.5",
    display_name="GPT-5.5",
    description="",
    efforts=("low", "medium"),
    default_effort="medium",
    context_window=272_000,
    max_context_window=272_000,
    modalities=("text", "image"),
    service_tiers=(),
    hidden=False,
    is_default=True,
)

# Strict clients want these, although the official one does not know them.
BEYOND_THE_SDK = {"frequency_penalty", "presence_penalty", "store"}

ENVELOPE: JsonObject = {
    "id": "resp_1",
    "object": "response",
    "created_at": CREATED,
    "status": "in_progress",
    "background": False,
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "model": "gpt-5.5",
    "output": [],
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": "medium", "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "truncation": "disabled",
    "usage": None,
    "user": None,
    "metadata": {},
}
USAGE: JsonObject = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 15,
}


def encoder(**wishes: Json) -> ResponseEncoder:
    request = decode({"model": "gpt-5.5", "input": "Hi", **wishes})
    return ResponseEncoder(request, MODEL, response_id="resp_1", created_at=CREATED, now=lambda: ENDED)


def encoded(made: ResponseEncoder, events: Iterable[ev.TurnEvent]) -> list[JsonObject]:
    return parsed(b"".join([made.frames(0, [event]) for event in events]) + made.closing())


def numbered(*events: JsonObject) -> list[JsonObject]:
    """Return events with their sequence numbers."""
    return [{"sequence_number": number, **event} for number, event in enumerate(events)]


@pytest.mark.promise("streaming.responses.order")
def test_a_typical_turn_is_told_event_by_event() -> None:
    citation: JsonObject = {
        "type": "url_citation",
        "start_index": 0,
        "end_index": 5,
        "url": "https://a.b/",
        "title": "A",
    }
    turn: list[ev.TurnEvent] = [
        ev.ReasoningStarted("rs_1"),
        ev.SummaryDelta("rs_1", 0, "Hm."),
        ev.SummaryDelta("rs_1", 1, "So."),
        ev.ReasoningDone("rs_1", ("Hm.", "So."), (), "secret"),
        ev.MessageStarted("msg_1", "final_answer"),
        ev.TextDelta("msg_1", "hel"),
        ev.TextDelta("msg_1", "lo"),
        ev.MessageDone("msg_1", "final_answer", "hello", (citation,)),
        ev.TurnCompleted(ev.Usage(input=10, cached=2, output=5, reasoning=1)),
    ]
    hm: JsonObject = {"type": "summary_text", "text": "Hm."}
    so: JsonObject = {"type": "summary_text", "text": "So."}
    thought: JsonObject = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [hm, so],
        "content": [],
        "encrypted_content": "secret",
    }
    part: JsonObject = {"type": "output_text", "text": "hello", "annotations": [citation], "logprobs": []}
    message: JsonObject = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [part],
        "phase": "final_answer",
    }
    begun: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
    in_rs: JsonObject = {"item_id": "rs_1", "output_index": 0}
    in_msg: JsonObject = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    blank: JsonObject = {"type": "summary_text", "text": ""}
    whole: JsonObject = {
        **ENVELOPE,
        "status": "completed",
        "completed_at": ENDED,
        "output": [thought, message],
        "usage": USAGE,
    }
    made = encoder(include=["reasoning.encrypted_content"])
    assert encoded(made, turn) == numbered(
        {"type": "response.created", "response": ENVELOPE},
        {"type": "response.in_progress", "response": ENVELOPE},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.reasoning_summary_part.added", **in_rs, "summary_index": 0, "part": blank},
        {"type": "response.reasoning_summary_text.delta", **in_rs, "summary_index": 0, "delta": "Hm."},
        {"type": "response.reasoning_summary_text.done", **in_rs, "summary_index": 0, "text": "Hm."},
        {"type": "response.reasoning_summary_part.done", **in_rs, "summary_index": 0, "part": hm},
        {"type": "response.reasoning_summary_part.added", **in_rs, "summary_index": 1, "part": blank},
        {"type": "response.reasoning_summary_text.delta", **in_rs, "summary_index": 1, "delta": "So."},
        {"type": "response.reasoning_summary_text.done", **in_rs, "summary_index": 1, "text": "So."},
        {"type": "response.reasoning_summary_part.done", **in_rs, "summary_index": 1, "part": so},
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {**message, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **in_msg, "part": {**part, "text": "", "annotations": []}},
        {"type": "response.output_text.delta", **in_msg, "delta": "hel", "logprobs": []},
        {"type": "response.output_text.delta", **in_msg, "delta": "lo", "logprobs": []},
        {
            "type": "response.output_text.annotation.added",
            **in_msg,
            "annotation_index": 0,
            "annotation": citation,
        },
        {"type": "response.output_text.done", **in_msg, "text": "hello", "logprobs": []},
        {"type": "response.content_part.done", **in_msg, "part": part},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
        {"type": "response.completed", "response": whole},
    )
    assert made.whole() == whole


@pytest.mark.promise("responses.incomplete")
def test_an_answer_that_is_cut_off_is_closed_as_incomplete() -> None:
    turn: list[ev.TurnEvent] = [
        ev.MessageStarted("msg_1", None),
        ev.TextDelta("msg_1", "Half a"),
        ev.TurnIncomplete("max_output_tokens", ev.Usage(input=10, cached=2, output=5, reasoning=1)),
    ]
    part: JsonObject = {"type": "output_text", "text": "Half a", "annotations": [], "logprobs": []}
    message: JsonObject = {
        "type": "message",
        "id": "msg_1",
        "status": "incomplete",
        "role": "assistant",
        "content": [part],
    }
    place: JsonObject = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    whole: JsonObject = {
        **ENVELOPE,
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [message],
        "usage": USAGE,
    }
    assert (
        encoded(encoder(), turn)[5:]
        == numbered(
            *[{}] * 5,
            {"type": "response.output_text.done", **place, "text": "Half a", "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": message},
            {"type": "response.incomplete", "response": whole},
        )[5:]
    )


@pytest.mark.promise("usage.failed")
def test_a_failure_keeps_its_code_and_claims_no_usage_that_nobody_counted() -> None:
    made = encoder()
    failed = ev.TurnFailed(errors.RateLimited("Slow down.", retry_after=3))
    whole: JsonObject = {
        **ENVELOPE,
        "status": "failed",
        "error": {"code": "rate_limit_exceeded", "message": "Slow down."},
    }
    said: JsonObject = {"code": "rate_limit_exceeded", "message": "Slow down.", "param": None}
    assert encoded(made, [failed])[2:] == [
        {"type": "error", "sequence_number": 2, **said, "error": {**said, "type": "rate_limit_error"}},
        {"type": "response.failed", "sequence_number": 3, "response": whole},
    ]
    assert made.failure == failed


@pytest.mark.promise("errors.failed-codes")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRequest("Bad effort."), "invalid_prompt"),
        (errors.InvalidRequest("No image.", code="invalid_image"), "invalid_image"),
        (errors.ContextTooLong("Too long."), "invalid_prompt"),
        (errors.PolicyRefusal("No."), "invalid_prompt"),
        (errors.RateLimited("Slow down."), "rate_limit_exceeded"),
        (errors.RateLimited("Full.", code="queue_full"), "rate_limit_exceeded"),
        (errors.QuotaExhausted("Used up."), "rate_limit_exceeded"),
        (errors.OutputRejected("Not JSON."), "server_error"),
        (errors.UpstreamOverloaded("Busy."), "server_error"),
        (errors.TurnTimeout("Late."), "server_error"),
        (errors.LoginRequired("Log in."), "server_error"),
    ],
)
def test_a_failed_response_has_a_code_that_openai_lists_and_the_event_before_it_ours(
    error: errors.GatewayError, code: str
) -> None:
    made = encoder()
    told = encoded(made, [ev.TurnFailed(error)])[-2]
    assert made.whole()["error"] == {"code": code, "message": error.message}
    assert told["code"] == error.error_code
    assert code in get_args(ResponseError.model_fields["code"].annotation)


def test_a_failure_tells_the_usage_that_was_counted_before_it() -> None:
    made = encoder()
    encoded(made, [ev.TurnFailed(errors.UpstreamFailed("It broke."), ev.Usage(input=3, output=2))])
    usage = made.whole()["usage"]
    assert isinstance(usage, dict)
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (3, 2, 5)


def test_encrypted_reasoning_stays_with_us_unless_it_is_asked_for() -> None:
    made = encoder()
    encoded(made, [ev.ReasoningStarted("rs_1"), ev.ReasoningDone("rs_1", (), (), "secret")])
    assert made.whole()["output"] == [{"type": "reasoning", "id": "rs_1", "summary": [], "content": []}]


@pytest.mark.promise("responses.envelope")
@pytest.mark.parametrize(
    ("wishes", "shown"),
    [
        ({"instructions": "Be kind."}, {"instructions": "Be kind."}),
        ({"max_output_tokens": 99}, {"max_output_tokens": 99}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning": {"effort": "low", "summary": "auto"}}),
        # The official client knows no such summary: what is in force then is none.
        ({"reasoning": {"summary": "none"}}, {"reasoning": {"effort": "medium", "summary": None}}),
        ({"service_tier": "fast"}, {"service_tier": "priority"}),
        ({"service_tier": "auto"}, {}),
        ({"text": {"verbosity": "low"}}, {"text": {"format": {"type": "text"}, "verbosity": "low"}}),
        (
            {"metadata": {"team": "a"}, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
            {"metadata": {"team": "a"}, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
        ),
        # Not met, so not shown as if it were.
        ({"temperature": 0.2, "top_p": 0.5, "store": True, "truncation": "auto"}, {}),
    ],
)
def test_the_envelope_shows_what_is_in_force(wishes: JsonObject, shown: JsonObject) -> None:
    response = encoder(**wishes).whole()
    assert response == {**ENVELOPE, **shown}
    assert unknown_fields(Response, response) == BEYOND_THE_SDK


@pytest.mark.promise("responses.fold", "streaming.responses.sequence-numbers", "streaming.responses.one-terminal-event")
@given(event_streams(), st.booleans())
def test_the_stream_alone_rebuilds_the_response(turn: list[ev.TurnEvent], encrypted: bool) -> None:
    made = encoder(include=["reasoning.encrypted_content"] if encrypted else [])
    stream, reader = encoded(made, turn), Reader()
    created, in_progress, last = reader.read(stream)
    reader.assert_closed()
    assert created.response == in_progress.response == ENVELOPE
    assert last.type in TERMINALS
    assert stream[-1] == {"type": last.type, "sequence_number": len(stream) - 1, "response": made.whole()}
    assert msgspec.to_builtins(reader.output) == made.whole()["output"]


@pytest.mark.promise("responses.sdk-types")
@given(event_streams())
def test_the_official_client_knows_every_field_of_every_event(turn: list[ev.TurnEvent]) -> None:
    for event in encoded(encoder(), turn):
        beyond = BEYOND_THE_SDK if "response" in event else {"error"} & event.keys()
        if event["type"] == "response.function_call_arguments.done":
            # Only the SDK for JavaScript knows it, and takes it for granted.
            beyond = {"name"}
        assert unknown_fields(EVENTS[str(event["type"])], event) == beyond
