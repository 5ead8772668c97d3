"""How much of everything a request may have: as much as stands here is taken, one more is refused and named."""

from collections.abc import Callable

import pytest

from tests.api.responses import decoded as responses
from turnbridge.api.chat import decode as chat
from turnbridge.api.responses.decode import parse
from turnbridge.api.shared.errors import MAX_MESSAGE_CHARS, MAX_PARAM_CHARS, error_object
from turnbridge.api.shared.parameters import STOP_CHARACTERS
from turnbridge.codex.protocol.tool_names import LONGEST_NAME, ToolNames
from turnbridge.turn.errors import InvalidRequest, ModelNotFound
from turnbridge.turn.items import Json, JsonObject


def asked(**more: Json) -> JsonObject:
    return {"model": "m", "input": "hi", **more}


def said(**message: Json) -> JsonObject:
    return {"model": "m", "messages": [{"role": "user", **message}]}


def functions(count: int) -> list[Json]:
    return [{"type": "function", "name": f"f{number}"} for number in range(count)]


def messages(count: int) -> list[Json]:
    return [{"role": "user", "content": "hi"}] * count


def called(count: int) -> list[Json]:
    ids = [f"c{number}" for number in range(count)]
    calls: list[Json] = [{"id": each, "function": {"name": "f", "arguments": "{}"}} for each in ids]
    outputs: list[Json] = [{"role": "tool", "tool_call_id": each, "content": ""} for each in ids]
    return [{"role": "assistant", "tool_calls": calls}, *outputs]


def file(name: str, url: str = "https://example.com") -> JsonObject:
    return said(content=[{"type": "file", "file": {"filename": name, "file_url": url}}])


@pytest.mark.parametrize(
    ("decode", "fits", "too_much", "code", "param"),
    [
        (
            chat.decode,
            {"model": "m", "messages": messages(10_000)},
            {"model": "m", "messages": messages(10_001)},
            "array_above_max_length",
            "messages",
        ),
        (
            chat.decode,
            {"model": "m", "messages": called(5000)},
            {"model": "m", "messages": called(5001)},
            "array_above_max_length",
            "messages",
        ),
        (
            responses.decode,
            asked(input=messages(10_000)),
            asked(input=messages(10_001)),
            "array_above_max_length",
            "input",
        ),
        (parse, asked(input=messages(10_000)), asked(input=messages(10_001)), "array_above_max_length", "input"),
        (
            chat.decode,
            said(content=["x"] * 20_000),
            said(content=["x"] * 20_001),
            "array_above_max_length",
            "messages[0].content",
        ),
        (
            responses.decode,
            asked(input=[{"type": "reasoning", "summary": [{"text": "x"}] * 20_000}]),
            asked(input=[{"type": "reasoning", "summary": [{"text": "x"}] * 20_001}]),
            "array_above_max_length",
            "input[0]",
        ),
        (
            responses.decode,
            asked(tools=functions(1024)),
            asked(tools=functions(1025)),
            "array_above_max_length",
            "tools",
        ),
        (
            responses.decode,
            asked(stop="s" * STOP_CHARACTERS),
            asked(stop=["s", "s" * (STOP_CHARACTERS + 1)]),
            "string_above_max_length",
            "stop",
        ),
        (
            chat.decode,
            file("n" * 1024),
            file("n" * 1025),
            "string_above_max_length",
            "messages[0].content[0].filename",
        ),
        (
            chat.decode,
            file("n", "https://example.com/".ljust(8192, "x")),
            file("n", "https://example.com/".ljust(8193, "x")),
            "string_above_max_length",
            "messages[0].content[0]",
        ),
        (
            chat.decode,
            said(content=[{"type": "image_url", "image_url": {"url": "https://".ljust(8192, "x")}}]),
            said(content=[{"type": "image_url", "image_url": {"url": "https://".ljust(8193, "x")}}]),
            "string_above_max_length",
            "messages[0].content[0]",
        ),
    ],
    ids=[
        *("messages", "calls", "items", "items to look up", "parts", "thoughts", "tools"),
        *("stop", "file name", "file URL", "image URL"),
    ],
)
def test_a_request_may_reach_a_limit_and_not_exceed_it(
    decode: Callable[[JsonObject], object], fits: JsonObject, too_much: JsonObject, code: str, param: str
) -> None:
    decode(fits)
    with pytest.raises(InvalidRequest) as caught:
        decode(too_much)
    assert (caught.value.error_code, caught.value.param) == (code, param)


def test_what_a_conversation_held_before_counts_too() -> None:
    history: list[JsonObject] = [{"role": "user", "content": "hi"}] * 9999
    responses.decode(asked(), history)
    with pytest.raises(InvalidRequest):
        responses.decode(asked(input=messages(2)), history)


def test_an_error_repeats_only_the_beginning_of_what_was_sent() -> None:
    told = error_object(ModelNotFound("m" * 1_000_000, param="p" * 1_000_000))
    assert told["message"] == "m" * MAX_MESSAGE_CHARS + "..."
    assert told["param"] == "p" * MAX_PARAM_CHARS + "..."


def test_many_names_that_codex_would_take_for_one_are_told_apart() -> None:
    given = ["." * 200 + str(number) for number in range(1024)]
    names = ToolNames(given)
    taken = {names.to_codex(name) for name in given}
    assert len(taken) == len(given)
    assert max(map(len, taken)) == LONGEST_NAME
    assert all(names.to_client(names.to_codex(name)) == name for name in given)
