"""The gateway makes sense of any turn that the protocol allows."""

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.shared.event_streams import PHASES, check_stream, texts
from tests.api.shared.told import Told, told
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.decode import HOST_ACTIONS, TurnDecoder
from turnbridge.codex.protocol.errors import CONTEXT_WORDS
from turnbridge.codex.protocol.retries import Retries
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import Json, JsonObject

THREAD, TURN = "thread-1", "turn-1"
GONE = errors.BackendUnavailable("Codex ended.")
COMPLETED = schema.TurnCompleted(THREAD, schema.TurnRef(TURN, "completed"))
RETRIED = schema.ErrorReported(THREAD, TURN, schema.TurnError("Reconnecting... 1/5"), will_retry=True)
ENDS = (
    schema.TurnRef(TURN, "completed"),
    schema.TurnRef(TURN, "interrupted"),
    schema.TurnRef(TURN, "failed"),
    schema.TurnRef(TURN, "failed", schema.TurnError("It broke.", msgspec.Raw(b'"other"'))),
    schema.TurnRef(TURN, "failed", schema.TurnError("Incomplete response returned, reason: max_output_tokens")),
)


def begun(kind: str, item_id: str, phase: str | None = None) -> schema.Notification:
    return schema.ItemStarted(THREAD, TURN, schema.ThreadItem(kind, item_id, phase))


def whole(item: JsonObject, *, turn_id: str = TURN) -> schema.Notification:
    return schema.RawItemCompleted(THREAD, turn_id, msgspec.Raw(msgspec.json.encode(item)))


def raw_message(item_id: str | None, text: str, *, role: str = "assistant", phase: str | None = None) -> JsonObject:
    content: list[Json] = [{"type": "output_text", "text": text}]
    return {"type": "message", "id": item_id, "role": role, "phase": phase, "content": content}


def raw_thought(item_id: str, summary: list[str], content: list[str] | None) -> JsonObject:
    return {
        "type": "reasoning",
        "id": item_id,
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        "content": None if content is None else [{"type": "reasoning_text", "text": text} for text in content],
        "encrypted_content": "secret",
    }


def decoded(*notes: schema.Notification, decoder: TurnDecoder | None = None) -> list[ev.TurnEvent]:
    reader = decoder or TurnDecoder()
    reader.turn_id = TURN
    return [event for note in notes for event in reader.read([note])]


@dataclass
class Turn:
    """Notifications of a made-up turn, what its messages say, and whether it goes well."""

    notes: list[schema.Notification] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    calls: int = 0
    well: bool = True


@st.composite
def message_notes(draw: st.DrawFn, item_id: str) -> tuple[list[schema.Notification], str]:
    """A message of which Codex streams everything, a part or nothing."""
    pieces = draw(st.lists(texts(), max_size=4))
    phase = draw(st.sampled_from(PHASES))
    streamed = pieces[: draw(st.integers(0, len(pieces)))]
    deltas = [schema.AgentMessageDelta(THREAD, TURN, item_id, piece) for piece in streamed]
    text = "".join(pieces)
    return [begun("agentMessage", item_id, phase), *deltas, whole(raw_message(item_id, text, phase=phase))], text


@st.composite
def thought_notes(draw: st.DrawFn, item_id: str) -> tuple[list[schema.Notification], str]:
    """A thought of which Codex streams everything, the first parts or nothing."""
    summary, content = draw(st.lists(texts(), max_size=3)), draw(st.none() | st.lists(texts(), max_size=2))
    deltas: list[schema.Notification] = [
        schema.SummaryTextDelta(THREAD, TURN, item_id, index, text) for index, text in enumerate(summary)
    ]
    deltas += [
        schema.ReasoningTextDelta(THREAD, TURN, item_id, index, text) for index, text in enumerate(content or [])
    ]
    streamed = deltas[: draw(st.integers(0, len(deltas)))]
    return [begun("reasoning", item_id), *streamed, whole(raw_thought(item_id, summary, content))], ""


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """A turn of several model calls, each of which may break and be tried again, up to its last notification."""
    turn = Turn(notes=[whole(raw_message(None, "Hi", role="user"), turn_id="auto-compact-0")])
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from([message_notes, thought_notes]))
        notes, text = draw(kind(f"item_{number}"))
        if draw(st.booleans()):
            attempt = notes[: draw(st.integers(0, len(notes) - 1))]
            turn.notes += [*attempt, RETRIED]
            turn.well &= not any(isinstance(note, schema.AgentMessageDelta) for note in attempt)
        else:
            turn.notes += [*notes, schema.RawResponseCompleted(THREAD, TURN, schema.TokenUsage(3, 2, 1, 1))]
            turn.said += [text] if kind is message_notes else []
            turn.calls += 1
        turn.notes.append(whole(raw_message(None, "<turn_aborted>", role="user")))
    end = draw(st.sampled_from(ENDS))
    turn.notes.append(schema.TurnCompleted(THREAD, end))
    turn.well &= end.status == "completed"
    return turn


@pytest.mark.promise("streaming.responses.one-terminal-event", "streaming.retried-by-codex")
@given(turns())
def test_any_turn_gives_a_stream_that_keeps_its_promises(turn: Turn) -> None:
    decoder = TurnDecoder()
    events = decoded(*turn.notes, decoder=decoder)
    check_stream(events)
    if turn.well:
        assert [event.text for event in events if isinstance(event, ev.MessageDone)] == turn.said
        usage = ev.Usage(3 * turn.calls, 2 * turn.calls, turn.calls, turn.calls)
        assert events[-1] == ev.TurnCompleted(usage)
    else:
        assert not isinstance(events[-1], ev.TurnCompleted)
    assert decoder.ended
    assert decoded(*turn.notes, decoder=decoder) == decoder.close(GONE) == []


@given(turns())
def test_notifications_mean_the_same_whether_they_are_read_together_or_one_by_one(turn: Turn) -> None:
    decoder = TurnDecoder()
    decoder.turn_id = TURN
    together, alone = decoder.read(turn.notes), decoded(*turn.notes)
    assert together[:-1] == alone[:-1]
    assert repr(together[-1]) == repr(alone[-1])


@pytest.mark.promise("streaming.responses.one-terminal-event")
@given(turns(), st.data())
def test_a_turn_that_codex_leaves_unfinished_ends_once_it_is_closed(turn: Turn, data: st.DataObject) -> None:
    decoder = TurnDecoder()
    notes = turn.notes[: data.draw(st.integers(0, len(turn.notes) - 1))]
    check_stream([*decoded(*notes, decoder=decoder), *decoder.close(GONE)])


@pytest.mark.parametrize(
    ("arguments", "passed_on"),
    [
        ("{}", True),
        ("[" * 127 + "]" * 127, True),
        ("{", False),
        ("[" * 128 + "]" * 128, False),
        ("[" * 100_000 + "]" * 100_000, False),
    ],
    ids=["an object", "nested", "not JSON", "nested too deep for Codex", "nested too deep for the gateway"],
)
def test_calls_that_codex_answers_itself_are_not_passed_on(arguments: str, passed_on: bool) -> None:
    decoder = TurnDecoder(ToolNames(["f"]))
    call: JsonObject = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": arguments}
    decoded(whole(call), decoder=decoder)
    assert decoder.holds_calls is passed_on


@pytest.mark.parametrize(
    ("namespace", "passed_on"), [("functions", True), ("", True), (None, True), ("crm", False)], ids=str
)
def test_a_call_in_a_namespace_that_nobody_declared_is_not_passed_on(namespace: str | None, passed_on: bool) -> None:
    call: JsonObject = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
    decoder = TurnDecoder(ToolNames(["f"]))
    decoded(whole({**call, "namespace": namespace}), decoder=decoder)
    calls = [event for event in decoder.release_calls() if isinstance(event, ev.FunctionCallDone)]
    assert calls == ([ev.FunctionCallDone("fc", "c", "f", "{}", namespace)] if passed_on else [])


@pytest.mark.parametrize(
    ("note", "heard"),
    [
        (begun("agentMessage", "msg_1"), True),
        (begun("reasoning", "rs_1"), True),
        (begun("webSearch", "ws_1"), True),
        (begun("userMessage", "msg_0"), False),
        (begun("dynamicToolCall", "call_1"), False),
        (schema.AgentMessageDelta(THREAD, TURN, "msg_1", "Hi"), True),
        (schema.SummaryTextDelta(THREAD, TURN, "rs_1", 0, "Hm"), True),
        (schema.ReasoningTextDelta(THREAD, TURN, "rs_1", 0, "Hm"), True),
        (schema.RawResponseCompleted(THREAD, TURN), True),
        (whole(raw_message(None, "Hi", role="user")), False),
        (schema.ErrorReported(THREAD, TURN, schema.TurnError("Reconnecting... 1/5"), will_retry=True), False),
    ],
)
def test_only_the_model_is_heard_and_a_resumed_turn_waits_for_it_again(note: schema.Notification, heard: bool) -> None:
    decoder = TurnDecoder()
    assert not decoder.heard
    decoded(note, decoder=decoder)
    assert decoder.heard is heard
    decoder.resume()
    assert not decoder.heard


def test_every_count_of_a_model_call_reaches_the_usage_under_its_name() -> None:
    used = schema.TokenUsage(
        input_tokens=50,
        cached_input_tokens=40,
        cache_write_input_tokens=30,
        output_tokens=20,
        reasoning_output_tokens=10,
    )
    counted = ev.Usage(input=50, cached=40, cache_written=30, output=20, reasoning=10)
    assert decoded(schema.RawResponseCompleted(THREAD, TURN, used), COMPLETED) == [ev.TurnCompleted(counted)]


def test_notifications_of_other_turns_are_not_heard() -> None:
    other = schema.AgentMessageDelta(THREAD, "turn-0", "msg_1", "Not mine.")
    ended = schema.TurnCompleted(THREAD, schema.TurnRef("turn-0", "completed"))
    assert decoded(other, ended) == []


def test_a_message_that_codex_announces_under_another_id_stays_one_message() -> None:
    delta = schema.AgentMessageDelta(THREAD, TURN, "made-up", "Hi")
    assert decoded(begun("agentMessage", "made-up"), delta, whole(raw_message("msg_1", "Hi")), COMPLETED) == [
        ev.MessageStarted("made-up", None),
        ev.TextDelta("made-up", "Hi"),
        ev.MessageDone("made-up", None, "Hi"),
        ev.TurnCompleted(ev.Usage()),
    ]


def test_a_phase_that_is_known_only_at_the_end_still_counts() -> None:
    said = whole(raw_message("msg_1", "Hi", phase="commentary"))
    assert decoded(begun("agentMessage", "msg_1"), said, COMPLETED) == [
        ev.MessageStarted("msg_1", "commentary"),
        ev.TextDelta("msg_1", "Hi"),
        ev.MessageDone("msg_1", "commentary", "Hi"),
        ev.TurnCompleted(ev.Usage()),
    ]


def test_a_thought_that_is_begun_again_under_its_old_id_keeps_the_stream_in_order() -> None:
    begin = [begun("reasoning", "rs_1"), schema.SummaryTextDelta(THREAD, TURN, "rs_1", 0, "Hm.")]
    check_stream(decoded(*begin, RETRIED, *begin, whole(raw_thought("rs_1", ["Hm."], None)), COMPLETED))


@pytest.mark.promise("safety.stopped")
@pytest.mark.parametrize("kind", sorted(HOST_ACTIONS))
def test_a_turn_in_which_codex_acts_on_the_host_is_stopped(kind: str) -> None:
    (failed,) = decoded(begun(kind, "item_1"), COMPLETED)
    assert isinstance(failed, ev.TurnFailed)
    assert told(failed.error) == Told(
        errors.CodexActed,
        f"Codex acted on the gateway's host by itself ({kind}); the turn was stopped. "
        "Use the Codex that comes with Turnbridge, and report this.",
        code="codex_acted",
    )


@pytest.mark.promise("errors.compaction")
def test_a_history_that_codex_shortens_by_itself_is_too_long() -> None:
    (failed,) = decoded(begun("contextCompaction", "item_1"), COMPLETED)
    assert isinstance(failed, ev.TurnFailed)
    assert told(failed.error) == Told(
        errors.ContextTooLong,
        f'{CONTEXT_WORDS} Shorten it, or send `truncation: "auto"`.',
        code="context_length_exceeded",
        param="input",
    )


@pytest.mark.promise("errors.compaction")
def test_a_client_may_allow_codex_to_shorten_the_history() -> None:
    decoder = TurnDecoder(allow_truncation=True)
    assert decoded(begun("contextCompaction", "item_1"), COMPLETED, decoder=decoder) == [ev.TurnCompleted(ev.Usage())]


def test_a_provider_that_goes_on_failing_fails_the_turn_and_one_that_answers_does_not() -> None:
    # When the decoder looks: at its start, and then at each note and question.
    times = iter((0.0, 1.0, 1.0, 9.0, 9.0, 10.0, 20.0, 20.0, 30.0))
    decoder = TurnDecoder(retries=Retries(10, lambda: next(times)))
    decoder.turn_id = TURN
    for note in (RETRIED, RETRIED, begun("reasoning", "rs_1"), RETRIED):
        assert not any(isinstance(event, ev.TurnFailed) for event in decoder.read([note]))
        assert decoder.retrying == (note is RETRIED)
    (failed,) = decoder.read([RETRIED])
    assert isinstance(failed, ev.TurnFailed)


def test_the_time_before_the_outputs_of_a_call_does_not_count_as_failing() -> None:
    times = iter((0.0, 100.0, 101.0))
    decoder = TurnDecoder(retries=Retries(10, lambda: next(times)))
    decoder.turn_id = TURN
    decoder.resume()
    unreachable = schema.TurnError("Reconnecting...", additional_details="Connection failed: no")
    assert decoder.read([schema.ErrorReported(THREAD, TURN, unreachable, True)]) == []


def test_a_part_of_a_thought_that_was_not_streamed_is_told_and_stands_in_its_place() -> None:
    streamed = schema.SummaryTextDelta(THREAD, TURN, "rs", 1, "two")
    *deltas, done = decoded(begun("reasoning", "rs"), streamed, whole(raw_thought("rs", ["one", "two"], None)))[1:]
    assert deltas == [ev.SummaryDelta("rs", 1, "two"), ev.SummaryDelta("rs", 0, "one")]
    assert done == ev.ReasoningDone("rs", ("one", "two"), (), "secret")


def test_an_error_that_is_not_retried_is_told_by_the_end_of_the_turn() -> None:
    failed = schema.TurnError("It is too long.", msgspec.Raw(b'"contextWindowExceeded"'))
    said = schema.AgentMessageDelta(THREAD, TURN, "m", "Hello")
    events = decoded(
        begun("agentMessage", "m"),
        said,
        schema.ErrorReported(THREAD, TURN, failed, will_retry=False),
        schema.TurnCompleted(THREAD, schema.TurnRef(TURN, "failed", failed)),
    )
    assert isinstance(events[-1], ev.TurnFailed)
    assert isinstance(events[-1].error, errors.ContextTooLong)


def test_a_model_that_was_heard_stays_heard_when_codex_starts_an_item_of_its_own() -> None:
    reader = TurnDecoder()
    decoded(begun("agentMessage", "m"), begun("userMessage", "u"), decoder=reader)
    assert reader.heard
