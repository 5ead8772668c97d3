"""Where an answer ends by the client's wish, however the model's text is cut into pieces."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.scripted_backend import USAGE, WordTokenizer
from turnbridge import tokens
from turnbridge.engine.ports import Tokenizer
from turnbridge.engine.turn_rules import Gated, OutputLimit
from turnbridge.tokens import OpenAITokenizer
from turnbridge.turn.errors import UpstreamFailed
from turnbridge.turn.events import (
    MessageDone,
    MessageStarted,
    ReasoningDelta,
    ReasoningDone,
    ReasoningStarted,
    SummaryDelta,
    Terminal,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnIncomplete,
)
from turnbridge.turn.items import NARRATION

WORDS = WordTokenizer()
END = TurnCompleted(USAGE)

pieces_of_text = st.lists(st.text("ab c", min_size=1, max_size=5), max_size=6)
stop_sequences = st.lists(st.text("ab c", min_size=1, max_size=4), min_size=1, max_size=4)


def message(pieces: list[str], *, item_id: str = "m", phase: str | None = None) -> list[TurnEvent]:
    deltas = [TextDelta(item_id, piece) for piece in pieces]
    return [MessageStarted(item_id, phase), *deltas, MessageDone(item_id, phase, "".join(pieces))]


def passed(limit: OutputLimit, events: list[TurnEvent]) -> Gated:
    """Feed the events one by one; what comes after the cut is never read."""
    through: list[TurnEvent] = []
    for event in events:
        gated = limit.feed([event])
        through += gated.events
        if gated.cut is not None:
            return Gated(through, gated.cut)
    return Gated(through)


def said(gated: Gated) -> str:
    return "".join(event.text for event in gated.events if isinstance(event, TextDelta))


def before_stop(text: str, stops: list[str]) -> str | None:
    """Return what a model would have said that ends as soon as it has written one of the sequences."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text.endswith(stop, 0, end)]
        if found:
            return text[: end - max(map(len, found))]
    return None


@pytest.mark.promise("parameters.stop")
@given(pieces_of_text, stop_sequences)
@example(["abcd"], ["abcd", "bc"])
@example(["abc", "d"], ["abcd", "bc"])
@example(["a", "a", "b"], ["ab", "aab"])
def test_what_passes_is_the_text_before_the_stop_sequence_that_is_complete_first(
    pieces: list[str], stops: list[str]
) -> None:
    text = "".join(pieces)
    gated = passed(OutputLimit(tuple(stops), None, WORDS), [*message(pieces), END])
    expected = before_stop(text, stops)
    if expected is None:
        assert (said(gated), gated.cut) == (text, None)
        assert gated.events[-2:] == [MessageDone("m", None, text), END]
    else:
        assert (said(gated), gated.cut) == (expected, "stop")
        assert not any(isinstance(event, MessageDone | TurnCompleted) for event in gated.events)


@pytest.mark.promise("parameters.max-tokens.counted")
@given(pieces_of_text, st.integers(0, 9))
def test_what_passes_is_the_longest_text_within_the_token_limit(pieces: list[str], limit: int) -> None:
    text = "".join(pieces)
    gated = passed(OutputLimit((), limit, WORDS), [*message(pieces), END])
    assert (said(gated), gated.cut) == (WORDS.cut(text, limit), "length" if WORDS.count(text) > limit else None)


@given(pieces_of_text, stop_sequences, st.integers(0, 9))
def test_of_two_limits_the_nearer_one_ends_the_answer(pieces: list[str], stops: list[str], limit: int) -> None:
    text = "".join(pieces)
    gated = passed(OutputLimit(tuple(stops), limit, WORDS), [*message(pieces), END])
    stopped = before_stop(text, stops)
    wanted = text if stopped is None else stopped
    expected = "length" if WORDS.count(wanted) > limit else "stop" if stopped is not None else None
    assert (said(gated), gated.cut) == (WORDS.cut(wanted, limit), expected)


@given(st.lists(pieces_of_text, max_size=4), st.integers(0, 12))
def test_a_token_limit_holds_for_all_messages_of_an_answer_together(messages: list[list[str]], limit: int) -> None:
    events = [event for n, pieces in enumerate(messages) for event in message(pieces, item_id=str(n))]
    gated = passed(OutputLimit((), limit, WORDS), [*events, END])
    left, expected = limit, ""
    for pieces in messages:
        expected += WORDS.cut("".join(pieces), max(left, 0))
        left -= WORDS.count("".join(pieces))
    assert (said(gated), gated.cut) == (expected, "length" if left < 0 else None)


@given(st.data())
def test_events_in_one_batch_pass_as_they_do_one_by_one(data: st.DataObject) -> None:
    pieces, stops = data.draw(pieces_of_text), data.draw(stop_sequences)
    limit = data.draw(st.none() | st.integers(0, 9))
    events: list[TurnEvent] = [*message(pieces), END]
    at_once = OutputLimit(tuple(stops), limit, WORDS).feed(events)
    assert at_once == passed(OutputLimit(tuple(stops), limit, WORDS), events)


@pytest.mark.promise("parameters.max-tokens.counted")
@settings(deadline=None)  # The vocabulary is loaded at the first use.
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), max_size=12), st.data())
def test_with_the_models_own_tokens_nothing_beyond_the_limit_passes(pieces: list[str], data: st.DataObject) -> None:
    tokenizer: Tokenizer = OpenAITokenizer()
    text = "".join(pieces)
    limit = data.draw(st.integers(0, tokenizer.count(text) + 1))
    gated = passed(OutputLimit((), limit, tokenizer), [*message(pieces), END])
    assert text.startswith(said(gated))
    assert tokenizer.count(said(gated)) <= limit
    assert gated.cut == "length" if tokenizer.count(text) > limit else said(gated) == text


class Measured(OpenAITokenizer):
    """Notes how much text it was asked to count."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0

    def count(self, text: str) -> int:
        self.characters += len(text)
        return super().count(text)


@pytest.mark.promise("parameters.max-tokens.bounded")
@pytest.mark.parametrize("word", ["word ", "a", " ", "漢", "😀"])
@pytest.mark.parametrize("limit", [20_000, 10_000_000])
def test_the_work_of_a_token_limit_grows_with_the_text_and_not_with_its_square(word: str, limit: int) -> None:
    tokenizer = Measured()
    pieces = [word] * 100_000
    gated = passed(OutputLimit((), limit, tokenizer), message(pieces))
    assert tokenizer.characters < 3 * len("".join(pieces)) + 1000 * 1024
    assert len(tokens._encoding().encode_ordinary(said(gated))) <= limit
    assert (gated.cut is None) == (said(gated) == "".join(pieces))


def test_a_limit_that_a_short_answer_cannot_reach_is_not_counted() -> None:
    tokenizer = Measured()
    passed(OutputLimit((), 5_000, tokenizer), message(["word "] * 900))
    assert tokenizer.characters == 0


def test_a_stop_sequence_in_narration_stops_nothing() -> None:
    events: list[TurnEvent] = [*message(["a STOP"], phase=NARRATION), *message(["b STOP"], item_id="n")]
    gated = OutputLimit(("STOP",), None, WORDS).feed(events)
    assert gated == Gated(
        [*message(["a STOP"], phase=NARRATION), MessageStarted("n", None), TextDelta("n", "b ")], "stop"
    )


def test_a_stop_sequence_does_not_reach_across_messages() -> None:
    events: list[TurnEvent] = [*message(["a ST"]), *message(["OP b"], item_id="n")]
    gated = passed(OutputLimit(("STOP",), None, WORDS), events)
    assert (gated.cut, said(gated)) == (None, "a STOP b")
    assert [event for event in gated.events if isinstance(event, MessageDone)] == [events[2], events[5]]


@pytest.mark.parametrize("ending", [TurnFailed(UpstreamFailed("gone")), TurnIncomplete("content_filter", USAGE)])
def test_text_that_might_have_become_a_stop_sequence_is_not_lost_when_the_turn_breaks_off(ending: Terminal) -> None:
    events: list[TurnEvent] = [MessageStarted("m", None), TextDelta("m", "half ST"), ending]
    gated = passed(OutputLimit(("STOP",), None, WORDS), events)
    assert (said(gated), gated.events[-1], gated.cut) == ("half ST", ending, None)


def test_thoughts_pass_untouched() -> None:
    thoughts: list[TurnEvent] = [
        ReasoningStarted("r"),
        SummaryDelta("r", 0, "STOP and think"),
        ReasoningDelta("r", 0, "STOP at once"),
        ReasoningDone("r", ("STOP and think",), ("STOP at once",), None),
    ]
    assert OutputLimit(("STOP",), 1, WORDS).feed(thoughts) == Gated(thoughts)
