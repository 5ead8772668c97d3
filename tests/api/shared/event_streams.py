"""Streams of turn events as `turn.events` promises them: how to tell a good one, and how to make any."""

from collections.abc import Sequence

from hypothesis import strategies as st

from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import JsonObject

PHASES = (None, "commentary", "final_answer")
FAILURES = (
    errors.UpstreamFailed("It broke."),
    errors.RateLimited("Slow down.", retry_after=3.0),
    errors.ContextTooLong("Too long.", param="input"),
)
CITATION: JsonObject = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 1,
    "url": "https://example.com/",
    "title": "Example",
}


def check_stream(events: Sequence[ev.TurnEvent]) -> None:
    """Assert that a stream keeps every promise: one end, nothing unopened, nothing empty, done is what was streamed."""
    *happened, last = events
    assert isinstance(last, ev.Terminal)
    open_texts: dict[str, list[str]] = {}
    open_thoughts: dict[str, dict[tuple[type[ev.TurnEvent], int], list[str]]] = {}
    for event in happened:
        match event:
            case ev.MessageStarted():
                assert event.item_id not in open_texts
                open_texts[event.item_id] = []
            case ev.TextDelta():
                assert event.text
                open_texts[event.item_id].append(event.text)
            case ev.MessageDone():
                assert "".join(open_texts.pop(event.item_id)) == event.text
            case ev.ReasoningStarted():
                assert event.item_id not in open_thoughts
                open_thoughts[event.item_id] = {}
            case ev.SummaryDelta() | ev.ReasoningDelta():
                assert event.text
                open_thoughts[event.item_id].setdefault((type(event), event.index), []).append(event.text)
            case ev.ReasoningDone():
                parts = open_thoughts.pop(event.item_id)
                for kind, whole in ((ev.SummaryDelta, event.summary), (ev.ReasoningDelta, event.content)):
                    assert tuple("".join(parts[key]) for key in sorted(parts, key=_place) if key[0] is kind) == whole
            case _:
                assert not isinstance(event, ev.Terminal)


def _place(key: tuple[type[ev.TurnEvent], int]) -> int:
    return key[1]


def texts() -> st.SearchStrategy[str]:
    """Pieces of text, never empty."""
    return st.text(min_size=1, max_size=6)


def usages() -> st.SearchStrategy[ev.Usage]:
    """Any usage, also none."""
    return st.builds(ev.Usage, *[st.integers(0, 99)] * 5, st.booleans())


def terminals() -> st.SearchStrategy[ev.Terminal]:
    """Every way in which an answer without calls ends."""
    return st.one_of(
        st.builds(ev.TurnCompleted, usages()),
        st.builds(ev.TurnIncomplete, st.sampled_from(["max_output_tokens", "content_filter"]), usages()),
        st.builds(ev.TurnFailed, st.sampled_from(FAILURES), usages()),
    )


@st.composite
def messages(draw: st.DrawFn, item_id: str) -> list[ev.TurnEvent]:
    """A message from its start to its end."""
    phase = draw(st.sampled_from(PHASES))
    pieces = draw(st.lists(texts(), max_size=4))
    annotations = (CITATION,) * draw(st.integers(0, 2))
    return [
        ev.MessageStarted(item_id, phase),
        *(ev.TextDelta(item_id, piece) for piece in pieces),
        ev.MessageDone(item_id, phase, "".join(pieces), annotations),
    ]


@st.composite
def thoughts(draw: st.DrawFn, item_id: str) -> list[ev.TurnEvent]:
    """A thought from its start to its end, with a summary, a text of its own, both or neither."""
    both: list[type[ev.SummaryDelta] | type[ev.ReasoningDelta]] = [ev.SummaryDelta, ev.ReasoningDelta]
    kinds = draw(st.lists(st.sampled_from(both), max_size=4))
    deltas: list[ev.SummaryDelta | ev.ReasoningDelta] = []
    whole: dict[type[ev.TurnEvent], list[str]] = {ev.SummaryDelta: [], ev.ReasoningDelta: []}
    for kind in kinds:
        pieces = draw(st.lists(texts(), min_size=1, max_size=3))
        deltas += [kind(item_id, len(whole[kind]), piece) for piece in pieces]
        whole[kind].append("".join(pieces))
    encrypted = draw(st.none() | texts())
    done = ev.ReasoningDone(item_id, tuple(whole[ev.SummaryDelta]), tuple(whole[ev.ReasoningDelta]), encrypted)
    return [ev.ReasoningStarted(item_id), *deltas, done]


@st.composite
def searches(draw: st.DrawFn, item_id: str) -> list[ev.TurnEvent]:
    """A search of the web."""
    return [ev.WebSearchDone(item_id, {"type": "search", "query": draw(texts())})]


@st.composite
def calls(draw: st.DrawFn) -> list[ev.TurnEvent]:
    """The calls of one model response, and the end that belongs to them."""
    made: list[ev.TurnEvent] = [
        ev.FunctionCallDone(f"fc_{number}", f"call_{number}", draw(st.sampled_from(["add", "look"])), draw(st.text()))
        for number in range(draw(st.integers(1, 3)))
    ]
    return [*made, ev.CallsAwaited(draw(usages()))]


@st.composite
def event_streams(draw: st.DrawFn) -> list[ev.TurnEvent]:
    """Any stream: items one after another, some of which are cut off, and one end."""
    events: list[ev.TurnEvent] = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from([messages, thoughts, searches]))
        item = draw(kind(f"item_{number}"))
        # Whatever is open at the end was cut off; nothing promises that it is only the last item.
        cut = draw(st.booleans()) and len(item) > 2
        events += item[: draw(st.integers(2, len(item) - 1))] if cut else item
    return [*events, *draw(calls() | st.builds(lambda end: [end], terminals()))]
