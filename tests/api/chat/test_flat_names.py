"""Functions in namespaces, as chat names them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.chat.decode import decode
from turnbridge.api.chat.flat_names import flat
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Json, JsonObject
from turnbridge.turn.request import TurnRequest

HELLO: JsonObject = {"role": "user", "content": "Hi"}


def function(name: str) -> JsonObject:
    return {"type": "function", "function": {"name": name}}


def group(name: str, *tools: JsonObject) -> JsonObject:
    return {"type": "namespace", "name": name, "tools": [*tools]}


CRM = group("crm", function("find"), {"type": "custom", "custom": {"name": "note"}})


def decoded(*tools: JsonObject, messages: Json = None, **fields: Json) -> TurnRequest:
    body: JsonObject = {"model": "gpt-5.5", "messages": messages or [HELLO], "tools": [*tools], **fields}
    return decode(body).turn


@pytest.mark.promise("tools.namespaces")
def test_calls_in_a_history_are_told_apart_again() -> None:
    calls: list[Json] = [
        {"id": "c1", "type": "function", "function": {"name": "crm__find", "arguments": "{}"}},
        {"id": "c2", "type": "custom", "custom": {"name": "crm__note", "input": "a"}},
        {"id": "c3", "type": "function", "function": {"name": "crm__gone", "arguments": "{}"}},
    ]
    outputs: list[Json] = [{"role": "tool", "tool_call_id": call_id, "content": "ok"} for call_id in ("c1", "c2", "c3")]
    turn = decoded(CRM, messages=[HELLO, {"role": "assistant", "tool_calls": calls}, *outputs])
    told = [(call.namespace, call.name, call.custom) for call in turn.items if isinstance(call, FunctionCall)]
    # The client has dropped the last function meanwhile.
    assert told == [("crm", "find", False), ("crm", "note", True), (None, "crm__gone", False)]
    assert [item.custom for item in turn.items if isinstance(item, FunctionCallOutput)] == [False, True, False]


@pytest.mark.promise("tools.namespaces", "tools.choice")
@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "crm__find"}},
        {"type": "function", "name": "crm__find"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [function("crm__find")]}},
        {"type": "allowed_tools", "mode": "required", "tools": [function("crm__find")]},
    ],
)
def test_a_choice_names_a_function_as_calls_do(choice: JsonObject) -> None:
    turn = decoded(CRM, function("find"), tool_choice=choice)
    assert ([tool.key for tool in turn.spec.tools], turn.must_call) == ([("crm", "find")], True)


@pytest.mark.promise("tools.namespaces")
@pytest.mark.parametrize(
    "tools",
    [
        (CRM, function("crm__find")),
        (group("a", function("b__c")), group("a__b", function("c"))),
    ],
)
def test_a_name_that_would_mean_two_functions_is_refused(tools: tuple[JsonObject, ...]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decoded(*tools)
    assert (refused.value.error_code, refused.value.param) == ("duplicate_tool_name", "tools")


NAMES = st.from_regex(r"[a-z_]{1,4}", fullmatch=True)
GROUPS = st.dictionaries(NAMES, st.sets(NAMES, min_size=1, max_size=3), max_size=3)


@pytest.mark.promise("tools.namespaces")
@given(
    groups=st.dictionaries(NAMES, st.sets(NAMES, min_size=1, max_size=3), max_size=3), plain=st.sets(NAMES, max_size=3)
)
def test_flat_names_lead_back_or_are_refused(groups: dict[str, set[str]], plain: set[str]) -> None:
    keys: list[tuple[str | None, str]] = [(name, member) for name, members in groups.items() for member in members]
    keys += [(None, name) for name in plain]
    tools = [group(name, *map(function, sorted(members))) for name, members in groups.items()]
    shown = [flat(name, namespace) for namespace, name in keys]
    calls: list[Json] = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for number, name in enumerate(shown)
    ]
    outputs: list[Json] = [
        {"role": "tool", "tool_call_id": f"c{number}", "content": "ok"} for number in range(len(keys))
    ]
    history: list[Json] = [HELLO, {"role": "assistant", "content": "", "tool_calls": calls}, *outputs]
    given_tools = [*tools, *map(function, sorted(plain))]
    if len({*shown}) < len(shown):
        with pytest.raises(InvalidRequest):
            decoded(*given_tools, messages=history)
        return
    turn = decoded(*given_tools, messages=history)
    told = [(call.namespace, call.name) for call in turn.items if isinstance(call, FunctionCall)]
    assert told == keys


@pytest.mark.promise("tools.namespaces")
def test_functions_of_no_namespace_keep_their_names() -> None:
    turn = decoded(group("functions", function("find")))
    assert [(tool.key, flat(tool.name, None)) for tool in turn.spec.tools] == [((None, "find"), "find")]
