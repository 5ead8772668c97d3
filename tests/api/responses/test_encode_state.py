"""What of a response is kept, and how one is told that waits, is cancelled, or cannot be kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from tests.api.responses.decoded import decode
from tests.api.responses.test_encode import (
    BEYOND_THE_SDK,
    CREATED,
    ENDED,
    ENVELOPE,
    MODEL,
    encoded,
    numbered,
)
from tests.api.shared.event_streams import event_streams
from tests.api.shared.official import unknown_fields
from tests.support.frames import parsed
from turnbridge.api.responses.decode import decode_items
from turnbridge.api.responses.encode import ResponseEncoder
from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import (
    FunctionCall,
    Json,
    JsonObject,
    Message,
    Reasoning,
)
from turnbridge.turn.mcp import McpResult

STORED: JsonObject = {**ENVELOPE, "store": True}
USAGE = ev.Usage(input=10, cached=2, output=5, reasoning=1)
THINKS: list[ev.TurnEvent] = [ev.ReasoningStarted("rs_1"), ev.ReasoningDone("rs_1", (), (), "secret")]
SAYS: list[ev.TurnEvent] = [
    ev.MessageStarted("msg_1", None),
    ev.TextDelta("msg_1", "hello"),
    ev.MessageDone("msg_1", None, "hello", ()),
]
HALF: list[ev.TurnEvent] = [ev.MessageStarted("msg_2", None), ev.TextDelta("msg_2", "Half a")]


def encoder(**wishes: Json) -> ResponseEncoder:
    request = decode({"model": "gpt-5.5", "input": "Hi", **wishes})
    return ResponseEncoder(request, MODEL, response_id="resp_1", created_at=CREATED, now=lambda: ENDED, stored=True)


def message(item_id: str, text: str, *, status: str = "completed") -> JsonObject:
    part: JsonObject = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": [part]}


THOUGHT: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
SEALED: JsonObject = {**THOUGHT, "encrypted_content": "secret"}


@pytest.mark.parametrize(
    ("wishes", "shown"),
    [
        ({"previous_response_id": "resp_0"}, {"previous_response_id": "resp_0"}),
        ({"conversation": "conv_1"}, {"conversation": {"id": "conv_1"}}),
        ({"conversation": {"id": "conv_1"}}, {"conversation": {"id": "conv_1"}}),
        ({"background": True}, {"background": True}),
    ],
    ids=str,
)
def test_the_envelope_shows_what_is_continued_and_kept(wishes: JsonObject, shown: JsonObject) -> None:
    response = encoder(**wishes).whole()
    assert response == {**STORED, **shown}
    assert unknown_fields(Response, response) == BEYOND_THE_SDK


def test_what_is_kept_has_the_thoughts_that_the_client_did_not_ask_for() -> None:
    made = encoder()
    encoded(made, [*THINKS, *SAYS, ev.TurnCompleted(USAGE)])
    assert made.whole()["output"] == [THOUGHT, message("msg_1", "hello")]
    assert made.said == [SEALED, message("msg_1", "hello")]


def test_what_is_kept_has_the_models_own_order() -> None:
    made = encoder()
    calls: list[ev.TurnEvent] = [ev.FunctionCallDone(f"fc_{n}", f"call_{n}", "look", "{}") for n in (1, 2)]
    awaited = ev.CallsAwaited(USAGE, ("fc_2", "rs_1", "fc_1"))
    encoded(made, [*THINKS, *calls, awaited])
    assert [item["id"] for item in made.said] == ["fc_2", "rs_1", "fc_1"]


@pytest.mark.parametrize(
    ("ending", "kept"),
    [
        (ev.TurnIncomplete("max_output_tokens", USAGE), ["msg_1", "msg_2"]),
        (ev.TurnFailed(errors.UpstreamFailed("Gone.")), ["msg_1"]),
    ],
    ids=["cut off", "failed"],
)
def test_half_an_item_is_kept_of_an_answer_that_was_cut_off_but_not_of_one_that_failed(
    ending: ev.Terminal, kept: list[str]
) -> None:
    made = encoder()
    encoded(made, [*SAYS, *HALF, ending])
    assert [item["id"] for item in made.said] == kept


@given(event_streams(), st.booleans())
def test_whatever_is_kept_can_stand_in_a_history(turn: list[ev.TurnEvent], encrypted: bool) -> None:
    made = encoder(include=["reasoning.encrypted_content"] if encrypted else [])
    encoded(made, turn)
    kept = decode_items(made.said)
    assert [type(item) for item in kept if isinstance(item, Message | Reasoning | FunctionCall)] == [
        {"message": Message, "reasoning": Reasoning, "function_call": FunctionCall}[str(item["type"])]
        for item in made.said
        if item["type"] != "web_search_call"
    ]


def test_a_response_that_could_not_be_kept_says_so() -> None:
    made = encoder()
    encoded(made, [*SAYS, ev.TurnCompleted(USAGE)])
    made.mark_unstored()
    assert made.whole()["store"] is False
    last: Json = parsed(made.closing())[-1]["response"]
    assert last == made.whole()


def test_a_response_that_waits_is_queued_and_then_in_progress() -> None:
    made = encoder(background=True)
    queued: JsonObject = {**STORED, "background": True, "status": "queued"}
    begun: JsonObject = {**queued, "status": "in_progress"}
    assert parsed(made.queued() + made.admitted()) == numbered(
        {"type": "response.created", "response": queued},
        {"type": "response.queued", "response": queued},
        {"type": "response.in_progress", "response": begun},
    )


def test_a_response_that_is_cancelled_closes_what_is_open_and_ends_once() -> None:
    made = encoder(background=True)
    made.queued()
    made.admitted()
    made.frames(0, [*SAYS, *HALF])
    place: JsonObject = {"item_id": "msg_2", "output_index": 1, "content_index": 0}
    half = message("msg_2", "Half a", status="incomplete")
    cancelled: JsonObject = {
        **STORED,
        "background": True,
        "status": "cancelled",
        "output": [message("msg_1", "hello"), half],
    }
    happened = parsed(made.cancel() + made.closing())
    first = happened[0]["sequence_number"]
    assert isinstance(first, int)
    assert [{**event, "sequence_number": 0} for event in happened] == [
        {"type": "response.output_text.done", "sequence_number": 0, **place, "text": "Half a", "logprobs": []},
        {"type": "response.content_part.done", "sequence_number": 0, **place, "part": {**_part(half)}},
        {"type": "response.output_item.done", "sequence_number": 0, "output_index": 1, "item": half},
        {"type": "response.incomplete", "sequence_number": 0, "response": cancelled},
    ]
    assert [event["sequence_number"] for event in happened] == [first, first + 1, first + 2, first + 3]
    assert made.whole() == cancelled
    assert [item["id"] for item in made.said] == ["msg_1"]


def _part(item: JsonObject) -> JsonObject:
    content = item["content"]
    assert isinstance(content, list)
    assert isinstance(content[0], dict)
    return content[0]


HALF_A_THOUGHT: list[ev.TurnEvent] = [ev.ReasoningStarted("rs_2"), ev.SummaryDelta("rs_2", 0, "Half a")]


def test_half_a_thought_of_a_response_that_failed_is_not_kept() -> None:
    made = encoder()
    encoded(made, [*THINKS, *HALF_A_THOUGHT, ev.TurnFailed(errors.UpstreamFailed("Gone."))])
    assert made.said == [SEALED]


def test_half_a_thought_of_a_response_that_was_cancelled_is_not_kept() -> None:
    made = encoder()
    made.frames(0, [*THINKS, *HALF_A_THOUGHT])
    made.cancel()
    assert made.said == [SEALED]


def test_a_phase_that_is_told_at_the_end_is_part_of_the_whole_message() -> None:
    made = encoder()
    started, delta = SAYS[:2]
    happened = encoded(
        made, [started, delta, ev.MessageDone("msg_1", "final_answer", "hello"), ev.TurnCompleted(USAGE)]
    )
    whole: JsonObject = {**message("msg_1", "hello"), "phase": "final_answer"}
    assert [event["item"] for event in happened if event["type"] == "response.output_item.done"] == [whole]
    assert made.whole()["output"] == [whole]


def test_the_end_of_a_wait_that_was_not_told_of_is_no_event() -> None:
    made = encoder()
    assert made.admitted() == b""
    assert [event["sequence_number"] for event in parsed(made.frames(0, SAYS[:1]))] == [0, 1, 2]


def test_a_keepalive_after_the_last_event_has_no_number() -> None:
    made = encoder()
    made.frames(0, [*SAYS, ev.TurnCompleted(USAGE)])
    assert made.keepalive().startswith(b": ")


SERVER: list[ev.TurnEvent] = [
    ev.McpCallStarted("call_s", "wx", "look", "{}"),
    ev.McpCallDone("call_s", McpResult(error={"type": "mcp_tool_execution_error", "content": []})),
]


def test_a_call_of_a_server_that_failed_is_kept_of_a_response_that_failed() -> None:
    made = encoder()
    made.frames(0, [*SERVER, *HALF, ev.TurnFailed(errors.UpstreamFailed("Gone."))])
    assert [item["id"] for item in made.said] == ["mcp_call_s"]


def test_a_call_that_waits_for_approval_keeps_its_place() -> None:
    made = encoder()
    asked = ev.McpApprovalAsked("fc_1", "call_1", "wx", "look", "{}")
    made.frames(0, [*THINKS, asked, ev.CallsAwaited(USAGE, ("rs_1", "fc_1"))])
    assert [item["id"] for item in made.said] == ["rs_1", "mcpr_call_1"]
