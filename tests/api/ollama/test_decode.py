"""What a client of Ollama's API asks for: names, results that are paired, and formats."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.ollama.decode import codex_name, decode_chat, decode_generate
from turnbridge.api.ollama.history import CallPlaces, OpenCalls
from turnbridge.api.ollama.models import own_effort
from turnbridge.api.ollama.routes import MOST_CALLS, CallIds
from turnbridge.engine.ports import Model
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Json, JsonObject, Message, TextPart
from turnbridge.turn.request import AnyJsonObject, JsonOfSchema


@pytest.mark.promise("ollama.models", "ollama.think")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpt-5.5", "gpt-5.5"),
        ("gpt-5.5:latest", "gpt-5.5"),
        (" gpt-5.5:LATEST ", "gpt-5.5"),
        ("gpt-5.5:", "gpt-5.5"),
        ("gpt-5.5:high", "gpt-5.5-high"),
        ("llama3:8b", "llama3:8b"),
        ("LLAMA3:8B", "LLAMA3:8B"),
        ("library/x:y:latest", "library/x:y"),
    ],
)
def test_a_tag_is_dropped_or_an_effort_unless_the_name_is_the_operators(name: str, meant: str) -> None:
    assert codex_name(name, {"Llama3:8b": "gpt-5.5"}) == meant


@pytest.mark.promise("ollama.think")
@pytest.mark.parametrize(
    ("efforts", "wanted", "found"),
    [
        (("low", "medium", "high", "xhigh"), "max", "xhigh"),
        (("low", "medium", "high"), "least", "low"),
        (("medium", "high"), "low", "medium"),
        (("minimal", "low", "high"), "medium", "low"),
        (("low", "max", "ultra"), "max", "max"),
        ((), "high", None),
    ],
)
def test_an_effort_is_one_that_the_model_has(efforts: tuple[str, ...], wanted: str, found: str | None) -> None:
    model = Model(
        id="m",
        display_name="M",
        description="",
        efforts=efforts,
        default_effort=None,
        context_window=None,
        max_context_window=None,
        modalities=("text",),
        service_tiers=(),
        hidden=False,
        is_default=False,
    )
    assert own_effort(wanted, model) == found


def called(*calls: JsonObject, results: list[JsonObject]) -> list[tuple[str, str]]:
    """Return which result went to which call."""
    messages: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "I look.", "tool_calls": [*calls]},
        *[{"role": "tool", "content": str(number), **result} for number, result in enumerate(results)],
    ]
    items = decode_chat({"model": "m", "messages": messages}, lambda _: None).turn.items
    names = {item.call_id: item.name for item in items if isinstance(item, FunctionCall)}
    outputs = [item for item in items if isinstance(item, FunctionCallOutput)]
    return [(names[each.call_id], str(each.output)) for each in outputs]


A: JsonObject = {"function": {"name": "a", "arguments": {}}}
B: JsonObject = {"function": {"name": "b", "arguments": '{"x": 1}'}}


@pytest.mark.promise("ollama.tools.without-ids")
@pytest.mark.parametrize(
    ("calls", "results", "paired"),
    [
        ([A, B], [{}, {}], [("a", "0"), ("b", "1")]),
        ([A, B], [{"tool_name": "b"}, {"tool_name": "a"}], [("b", "0"), ("a", "1")]),
        ([A, B], [{"tool_name": "b"}, {}], [("b", "0"), ("a", "1")]),
        (
            [{**A, "id": "1"}, {**B, "id": "2"}],
            [{"tool_call_id": "2"}, {"tool_call_id": "1"}],
            [("b", "0"), ("a", "1")],
        ),
        ([{**A, "id": "1"}, B], [{"tool_call_id": "dropped"}, {}], [("b", "0"), ("a", "1")]),
        ([{**A, "id": "1"}, B], [{}, {}], [("a", "0"), ("b", "1")]),
    ],
    ids=["by order", "by name", "by name, then order", "by id", "an id of a call that lost it", "ids on one side"],
)
def test_results_are_paired_with_calls(
    calls: list[JsonObject], results: list[JsonObject], paired: list[tuple[str, str]]
) -> None:
    assert called(*calls, results=results) == paired


@pytest.mark.promise("ollama.tools.without-ids")
@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=8), st.data())
def test_each_call_gets_one_result_whatever_is_told_of_it(calls: list[tuple[str, bool]], data: st.DataObject) -> None:
    opened = OpenCalls()
    for number, (name, own) in enumerate(calls):
        opened.add(str(number), name, has_own_id=own)
    left = {str(number): call for number, call in enumerate(calls)}
    while left:
        call_id = data.draw(st.sampled_from(sorted(left)))
        name, own = left[call_id]
        told = data.draw(st.sampled_from([name, None]))
        found = opened.take(call_id if own and data.draw(st.booleans()) else None, told)
        assert found in left
        assert left.pop(found)[0] == name or told is None
    assert opened.take(None, None) is None


@pytest.mark.promise("ollama.tools.without-ids")
def test_ids_are_made_once_and_only_if_they_are_free() -> None:
    again: JsonObject = {**A, "id": "call_1"}
    messages: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [again, A, A]},
        *[{"role": "tool", "content": "x"}] * 3,
    ]
    # Two calls may not have one id, whatever is remembered.
    items = decode_chat({"model": "m", "messages": messages}, lambda _: "call_1").turn.items
    assert [item.call_id for item in items if isinstance(item, FunctionCall)] == ["call_1", "call_2", "call_3"]


@pytest.mark.promise("ollama.threads")
def test_places_differ_by_what_came_before_and_by_their_number() -> None:
    hi, ho = (Message(role="user", parts=(TextPart(text=text),)) for text in ("hi", "ho"))
    first, other = CallPlaces([hi]), CallPlaces([ho])
    places = [first.next("f", "{}"), first.next("f", "{ }"), first.next("g", "{}"), other.next("f", "{}")]
    assert len(set(places)) == 4
    assert CallPlaces([hi]).next("f", " {}") == places[0]


@pytest.mark.promise("ollama.bounds")
def test_remembered_ids_are_bounded_and_each_clients_own() -> None:
    ids, places = CallIds(), CallPlaces([])
    kept = [places.next("f", "{}") for _ in range(MOST_CALLS + 1)]
    ids.keep("mine", kept[0], "call_mine")
    for number, place in enumerate(kept):
        ids.keep("greedy", place, f"call_{number}")
    assert (ids.find("mine", kept[0]), ids.find("greedy", kept[0])) == ("call_mine", None)
    assert ids.find("greedy", kept[-1]) == f"call_{MOST_CALLS}"


@pytest.mark.promise("ollama.format")
def test_json_is_a_format_with_and_without_the_word() -> None:
    told = decode_generate({"model": "m", "prompt": "Some JSON, please.", "format": "json"}).turn.spec.output
    untold = decode_generate({"model": "m", "prompt": "A number.", "format": "json"}).turn.spec.output
    assert told == AnyJsonObject()
    assert untold == JsonOfSchema(name="output", schema={"type": "object"}, strict=False, enforced=False)


@pytest.mark.promise("ollama.generate", "ollama.options")
def test_what_has_no_effect_is_named() -> None:
    asked: JsonObject = {"model": "m", "prompt": "Hi", "template": "{{ .Prompt }}", "context": [1], "mood": "good"}
    asked["options"] = {"top_k": 1, "num_predict": 5}
    turn = decode_generate(asked).turn
    assert turn.ignored == ("template", "context", "mood", "options.top_k")
    assert (turn.max_output_tokens, turn.streamed) == (5, True)


@pytest.mark.promise("ollama.images")
@pytest.mark.parametrize("role", ["assistant"])
def test_the_model_sends_no_images(role: str) -> None:
    with pytest.raises(InvalidRequest, match="images"):
        decode_chat({"model": "m", "messages": [{"role": role, "images": ["AAAA"]}]}, lambda _: None)


@pytest.mark.promise("ollama.options")
@pytest.mark.parametrize(
    ("wishes", "limit"),
    [
        ({"options": {"num_predict": 5}, "num_predict": 7}, 5),
        ({"num_predict": 7}, 7),
        ({"options": {"num_predict": 0}, "num_predict": 7}, None),
        ({"options": {"num_predict": -1}}, None),
    ],
)
def test_the_most_tokens_of_an_answer_are_those_of_the_options(wishes: JsonObject, limit: int | None) -> None:
    assert decode_generate({"model": "m", "prompt": "Hi", **wishes}).turn.max_output_tokens == limit


@pytest.mark.promise("ollama.think")
@pytest.mark.parametrize(("think", "effort"), [(False, "least"), (True, None), ("high", "high"), (None, None)])
def test_a_model_that_is_not_to_think_thinks_least(think: Json, effort: str | None) -> None:
    decoded = decode_generate({"model": "m", "prompt": "Hi", "think": think})
    assert (decoded.turn.spec.effort, decoded.shows_thinking) == (effort, think is not False)


@pytest.mark.parametrize(
    ("kept", "why"), [(0, "unload"), ("0s", "unload"), ("0m", "unload"), ("5m", "load"), (None, "load")]
)
def test_a_request_without_a_prompt_only_loads_or_unloads(kept: Json, why: str) -> None:
    assert decode_generate({"model": "m", "keep_alive": kept}).loads == why
    assert decode_generate({"model": "m", "keep_alive": kept, "prompt": "Hi"}).loads is None
