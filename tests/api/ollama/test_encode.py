"""What a client of Ollama's API reads, live and whole."""

import json
from collections.abc import Sequence
from typing import Any

import ollama
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.shared.event_streams import event_streams
from turnbridge.api.ollama.decode import decode_chat, decode_generate
from turnbridge.api.ollama.encode import OllamaEncoder
from turnbridge.api.ollama.history import CallPlace
from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import Json, JsonObject, normalized_json

CREATED = "2026-11-18T12:00:00Z"
HEAD: JsonObject = {"model": "gpt-5.5", "created_at": CREATED}
USED = ev.Usage(input=10, cached=2, output=5, reasoning=1)


def encoder(*, kind: str = "chat", kept: dict[str, CallPlace] | None = None, **wishes: Json) -> OllamaEncoder:
    asked: JsonObject = {"model": "gpt-5.5", **wishes}
    told: JsonObject = {"messages": [{"role": "user", "content": "Hi"}]}
    request = (
        decode_chat({**asked, **told}, lambda _: None) if kind == "chat" else decode_generate({**asked, "prompt": "Hi"})
    )
    times = iter(range(0, 10**9, 1000))

    def keep(place: CallPlace, call_id: str) -> None:
        if kept is not None:
            kept[call_id] = place

    return OllamaEncoder(request, created_at=CREATED, clock=lambda: next(times), remember=keep)


def parsed(frames: bytes) -> list[dict[str, Any]]:
    """Return the objects of a stream: one a line, no line is empty."""
    return [json.loads(line) for line in frames.removesuffix(b"\n").split(b"\n")] if frames else []


def streamed(made: OllamaEncoder, events: Sequence[ev.TurnEvent]) -> list[dict[str, Any]]:
    return parsed(made.frames(0, events) + made.closing())


def folded(lines: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return what a client makes of a stream that did not fail."""
    *pieces, last = lines
    assert [piece["done"] for piece in pieces] == [False] * len(pieces)
    if kind == "generate":
        thinking = "".join(piece.get("thinking", "") for piece in pieces)
        text = "".join(piece["response"] for piece in lines)
        return {**last, "response": text, **({"thinking": thinking} if thinking else {})}
    said = [piece["message"] for piece in lines]
    thinking = "".join(each.get("thinking", "") for each in said)
    calls = [call for each in said for call in each.get("tool_calls", ())]
    whole: dict[str, Any] = {"role": "assistant", "content": "".join(each["content"] for each in said)}
    whole |= {"thinking": thinking} if thinking else {}
    whole |= {"tool_calls": calls} if calls else {}
    assert "tool_calls" not in said[-1]
    return {**last, "message": whole}


@pytest.mark.promise("ollama.stream", "ollama.stream.fold")
@given(
    event_streams(),
    st.sampled_from(["chat", "generate"]),
    st.sampled_from([None, True, False]),
    st.booleans(),
    st.randoms(),
)
def test_any_stream_is_lines_that_fold_to_the_whole(
    events: list[ev.TurnEvent], kind: str, think: bool | None, early: bool, chance: Any
) -> None:
    if kind == "generate":
        events = [event for event in events if not isinstance(event, ev.FunctionCallDone)]
    made = encoder(kind=kind, think=think)
    frames = made.opening() if early else b""
    rest = list(events)
    while rest:
        size = chance.randint(1, len(rest))
        frames += made.frames(0, rest[:size]) + (made.keepalive() if chance.random() < 0.2 else b"")
        rest = rest[size:]
    lines = parsed(frames + made.closing())
    if made.failure is not None:
        assert list(lines[-1]) == ["error"]
        return
    whole = json.loads(json.dumps(made.whole()))
    assert folded(lines, kind) == whole
    shape = ollama.ChatResponse if kind == "chat" else ollama.GenerateResponse
    for line in (*lines, whole):
        shape.model_validate(line)
    if think is False:
        assert "thinking" not in whole.get("message", whole)


@pytest.mark.promise("ollama.tools")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"b": 1,\n "a": 123456789012345678901234567890}', {"b": 1, "a": 123456789012345678901234567890}),
        ("", {}),
        ("{not json", {"unparsed_arguments": "{not json"}),
        ("[1]", {"unparsed_arguments": "[1]"}),
    ],
    ids=["an object", "nothing", "no JSON", "a list"],
)
def test_arguments_are_an_object(arguments: str, told: JsonObject) -> None:
    kept: dict[str, CallPlace] = {}
    made = encoder(kept=kept)
    lines = streamed(made, [ev.FunctionCallDone("fc_1", "call_1", "f", arguments), ev.CallsAwaited(USED)])
    call = {"id": "call_1", "function": {"index": 0, "name": "f", "arguments": told}}
    told_whole: Any = made.whole()
    assert [line["message"].get("tool_calls") for line in lines] == [[call], None]
    assert told_whole["message"] == {"role": "assistant", "content": "", "tool_calls": [call]}
    # It is recognised without its id, and is the same to the model.
    asked: JsonObject = {
        "model": "gpt-5.5",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": told}}]},
            {"role": "tool", "content": "x"},
        ],
    }
    found = {place: call_id for call_id, place in kept.items()}
    again: Any = decode_chat(asked, found.get).turn.items[1]
    assert (again.call_id, normalized_json(again.arguments)) == ("call_1", normalized_json(arguments or "{}"))


@pytest.mark.promise("ollama.errors")
def test_a_failure_is_the_last_line_and_calls_before_it_are_not_told() -> None:
    made = encoder()
    call = ev.FunctionCallDone("fc_1", "call_1", "f", "{}")
    assert streamed(made, [call, ev.TurnFailed(errors.UpstreamFailed("It broke."), USED)]) == [{"error": "It broke."}]
    assert made.usage == USED


@pytest.mark.promise("ollama.usage")
def test_no_duration_is_zero_even_if_no_time_passes() -> None:
    request = decode_generate({"model": "gpt-5.5", "prompt": "Hi"})
    made = OllamaEncoder(request, created_at=CREATED, clock=lambda: 7)
    made.frames(0, [ev.TurnCompleted(USED)])
    assert made.whole() == {
        **HEAD,
        "response": "",
        "done": True,
        "done_reason": "stop",
        "total_duration": 1,
        "load_duration": 1,
        "prompt_eval_count": 10,
        "prompt_eval_duration": 1,
        "eval_count": 5,
        "eval_duration": 1,
    }


def test_calls_are_numbered() -> None:
    made = encoder()
    calls = [ev.FunctionCallDone(f"fc_{number}", f"call_{number}", "f", "{}") for number in range(2)]
    told, _ = streamed(made, [*calls, ev.CallsAwaited(USED)])
    assert [call["function"]["index"] for call in told["message"]["tool_calls"]] == [0, 1]
