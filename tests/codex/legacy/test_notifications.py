"""What older versions tell is read as if a current one had told it."""

import msgspec
import pytest

from turnbridge.codex.legacy.v1 import V1Decoder
from turnbridge.codex.legacy.v2_early import EarlyDecoder
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn import events as ev

PLACE = {"thread_id": "t", "turn_id": "0"}
ENDED = schema.TurnCompleted(thread_id="t", turn=schema.TurnRef(id="0", status="completed"))


def total(asked: int, answered: int) -> schema.TokenUsageUpdated:
    """Return the running total of tokens."""
    usage = schema.TokenUsage(input_tokens=asked, output_tokens=answered)
    return schema.TokenUsageUpdated(**PLACE, token_usage=schema.ThreadUsage(total=usage))


def begun(kind: str, item_id: str) -> schema.ItemStarted:
    """Return the beginning of an item."""
    return schema.ItemStarted(**PLACE, item=schema.ThreadItem(type=kind, id=item_id))


def said(text: str) -> schema.AgentMessageDelta:
    """Return a piece of a message."""
    return schema.AgentMessageDelta(**PLACE, item_id="m", delta=text)


def done(kind: str, item_id: str, **fields: str | msgspec.Raw) -> schema.ItemCompleted:
    """Return the end of an item."""
    return schema.ItemCompleted(
        **PLACE, item=msgspec.convert({"type": kind, "id": item_id, **fields}, schema.CompletedItem)
    )


def call(call_id: str) -> schema.RawItemCompleted:
    """Return a call of `f`, as the provider made it."""
    item = {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}
    return schema.RawItemCompleted(**PLACE, item=msgspec.Raw(msgspec.json.encode(item)))


def read(decoder: EarlyDecoder, *notes: schema.Note) -> list[ev.TurnEvent]:
    """Return the events of notifications."""
    decoder.turn_id = "0"
    return decoder.read(notes)


def test_the_calls_of_a_model_are_whole_when_its_tokens_are_counted() -> None:
    decoder = EarlyDecoder(ToolNames(["f"]))
    assert read(decoder, call("c1"), call("c2")) == []
    assert read(decoder, total(10, 5)) == [
        ev.FunctionCallDone("c1", "c1", "f", "{}"),
        ev.FunctionCallDone("c2", "c2", "f", "{}"),
        ev.CallsAwaited(ev.Usage(input=10, output=5), ("c1", "c2")),
    ]
    decoder.resume()
    # Told again, since the plan's limits have changed; then the next model call adds to it.
    assert read(decoder, total(10, 5), total(30, 6), ENDED) == [ev.TurnCompleted(ev.Usage(input=20, output=1))]


def test_tokens_of_an_earlier_turn_of_the_thread_are_not_counted_again() -> None:
    first, second = EarlyDecoder(), EarlyDecoder()
    assert read(first, total(10, 5), ENDED)[-1] == ev.TurnCompleted(ev.Usage(input=10, output=5))
    second.total = first.total
    assert read(second, total(10, 5), total(12, 9), ENDED) == [ev.TurnCompleted(ev.Usage(input=2, output=4))]


def test_v1_tells_no_raw_items() -> None:
    happened = read(
        V1Decoder(),
        begun("userMessage", "u"),
        done("userMessage", "u", content=msgspec.Raw(b'[{"type":"text"}]')),
        begun("reasoning", "r"),
        schema.SummaryTextDelta(**PLACE, item_id="r", summary_index=0, delta="Hm"),
        done("reasoning", "r", summary=msgspec.Raw(b'["Hm."]'), content=msgspec.Raw(b"[]")),
        begun("agentMessage", "m"),
        said("Hel"),
        said("lo"),
        done("agentMessage", "m", text="Hello"),
        total(10, 5),
        ENDED,
    )
    assert happened == [
        ev.ReasoningStarted("r"),
        ev.SummaryDelta("r", 0, "Hm"),
        ev.SummaryDelta("r", 0, "."),
        ev.ReasoningDone("r", ("Hm.",), (), None),
        ev.MessageStarted("m", None),
        ev.TextDelta("m", "Hel"),
        ev.TextDelta("m", "lo"),
        ev.MessageDone("m", None, "Hello"),
        ev.TurnCompleted(ev.Usage(input=10, output=5)),
    ]


@pytest.mark.parametrize("decoder", [EarlyDecoder, V1Decoder])
def test_a_search_is_told_with_its_id(decoder: type[EarlyDecoder]) -> None:
    search = done("webSearch", "ws", query="news")
    happened = read(decoder(), begun("webSearch", "ws"), search)
    assert happened == [ev.WebSearchDone("ws", {"type": "search", "query": "news"})]
