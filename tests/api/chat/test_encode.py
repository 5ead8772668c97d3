"""What a client of the Chat Completions API reads, live and whole."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.api.shared.event_streams import event_streams
from tests.api.shared.official import unknown_fields
from tests.support.frames import parsed
from turnbridge.api.chat.decode import decode
from turnbridge.api.chat.encode import ChatEncoder
from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import Json, JsonObject

CREATED = 1_700_000_000
HEAD: JsonObject = {
    "id": "chatcmpl-1",
    "created": CREATED,
    "model": "gpt-5.5",
    "service_tier": "default",
}
CHUNK: JsonObject = {**HEAD, "object": "chat.completion.chunk"}
USAGE: JsonObject = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 1,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
COMPLETED = ev.TurnCompleted(ev.Usage(input=10, cached=2, output=5, reasoning=1))

# Many clients show the first, and OpenAI itself streams the second, though the official client has no field for them.
BEYOND_THE_SDK = {"reasoning_content", "annotations"}


def encoder(**wishes: Json) -> ChatEncoder:
    request = decode({"model": "gpt-5.5", "messages": [{"role": "user", "content": "Hi"}], **wishes})
    return ChatEncoder(request, completion_id="chatcmpl-1", created=CREATED)


def encoded(made: ChatEncoder, events: Sequence[tuple[int, ev.TurnEvent]]) -> list[JsonObject]:
    """Return all chunks of choices whose events arrive in this order."""
    opening = made.opening(speaks=True)
    chunks = b"".join([made.frames(index, [event]) for index, event in events])
    return parsed(opening + chunks + (b"" if made.failure else made.closing()))


def fed(made: ChatEncoder, event: ev.TurnEvent) -> list[JsonObject]:
    """Return the chunks of an event in a stream that has begun."""
    made.opening()
    return parsed(made.frames(0, [event]))


def _choices(chunk: JsonObject) -> list[JsonObject]:
    choices = chunk["choices"]
    assert isinstance(choices, list)
    return [choice for choice in choices if isinstance(choice, dict)]


def one(*events: ev.TurnEvent) -> list[tuple[int, ev.TurnEvent]]:
    """Return the events of the only choice."""
    return [(0, event) for event in events]


def chunk(delta: JsonObject, *, finish_reason: str | None = None, index: int = 0) -> JsonObject:
    choice: JsonObject = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {**CHUNK, "choices": [choice]}


def answer(message: JsonObject) -> JsonObject:
    """Return a whole completion with this message."""
    blank: JsonObject = {"role": "assistant", "content": "", "refusal": None, "annotations": []}
    choice: JsonObject = {"index": 0, "message": {**blank, **message}, "logprobs": None, "finish_reason": "stop"}
    return {**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE}


TYPICAL = one(
    ev.ReasoningStarted("rs_1"),
    ev.SummaryDelta("rs_1", 0, "Hm."),
    ev.SummaryDelta("rs_1", 1, "So."),
    ev.ReasoningDone("rs_1", ("Hm.", "So."), (), "secret"),
    ev.MessageStarted("msg_1", "commentary"),
    ev.TextDelta("msg_1", "I look."),
    ev.MessageDone("msg_1", "commentary", "I look."),
    ev.MessageStarted("msg_2", "final_answer"),
    ev.TextDelta("msg_2", "hel"),
    ev.TextDelta("msg_2", "lo"),
    ev.MessageDone("msg_2", "final_answer", "hello"),
    ev.MessageStarted("msg_3", None),
    ev.TextDelta("msg_3", "Bye."),
    ev.MessageDone("msg_3", None, "Bye."),
    COMPLETED,
)


@pytest.mark.promise("streaming.chat.order")
def test_a_typical_turn_is_told_chunk_by_chunk() -> None:
    made = encoder()
    assert encoded(made, TYPICAL) == [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"reasoning_content": "Hm."}),
        chunk({"reasoning_content": "\n\nSo."}),
        chunk({"reasoning_content": "\n\nI look."}),
        chunk({"content": "hel"}),
        chunk({"content": "lo"}),
        chunk({"content": "\n\nBye."}),
        chunk({}, finish_reason="stop"),
    ]
    assert made.whole() == answer({"content": "hello\n\nBye.", "reasoning_content": "Hm.\n\nSo.\n\nI look."})


@pytest.mark.parametrize(
    ("wishes", "delta"),
    [
        (
            {"tools": [{"type": "function", "function": {"name": "now"}}]},
            {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "now", "arguments": ""}}]},
        ),
        ({"functions": [{"name": "now"}]}, {"function_call": {"name": "now", "arguments": ""}}),
        (
            {"tools": [{"type": "custom", "custom": {"name": "now"}}]},
            {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "now", "input": ""}}]},
        ),
    ],
    ids=["current", "legacy", "custom"],
)
def test_a_call_without_arguments_has_no_delta_for_them(wishes: JsonObject, delta: JsonObject) -> None:
    arguments = '{"input": ""}' if "custom" in str(wishes) else ""
    chunks = fed(encoder(**wishes), ev.FunctionCallDone("fc", "c", "now", arguments))
    assert [choice["delta"] for chunk in chunks for choice in _choices(chunk)] == [delta]


def test_the_usage_comes_last_and_only_if_asked_for() -> None:
    made = encoder(stream=True, stream_options={"include_usage": True})
    assert encoded(made, one(COMPLETED)) == [
        {**chunk({"role": "assistant", "content": "", "refusal": None}), "usage": None},
        {**chunk({}, finish_reason="stop"), "usage": None},
        {**CHUNK, "choices": [], "usage": USAGE},
    ]


@pytest.mark.promise("chat.finish-reason")
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (COMPLETED, "stop"),
        (ev.TurnIncomplete("max_output_tokens", ev.Usage()), "length"),
        (ev.TurnIncomplete("content_filter", ev.Usage()), "content_filter"),
    ],
)
def test_the_end_of_a_turn_is_a_reason_to_finish(end: ev.Terminal, reason: str) -> None:
    assert fed(encoder(), end) == [chunk({}, finish_reason=reason)]


def test_a_failed_turn_has_no_reason_to_finish_and_is_kept_for_the_error() -> None:
    made, failed = encoder(), ev.TurnFailed(errors.UpstreamFailed("It broke."), ev.Usage(input=3))
    assert fed(made, failed) == []
    assert (made.failure, made.usage) == (failed, ev.Usage(input=3))


def test_choices_keep_apart_and_their_usage_adds_up() -> None:
    made = encoder(n=2)
    events: list[tuple[int, ev.TurnEvent]] = [
        (1, ev.MessageStarted("msg_1", None)),
        (0, ev.MessageStarted("msg_1", None)),
        (1, ev.TextDelta("msg_1", "one")),
        (0, ev.TextDelta("msg_1", "zero")),
        (1, COMPLETED),
        (0, COMPLETED),
    ]
    assert encoded(made, events)[2:] == [
        chunk({"content": "one"}, index=1),
        chunk({"content": "zero"}, index=0),
        chunk({}, finish_reason="stop", index=1),
        chunk({}, finish_reason="stop", index=0),
    ]
    assert made.usage == COMPLETED.usage + COMPLETED.usage


def cited(item_id: str, text: str, *, phase: str | None = None) -> list[tuple[int, ev.TurnEvent]]:
    """Return a message that cites a page for the whole of its text."""
    citation: JsonObject = {"type": "url_citation", "start_index": 0, "end_index": len(text), "url": "https://a.b/"}
    return one(
        ev.MessageStarted(item_id, phase),
        ev.TextDelta(item_id, text),
        ev.MessageDone(item_id, phase, text, ({**citation, "title": text}, {"type": "file_path", "index": 0})),
    )


def citation(start: int, end: int, title: str) -> JsonObject:
    place: JsonObject = {"start_index": start, "end_index": end, "url": "https://a.b/", "title": title}
    return {"type": "url_citation", "url_citation": place}


@pytest.mark.promise("chat.citations")
def test_a_citation_points_at_its_place_in_the_whole_text() -> None:
    made = encoder()
    encoded(made, [*cited("msg_1", "Rain."), *cited("msg_2", "Snow."), (0, COMPLETED)])
    citations: list[Json] = [citation(0, 5, "Rain."), citation(7, 12, "Snow.")]
    assert made.whole() == answer({"content": "Rain.\n\nSnow.", "annotations": citations})


def test_a_citation_in_what_is_only_narrated_is_none_of_the_answer() -> None:
    made = encoder()
    encoded(made, [*cited("msg_1", "Rain?", phase="commentary"), *cited("msg_2", "Rain."), (0, COMPLETED)])
    citations: list[Json] = [citation(0, 5, "Rain.")]
    assert made.whole() == answer({"content": "Rain.", "reasoning_content": "Rain?", "annotations": citations})


def test_a_citation_reaches_a_client_that_streams() -> None:
    assert chunk({"annotations": [citation(0, 5, "Rain.")]}) in encoded(encoder(), cited("msg_1", "Rain."))


class Called(msgspec.Struct, forbid_unknown_fields=True):
    arguments: str
    name: str | None = None


class CallDelta(msgspec.Struct, forbid_unknown_fields=True):
    index: int
    function: Called
    id: str | None = None
    type: str | None = None


class Delta(msgspec.Struct, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: list[JsonObject] = []
    tool_calls: list[CallDelta] = []


class Choice(msgspec.Struct, forbid_unknown_fields=True):
    index: int
    delta: Delta
    logprobs: None
    finish_reason: str | None


class Heard(msgspec.Struct):
    """What a client has heard of one choice."""

    content: str = ""
    reasoning_content: str = ""
    finish_reason: str | None = None
    tool_calls: list[JsonObject] = []

    def take(self, call: CallDelta) -> None:
        """Take in a piece of a call: its id, type and name come first, and once."""
        if call.index == len(self.tool_calls):
            function: JsonObject = {"name": call.function.name, "arguments": ""}
            self.tool_calls.append({"id": call.id, "type": call.type, "function": function})
        else:
            assert (call.id, call.type, call.function.name) == (None, None, None)
        known = self.tool_calls[call.index]["function"]
        assert isinstance(known, dict)
        known["arguments"] = f"{known['arguments']}{call.function.arguments}"


def heard(chunks: list[JsonObject], choices: int) -> list[Heard]:
    """Rebuild the choices from the chunks alone, and insist on their order."""
    found = [Heard() for _ in range(choices)]
    for number, raw in enumerate(chunks):
        (choice,) = msgspec.convert(raw["choices"], list[Choice])
        delta, so_far = choice.delta, found[choice.index]
        assert so_far.finish_reason is None
        assert (delta.role == "assistant") is (number < choices)
        says = delta.role or delta.content or delta.reasoning_content or delta.annotations or delta.tool_calls
        assert says or choice.finish_reason
        for call in delta.tool_calls:
            so_far.take(call)
        so_far.content += delta.content or ""
        so_far.reasoning_content += delta.reasoning_content or ""
        so_far.finish_reason = choice.finish_reason
    return found


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[int, list[tuple[int, ev.TurnEvent]]]:
    """Some choices, whose events arrive in any order."""
    streams = draw(st.lists(event_streams(), min_size=1, max_size=3))
    order = draw(st.permutations([index for index, stream in enumerate(streams) for _ in stream]))
    waiting = [iter(stream) for stream in streams]
    return len(streams), [(index, next(waiting[index])) for index in order]


@pytest.mark.promise("chat.fold")
@given(interleaved(), st.booleans())
def test_the_stream_alone_rebuilds_the_completion(
    turns: tuple[int, list[tuple[int, ev.TurnEvent]]], include_usage: bool
) -> None:
    choices, events = turns
    made = encoder(n=choices, stream=True, stream_options={"include_usage": include_usage})
    chunks = encoded(made, events)
    told = made.whole()["choices"]
    if include_usage and made.failure is None:
        assert chunks.pop() == {**CHUNK, "choices": [], "usage": made.whole()["usage"]}
    if include_usage:
        assert all(chunk.pop("usage", "none") is None for chunk in chunks)
    assert all(chunk == {**CHUNK, "choices": chunk["choices"]} for chunk in chunks)
    assert [
        {
            "index": index,
            "finish_reason": choice.finish_reason,
            "content": choice.content,
            "reasoning_content": choice.reasoning_content,
            "tool_calls": choice.tool_calls,
        }
        for index, choice in enumerate(heard(chunks, choices))
    ] == [whole_choice(choice) for choice in (told if isinstance(told, list) else [])]


def whole_choice(choice: Json) -> JsonObject:
    """Return what the completion tells of a choice, as far as the stream tells it too."""
    assert isinstance(choice, dict)
    message = choice["message"]
    assert isinstance(message, dict)
    return {
        "index": choice["index"],
        "finish_reason": choice["finish_reason"],
        "content": message["content"] or "",
        "reasoning_content": message.get("reasoning_content", ""),
        "tool_calls": message.get("tool_calls", []),
    }


@pytest.mark.promise("chat.several-messages")
@given(event_streams())
def test_the_texts_are_the_models_with_blank_lines_between_them(turn: list[ev.TurnEvent]) -> None:
    made = encoder()
    encoded(made, one(*turn))
    sides: dict[str, dict[object, str]] = {"content": {}, "reasoning_content": {}}
    narrated = {event.item_id for event in turn if isinstance(event, ev.MessageStarted) and event.phase == "commentary"}
    for event in turn:
        match event:
            case ev.TextDelta(item_id, text):
                side = sides["reasoning_content" if item_id in narrated else "content"]
                side[item_id] = side.get(item_id, "") + text
            case ev.SummaryDelta(item_id, index, text) | ev.ReasoningDelta(item_id, index, text):
                place = (item_id, type(event), index)
                sides["reasoning_content"][place] = sides["reasoning_content"].get(place, "") + text
            case _:
                pass
    choices = made.whole()["choices"]
    (choice,) = choices if isinstance(choices, list) else []
    whole = whole_choice(choice)
    assert {side: whole[side] for side in sides} == {side: "\n\n".join(parts.values()) for side, parts in sides.items()}


@pytest.mark.promise("chat.completion")
@given(event_streams())
def test_the_official_client_knows_every_field_of_every_chunk(turn: list[ev.TurnEvent]) -> None:
    made = encoder(stream=True, stream_options={"include_usage": True})
    for told in encoded(made, one(*turn)):
        assert unknown_fields(ChatCompletionChunk, told) <= BEYOND_THE_SDK
    if made.failure is None:
        assert unknown_fields(ChatCompletion, made.whole()) <= BEYOND_THE_SDK


@pytest.mark.parametrize(
    ("event", "content"),
    [(ev.TextDelta("msg_1", "Hi"), ""), (ev.FunctionCallDone("fc", "c", "now", ""), None)],
    ids=["text", "a call"],
)
def test_the_first_output_is_preceded_by_the_role(event: ev.TurnEvent, content: str | None) -> None:
    made = encoder(tools=[{"type": "function", "function": {"name": "now"}}])
    assert made.frames(0, [ev.TurnServed("fresh", "exact"), ev.MessageStarted("msg_1", None)]) == b""
    first, *others = parsed(made.frames(0, [event]) + made.frames(0, [event]))
    assert first == chunk({"role": "assistant", "content": content, "refusal": None})
    assert first not in others


def test_the_first_choice_that_fails_is_the_failure_of_all() -> None:
    made = encoder(n=2)
    first, second = (ev.TurnFailed(errors.UpstreamFailed(text)) for text in ("One.", "Two."))
    made.frames(1, [first])
    made.frames(0, [second])
    assert made.failure == first


@pytest.mark.promise("tools.custom")
def test_a_call_of_a_custom_tool_is_one_in_the_stream_and_in_the_whole() -> None:
    made = encoder(tools=[{"type": "custom", "custom": {"name": "sql"}}, {"type": "function", "name": "now"}])
    first = fed(made, ev.FunctionCallDone("fc_1", "c1", "sql", '{"input": "SELECT \\"1\\""}'))
    second = fed(made, ev.FunctionCallDone("fc_2", "c2", "now", '{"input": "x"}'))
    deltas = [choice["delta"] for chunk in [*first, *second] for choice in _choices(chunk)]
    assert deltas == [
        {"tool_calls": [{"index": 0, "id": "c1", "type": "custom", "custom": {"name": "sql", "input": ""}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": 'SELECT "1"'}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "now", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"input": "x"}'}}]},
    ]
    (choice,) = _choices(made.whole())
    assert isinstance(choice["message"], dict)
    assert choice["message"]["tool_calls"] == [
        {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": 'SELECT "1"'}},
        {"id": "c2", "type": "function", "function": {"name": "now", "arguments": '{"input": "x"}'}},
    ]


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [({}, "tool_calls"), ({"functions": [{"name": "now"}]}, "function_call")],
    ids=["tools", "legacy functions"],
)
def test_an_answer_of_calls_alone_has_no_text_and_ends_with_their_reason(wishes: JsonObject, reason: str) -> None:
    made = encoder(**wishes)
    made.frames(0, [ev.FunctionCallDone("fc", "c", "now", "{}")])
    made.frames(0, [ev.CallsAwaited(ev.Usage(), ("fc",))])
    choices = made.whole()["choices"]
    assert isinstance(choices, list)
    (choice,) = choices
    assert isinstance(choice, dict)
    assert isinstance(choice["message"], dict)
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, reason)


def test_an_answer_without_a_word_has_an_empty_text() -> None:
    made = encoder()
    made.frames(0, [COMPLETED])
    (choice,) = _choices(made.whole())
    assert choice["message"] == {"role": "assistant", "content": "", "refusal": None, "annotations": []}
