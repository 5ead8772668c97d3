"""What a client of the Messages API reads, live and whole."""

import json
from collections.abc import Sequence
from typing import Any, get_args

import anthropic.types as official
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.shared.event_streams import CITATION, event_streams
from tests.support.frames import parsed
from turnbridge.api.anthropic.decode import decode
from turnbridge.api.anthropic.encode import MessageEncoder
from turnbridge.api.anthropic.history import SEARCH_ID, UNPARSED
from turnbridge.api.anthropic.thinking import opened, sealed
from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import Json, JsonObject, Reasoning

HEAD: JsonObject = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5"}
NOTHING_YET: JsonObject = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "output_tokens_details": {"thinking_tokens": 0},
}
USAGE: JsonObject = {
    "input_tokens": 8,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 2,
    "output_tokens": 5,
    "output_tokens_details": {"thinking_tokens": 1},
}
USED = ev.Usage(input=10, cached=2, output=5, reasoning=1)
ADAPTIVE: JsonObject = {"type": "adaptive"}
OMITTED: JsonObject = {"type": "adaptive", "display": "omitted"}
PING: JsonObject = {"type": "ping"}


def encoder(*, window: int | None = 1000, **wishes: Json) -> MessageEncoder:
    asked: JsonObject = {"model": "claude-opus-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    request = decode({**asked, **wishes}, "2026-10-21")
    return MessageEncoder(request, message_id="msg_1", request_id="req_1", window=window, tokens=lambda: 1234)


def streamed(made: MessageEncoder, events: Sequence[ev.TurnEvent]) -> list[JsonObject]:
    """Return all events of a stream whose headers waited for the first output."""
    return parsed(made.frames(0, events) + made.closing())


def ending(reason: str | None, sequence: str | None = None) -> JsonObject:
    return {"stop_reason": reason, "stop_sequence": sequence, "stop_details": None}


START: JsonObject = {
    "type": "message_start",
    "message": {**HEAD, "content": [], **ending(None), "usage": NOTHING_YET},
}
STOP: JsonObject = {"type": "message_stop"}


def starts(index: int, block: JsonObject) -> JsonObject:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, name: str, value: Json) -> JsonObject:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, name: value}}


def stops(index: int) -> JsonObject:
    return {"type": "content_block_stop", "index": index}


def ends(reason: str, sequence: str | None = None, **usage: Json) -> list[JsonObject]:
    return [{"type": "message_delta", "delta": ending(reason, sequence), "usage": {**USAGE, **usage}}, STOP]


EMPTY_TEXT: JsonObject = {"type": "text", "text": ""}
EMPTY_THOUGHT: JsonObject = {"type": "thinking", "thinking": "", "signature": ""}
THOUGHT = Reasoning(id="rs_1", summary=("Hm.", "So."), content=None, encrypted="secret")
SIGNATURE = sealed(THOUGHT, [("s", "Hm."), ("s", "So.")])

TYPICAL: list[ev.TurnEvent] = [
    ev.TurnServed("fresh", "exact"),
    ev.ReasoningStarted("rs_1"),
    ev.SummaryDelta("rs_1", 0, "H"),
    ev.SummaryDelta("rs_1", 0, "m."),
    ev.SummaryDelta("rs_1", 1, "So."),
    ev.ReasoningDone("rs_1", ("Hm.", "So."), (), "secret"),
    ev.MessageStarted("msg_a", "commentary"),
    ev.TextDelta("msg_a", "I "),
    ev.TextDelta("msg_a", "look."),
    ev.MessageDone("msg_a", "commentary", "I look."),
    ev.FunctionCallDone("fc_1", "call_1", "add", '{"a": 1}'),
    ev.FunctionCallDone("fc_2", "call_2", "now", ""),
    ev.CallsAwaited(USED),
]


@pytest.mark.promise("anthropic.stream.order", "anthropic.thinking", "anthropic.usage")
def test_a_typical_turn_is_told_event_by_event() -> None:
    made = encoder(thinking=ADAPTIVE)
    assert streamed(made, TYPICAL) == [
        START,
        starts(0, EMPTY_THOUGHT),
        delta(0, "thinking_delta", "thinking", "H"),
        delta(0, "thinking_delta", "thinking", "m."),
        delta(0, "thinking_delta", "thinking", "\n\nSo."),
        delta(0, "signature_delta", "signature", SIGNATURE),
        stops(0),
        starts(1, EMPTY_TEXT),
        delta(1, "text_delta", "text", "I "),
        delta(1, "text_delta", "text", "look."),
        stops(1),
        starts(2, {"type": "tool_use", "id": "call_1", "name": "add", "input": {}}),
        delta(2, "input_json_delta", "partial_json", '{"a": 1}'),
        stops(2),
        starts(3, {"type": "tool_use", "id": "call_2", "name": "now", "input": {}}),
        delta(3, "input_json_delta", "partial_json", "{}"),
        stops(3),
        *ends("tool_use"),
    ]
    content: list[Json] = [
        {"type": "thinking", "thinking": "Hm.\n\nSo.", "signature": SIGNATURE},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "call_2", "name": "now", "input": {}},
    ]
    assert made.whole() == {**HEAD, "content": content, **ending("tool_use"), "usage": USAGE}
    assert opened(SIGNATURE, "Hm.\n\nSo.") == THOUGHT


@pytest.mark.promise("anthropic.thinking")
def test_thinking_that_is_omitted_has_only_a_signature() -> None:
    made = encoder(thinking=OMITTED)
    signature = sealed(THOUGHT, [])
    assert streamed(made, TYPICAL)[:5] == [
        START,
        starts(0, EMPTY_THOUGHT),
        delta(0, "signature_delta", "signature", signature),
        stops(0),
        starts(1, EMPTY_TEXT),
    ]


@pytest.mark.promise("anthropic.thinking")
def test_who_did_not_ask_for_thinking_reads_none() -> None:
    assert streamed(encoder(), TYPICAL)[:3] == [START, starts(0, EMPTY_TEXT), delta(0, "text_delta", "text", "I ")]


@pytest.mark.promise("anthropic.stream.order")
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ev.TurnCompleted(USED), "end_turn"),
        (ev.TurnIncomplete("max_output_tokens", USED), "max_tokens"),
        (ev.TurnIncomplete("content_filter", USED), "refusal"),
        (ev.CallsAwaited(USED), "tool_use"),
    ],
)
def test_an_empty_answer_has_a_start_and_an_end(end: ev.Terminal, reason: str) -> None:
    made = encoder()
    assert streamed(made, [end]) == [START, *ends(reason)]
    assert made.whole() == {**HEAD, "content": [], **ending(reason), "usage": USAGE}


@pytest.mark.promise("anthropic.stop-sequences")
@pytest.mark.parametrize(
    ("met", "told"), [(None, ("end_turn", None)), ("END", ("stop_sequence", "END"))], ids=["none", "one"]
)
def test_the_stop_sequence_that_was_met_is_named(met: str | None, told: tuple[str, str | None]) -> None:
    made = encoder(stop_sequences=["END", "STOP"])
    made.frames(0, [ev.TurnCompleted(USED, stop=met)])
    assert (made.whole()["stop_reason"], made.whole()["stop_sequence"]) == told


@pytest.mark.promise("anthropic.stream.order")
def test_what_is_opened_early_is_opened_once() -> None:
    made = encoder()
    assert parsed(made.opening()) == [START, PING]
    assert parsed(made.keepalive()) == [PING]
    told = parsed(made.frames(0, [ev.MessageStarted("a", None), ev.TextDelta("a", "Hi")]))
    assert told == [starts(0, EMPTY_TEXT), delta(0, "text_delta", "text", "Hi")]


def test_arguments_that_are_no_object_are_shown_as_they_are() -> None:
    made = encoder()
    for number, arguments in enumerate(("{a", "[1]", '"a"', "[" * 100_000)):
        told = parsed(made.frames(0, [ev.FunctionCallDone(f"fc_{number}", "call", "add", arguments)]))[-2]
        assert told == delta(
            number, "input_json_delta", "partial_json", json.dumps({UNPARSED: arguments}, separators=(",", ":"))
        )


@pytest.mark.promise("anthropic.web-search")
def test_a_search_is_told_as_a_tool_of_the_server_with_the_citations_after_it() -> None:
    made = encoder()
    action: JsonObject = {"type": "search", "query": "news"}
    events: list[ev.TurnEvent] = [
        ev.WebSearchDone("ws_1", action),
        ev.MessageStarted("msg_a", None),
        ev.TextDelta("msg_a", "News."),
        ev.MessageDone("msg_a", None, "News.", (CITATION, {"type": "file_citation"})),
        ev.TurnCompleted(USED),
    ]
    cited: JsonObject = {
        "type": "web_search_result_location",
        "url": "https://example.com/",
        "title": "Example",
        "cited_text": "N",
        "encrypted_index": "",
    }
    search_id = f"{SEARCH_ID}ws_1"
    found: JsonObject = {"type": "web_search_tool_result", "tool_use_id": search_id, "content": []}
    searches: JsonObject = {"web_search_requests": 1, "web_fetch_requests": 0}
    use: JsonObject = {"type": "server_tool_use", "id": search_id, "name": "web_search"}
    assert streamed(made, events)[:-2] == [
        START,
        starts(0, {**use, "input": {}}),
        delta(0, "input_json_delta", "partial_json", '{"type":"search","query":"news"}'),
        stops(0),
        starts(1, found),
        stops(1),
        starts(2, EMPTY_TEXT),
        delta(2, "text_delta", "text", "News."),
        delta(2, "citations_delta", "citation", cited),
        stops(2),
    ]
    content: list[Json] = [{**use, "input": action}, found, {"type": "text", "text": "News.", "citations": [cited]}]
    usage: JsonObject = {**USAGE, "server_tool_use": searches}
    assert made.whole() == {**HEAD, "content": content, **ending("end_turn"), "usage": usage}


@pytest.mark.promise("anthropic.errors.mid-stream")
def test_a_turn_that_breaks_leaves_its_block_open_and_ends_in_an_error() -> None:
    made = encoder()
    broken = ev.TurnFailed(errors.UpstreamFailed("It broke."))
    events: list[ev.TurnEvent] = [ev.MessageStarted("a", None), ev.TextDelta("a", "Hi"), broken]
    told: JsonObject = {"type": "api_error", "message": "It broke."}
    assert streamed(made, events) == [
        START,
        starts(0, EMPTY_TEXT),
        delta(0, "text_delta", "text", "Hi"),
        {"type": "error", "error": told, "request_id": "req_1"},
    ]


@pytest.mark.promise("anthropic.errors.too-long")
def test_a_request_that_is_too_long_is_told_in_numbers() -> None:
    failed = ev.TurnFailed(errors.ContextTooLong("Too long.", param="input"))
    messages = []
    for window in (1000, 2000, None):
        made = encoder(window=window)
        assert made.frames(0, [failed]) == b""
        assert made.failure is not None
        messages.append(made.failure.error.message)
    assert messages == [
        "prompt is too long: 1234 tokens > 1000 maximum. Too long.",
        "prompt is too long: 2001 tokens > 2000 maximum. Too long.",
        "Too long.",
    ]


DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def folded(events: list[JsonObject]) -> JsonObject:
    """Return the message that a client makes of a stream, and check the order of its events."""
    given: list[Any] = events
    assert given[0]["type"] == "message_start"
    message: dict[str, Any] = json.loads(json.dumps(given[0]["message"]))
    arguments = ""
    is_open = False
    for event in given[1:]:
        match event["type"]:
            case "content_block_start":
                assert (is_open, event["index"]) == (False, len(message["content"]))
                message["content"].append(dict(event["content_block"]))
                is_open, arguments = True, ""
            case "content_block_delta":
                assert (is_open, event["index"]) == (True, len(message["content"]) - 1)
                block, change = message["content"][-1], event["delta"]
                match change["type"]:
                    case "input_json_delta":
                        arguments += change["partial_json"]
                    case "citations_delta":
                        block.setdefault("citations", []).append(change["citation"])
                    case kind:
                        # A delta of one kind in a block of another is what adapters get wrong most.
                        assert block["type"] == kind.removesuffix("_delta").replace("signature", "thinking")
                        block[DELTAS[kind]] += change[DELTAS[kind]]
            case "content_block_stop":
                assert (is_open, event["index"]) == (True, len(message["content"]) - 1)
                is_open = False
                if arguments:
                    message["content"][-1]["input"] = json.loads(arguments)
            case "message_delta":
                message |= event["delta"]
                message["usage"] = event["usage"]
            case kind:
                assert kind in ("message_stop", "ping", "error")
    assert not is_open or given[-1]["type"] == "error"
    return message


EVENTS = {
    event.model_fields["type"].annotation: event for event in get_args(get_args(official.RawMessageStreamEvent)[0])
}


def judged(event: JsonObject) -> None:
    """Let the official SDK's own type check an event."""
    shape = next((each for kind, each in EVENTS.items() if event["type"] in get_args(kind)), None)
    if shape is not None:
        shape.model_validate_json(json.dumps(event), strict=True)
    else:
        assert event["type"] in ("ping", "error")


@pytest.mark.promise("anthropic.stream.order", "anthropic.stream.fold")
@given(event_streams(), st.sampled_from([None, ADAPTIVE, OMITTED]), st.booleans(), st.randoms())
def test_any_stream_is_well_formed_and_folds_to_the_whole(
    events: list[ev.TurnEvent], thinking: Json, early: bool, chance: Any
) -> None:
    made = encoder(thinking=thinking)
    frames = made.opening() if early else b""
    rest = list(events)
    while rest:
        size = chance.randint(1, len(rest))
        frames += made.frames(0, rest[:size])
        rest = rest[size:]
    frames += made.closing()
    told = parsed(frames)
    for event in told:
        judged(event)
    if made.failure is not None and len(told) == 1:
        # The error came before anything else: it is told by a status.
        assert told[0]["type"] == "error"
        return
    kinds = [event["type"] for event in told]
    assert (kinds.count("message_start"), kinds[-1]) == (1, "error" if made.failure else "message_stop")
    whole = made.whole()
    if made.failure is None:
        assert folded(told) == whole
        official.Message.model_validate_json(json.dumps(whole), strict=True)
    else:
        assert folded(told)["content"] == whole["content"]
    for block in whole["content"] if isinstance(whole["content"], list) else []:
        assert isinstance(block, dict)
        assert block["type"] != "thinking" or thinking is not None


@pytest.mark.promise("anthropic.stream.order")
@given(st.lists(event_streams(), min_size=2, max_size=3), st.randoms())
def test_items_that_come_mixed_up_are_told_in_blocks_all_the_same(
    streams: list[list[ev.TurnEvent]], chance: Any
) -> None:
    made = encoder(thinking=ADAPTIVE)
    mixed: list[ev.TurnEvent] = []
    queues = [list(stream[:-1]) for stream in streams]
    while any(queues):
        mixed.append(chance.choice([queue for queue in queues if queue]).pop(0))
    told = streamed(made, [event for event in mixed if not isinstance(event, ev.Terminal)] + [ev.TurnCompleted(USED)])
    assert folded(told) == made.whole()


@pytest.mark.promise("anthropic.usage")
@given(st.integers(0, 99), st.integers(0, 99))
def test_cached_tokens_are_not_counted_twice(cached: int, others: int) -> None:
    made = encoder()
    made.frames(0, [ev.TurnCompleted(ev.Usage(input=cached + others, cached=cached, output=1))])
    usage = official.Message.model_validate(made.whole()).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (others, cached, 0)


def test_a_message_without_a_word_does_not_close_a_thought_that_is_open() -> None:
    made = encoder(thinking=ADAPTIVE)
    events: list[ev.TurnEvent] = [ev.ReasoningStarted("r"), ev.MessageStarted("m", None), ev.MessageDone("m", None, "")]
    made.frames(0, events)
    assert [event["type"] for event in parsed(made.frames(0, [ev.ReasoningDone("r", (), (), "x")]))] == [
        "content_block_delta",
        "content_block_stop",
    ]
