"""Texts that came together are written together; what a client reads is the same as if each had come alone."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.api.responses.test_encode import encoder as response_encoder
from tests.api.shared.event_streams import event_streams
from turnbridge.api.chat.decode import decode
from turnbridge.api.chat.encode import ChatEncoder
from turnbridge.api.shared import sse
from turnbridge.turn import events as ev


def chat_encoder() -> ChatEncoder:
    request = decode({"model": "gpt-5.5", "messages": [{"role": "user", "content": "Hi"}]})
    return ChatEncoder(request, completion_id="chatcmpl-1", created=1)


@st.composite
def batches(draw: st.DrawFn) -> list[list[ev.TurnEvent]]:
    """Any turn, cut into batches anywhere."""
    events = draw(event_streams())
    cuts = draw(st.sets(st.integers(0, len(events))))
    return [events[start:end] for start, end in pairwise(sorted({0, *cuts, len(events)}))]


@given(batches())
def test_a_chat_reads_the_same_however_its_events_come(turn: list[list[ev.TurnEvent]]) -> None:
    plain, encoder = chat_encoder(), chat_encoder()
    told = b"".join(plain.frames(0, [event]) for batch in turn for event in batch)
    assert b"".join(encoder.frames(0, batch) for batch in turn) == told
    assert encoder.whole() == plain.whole()


@given(batches())
def test_a_response_reads_the_same_however_its_events_come(turn: list[list[ev.TurnEvent]]) -> None:
    plain, encoder = response_encoder(), response_encoder()
    told = b"".join(plain.frames(0, [event]) for batch in turn for event in batch)
    assert b"".join(encoder.frames(0, batch) for batch in turn) == told
    assert (encoder.closing(), encoder.whole()) == (plain.closing(), plain.whole())


def test_a_run_ends_where_its_message_does() -> None:
    started = ev.MessageStarted("b", None)
    deltas = [ev.TextDelta(item_id, text) for item_id, text in ("a1", "a2", "b1", "b2", "b3")]
    told: list[ev.TurnEvent] = [*deltas[:2], started, *deltas[2:]]
    assert list(sse.in_runs(told)) == [sse.TextRun("a", ["1", "2"]), started, sse.TextRun("b", ["1", "2", "3"])]
    assert list(sse.in_runs(deltas)) == [sse.TextRun("a", ["1", "2"]), sse.TextRun("b", ["1", "2", "3"])]


def test_text_after_another_event_is_not_told_before_it() -> None:
    between = ev.SummaryDelta("r", 0, "Hm.")
    runs = sse.in_runs([ev.TextDelta("m", "a"), ev.TextDelta("m", "b"), between, ev.TextDelta("m", "c")])
    assert runs == [sse.TextRun("m", ["a", "b"]), between, sse.TextRun("m", ["c"])]
