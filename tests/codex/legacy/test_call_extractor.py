"""Calls that the model writes are calls to the engine; all else that it writes is its message."""

import itertools

import pytest

from turnbridge.codex.legacy.calls import CallExtractor
from turnbridge.codex.legacy.flat_text import example_call
from turnbridge.turn import events as ev
from turnbridge.turn.errors import UpstreamFailed

USAGE = ev.Usage(input=1)
CALL = example_call("f", {"a": 1})
TOLD_CALL = ev.FunctionCallDone("fc_1", "1", "f", '{"a":1}')


def reader() -> CallExtractor:
    ids = itertools.count(1)
    return CallExtractor(["f"], lambda: str(next(ids)))


def message(text: str, size: int = 1000) -> list[ev.TurnEvent]:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    deltas = [ev.TextDelta("m", piece) for piece in pieces]
    return [ev.MessageStarted("m", None), *deltas, ev.MessageDone("m", None, text)]


def told(events: list[ev.TurnEvent]) -> tuple[str | None, str, list[ev.TurnEvent]]:
    """Return the whole message, what was streamed of it, and everything else."""
    whole = next((event.text for event in events if isinstance(event, ev.MessageDone)), None)
    streamed = "".join(event.text for event in events if isinstance(event, ev.TextDelta))
    rest: list[ev.TurnEvent] = [
        e for e in events if not isinstance(e, ev.MessageStarted | ev.TextDelta | ev.MessageDone)
    ]
    return whole, streamed, rest


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        ("Hello. ", "Hello. ", []),
        (CALL, None, [TOLD_CALL]),
        (f"Hello.\n\n{CALL}\n", "Hello.", [TOLD_CALL]),
        (f"{CALL}\nDone.", "Done.", [TOLD_CALL]),
        (f"See.\n{CALL}\nDone.", "See.\nDone.", [TOLD_CALL]),
        ('<tool_call>{"name":"other"}</tool_call>', '<tool_call>{"name":"other"}</tool_call>', []),
        ("a <tool_call", "a <tool_call", []),
        ("", "", []),
        (" \n", " \n", []),
    ],
)
def test_a_message_and_its_calls_come_apart(text: str, said: str | None, calls: list[ev.TurnEvent], size: int) -> None:
    events = reader().read([*message(text, size), ev.TurnCompleted(USAGE)])
    ending = ev.CallsAwaited(USAGE) if calls else ev.TurnCompleted(USAGE)
    assert told(events) == (said, said or "", [*calls, ending])
    started = [event for event in events if isinstance(event, ev.MessageStarted)]
    assert started == ([] if said is None else [ev.MessageStarted("m", None)])


def test_a_turn_that_fails_gives_back_what_was_held_and_makes_no_call() -> None:
    failed = ev.TurnFailed(UpstreamFailed("no"))
    begun: list[ev.TurnEvent] = [ev.MessageStarted("m", None), ev.TextDelta("m", f"See: {CALL[:25]}")]
    assert reader().read([*begun, failed]) == [
        ev.MessageStarted("m", None),
        ev.TextDelta("m", "See:"),
        ev.TextDelta("m", f" {CALL[:25]}"),
        failed,
    ]


def test_what_is_no_message_passes() -> None:
    events: list[ev.TurnEvent] = [
        ev.ReasoningStarted("r"),
        ev.SummaryDelta("r", 0, CALL),
        ev.ReasoningDone("r", (CALL,), (), None),
    ]
    assert reader().read(events) == events


@pytest.mark.parametrize(
    "ending",
    [ev.TurnIncomplete("max_output_tokens", USAGE), ev.TurnFailed(UpstreamFailed("no"))],
    ids=["cut", "failed"],
)
@pytest.mark.parametrize("done", [True, False], ids=["whole message", "half a message"])
def test_a_call_of_a_turn_that_ends_too_early_stays_text(ending: ev.Terminal, done: bool) -> None:
    said = message(f"See. {CALL} Then")
    block: list[ev.TurnEvent] = [
        ev.MessageStarted("msg_1", None),
        ev.TextDelta("msg_1", CALL),
        ev.MessageDone("msg_1", None, CALL),
    ]
    assert reader().read([*(said if done else said[:-1]), ending]) == [
        ev.MessageStarted("m", None),
        ev.TextDelta("m", "See."),
        ev.TextDelta("m", " Then"),
        *([ev.MessageDone("m", None, "See. Then")] if done else []),
        *block,
        ending,
    ]


def test_several_calls_of_one_block_have_one_text() -> None:
    block = '<tool_call>[{"name":"f","arguments":"{}"},{"name":"f","arguments":"{}"}]</tool_call>'
    events = reader().read([*message(block), ev.TurnIncomplete("max_output_tokens", USAGE)])
    assert [event.text for event in events if isinstance(event, ev.TextDelta)] == [block]


def test_a_phase_that_is_told_at_the_end_is_passed_on() -> None:
    whole = ev.MessageDone("m", "final_answer", "hi")
    events = reader().read([ev.MessageStarted("m", None), ev.TextDelta("m", "hi"), whole])
    assert events[-1] == whole
