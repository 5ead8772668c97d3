"""What the client demands of calls, on a conversation that does as it is told."""

from collections.abc import AsyncGenerator, Sequence

import pytest

from tests.engine.scripted_backend import DirectJudge, ScriptedBackend, ScriptedThread, saying
from tests.support.turn_requests import changed, turn_request
from turnbridge.engine.kept_threads import Leg
from turnbridge.engine.turn_rules import CALL_NOW, NOT_RUN_ALONE, NOT_RUN_WITH_INVALID, ToolRules
from turnbridge.turn.errors import OutputRejected, UpstreamFailed
from turnbridge.turn.events import (
    CallsAwaited,
    FunctionCallDone,
    MessageDone,
    MessageStarted,
    ReasoningDone,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnIncomplete,
    Usage,
    WebSearchDone,
)
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    JsonObject,
    Message,
    RawItem,
    Reasoning,
    TextPart,
    replace,
)
from turnbridge.turn.request import Namespace, Tool, TurnRequest

pytestmark = pytest.mark.anyio

TOOL = Tool(
    name="f",
    description="",
    parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
    strict=True,
)
ASKED = turn_request(model="m", items=(Message(role="user", parts=(TextPart(text="hi"),)),), tools=(TOOL,))
USAGE = Usage(input=10, cached=2, output=5, reasoning=1)


def called(call_id: str, arguments: str = '{"n": 1}') -> FunctionCallDone:
    return FunctionCallDone(f"fc_{call_id}", call_id, "f", arguments)


def call(call_id: str, arguments: str = '{"n": 1}') -> FunctionCall:
    return FunctionCall(call_id=call_id, name="f", arguments=arguments)


async def applied(
    request: TurnRequest, *turns: Sequence[Sequence[TurnEvent]]
) -> tuple[list[TurnEvent], ToolRules, ScriptedBackend]:
    """Return what the client sees of these turns, the rules after it, and what was said to the model."""
    backend = ScriptedBackend([*turns])
    thread = ScriptedThread(backend)
    rules = ToolRules(thread, request)
    events: list[TurnEvent] = []
    following: AsyncGenerator[Sequence[TurnEvent], None] | None = thread.run()
    while following is not None:
        source, following = following, None
        async for batch in source:
            allowed, following = rules.judge(batch, await rules.problems(batch, DirectJudge()))
            events += allowed
            if following is not None:
                break
    return events, rules, backend


async def test_the_models_order_is_kept_for_the_client_and_for_a_replay() -> None:
    thought = ReasoningDone("rs", ("Hm.",), (), "S")
    batch: list[TurnEvent] = [called("a"), thought, called("b"), CallsAwaited(USAGE)]
    events, rules, _ = await applied(ASKED, [batch])
    assert events == batch
    known = Reasoning(id="rs", summary=("Hm.",), content=None, encrypted="S")
    assert rules.leg == Leg(items=(call("a"), known, call("b")), shown=("a", "b"))


async def test_a_call_that_was_made_before_a_thought_is_replayed_before_it() -> None:
    batch: list[TurnEvent] = [ReasoningDone("rs", (), (), "S"), called("a"), CallsAwaited(USAGE, ("fc_a", "rs"))]
    _, rules, _ = await applied(ASKED, [batch])
    assert rules.leg is not None
    assert rules.leg.items == (call("a"), Reasoning(id="rs", summary=(), content=None, encrypted="S"))


async def test_a_valid_call_beside_an_invalid_one_is_told_why_it_was_not_run() -> None:
    wrong: list[TurnEvent] = [called("a", "{"), called("b"), CallsAwaited(USAGE)]
    _, _, backend = await applied(ASKED, [wrong], saying("Sorry."))
    ((), (invalid, valid)) = backend.added
    assert isinstance(invalid, FunctionCallOutput)
    assert "Invalid arguments" in str(invalid.output)
    assert valid == FunctionCallOutput(call_id="b", output=NOT_RUN_WITH_INVALID)


async def test_a_search_keeps_its_place_among_what_the_model_said() -> None:
    thought, search = ReasoningDone("rs", ("Hm.",), (), "S"), WebSearchDone("ws", {"type": "search"})
    order = ("rs", "ws", "fc_b")
    wrong: list[TurnEvent] = [called("a", "{"), CallsAwaited(USAGE, ("fc_a", ""))]
    _, rules, backend = await applied(ASKED, [wrong], [[thought, search, called("b"), CallsAwaited(USAGE, order)]])
    ((), (correction,)) = backend.added
    found: JsonObject = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}}
    known = Reasoning(id="rs", summary=("Hm.",), content=None, encrypted="S")
    assert rules.leg is not None
    assert rules.leg.items == (call("a", "{"), correction, known, RawItem(item=found), call("b"))


async def test_a_client_that_runs_one_call_at_a_time_is_given_the_first() -> None:
    events, rules, _ = await applied(
        changed(ASKED, parallel_calls=False), [[called("a"), called("b"), CallsAwaited(USAGE)]]
    )
    assert events == [called("a"), CallsAwaited(USAGE)]
    not_run = FunctionCallOutput(call_id="b", output=NOT_RUN_ALONE)
    assert rules.leg == Leg(items=(call("a"), call("b")), shown=("a",), presets=(not_run,), intervened=True)


async def test_what_was_said_to_correct_the_model_is_recorded_and_counted() -> None:
    wrong: list[TurnEvent] = [called("a", '{"n": "one"}'), CallsAwaited(USAGE)]
    events, rules, backend = await applied(ASKED, [wrong], [[called("b"), CallsAwaited(USAGE)]])
    assert events == [called("b"), CallsAwaited(USAGE + USAGE)]
    ((), (correction,)) = backend.added
    wrong_call = call("a", '{"n": "one"}')
    assert rules.leg == Leg(items=(wrong_call, correction, call("b")), shown=("b",), intervened=True)


WORDS: list[TurnEvent] = [MessageStarted("m", None), TextDelta("m", "Well.")]


@pytest.mark.parametrize(
    "ending",
    [TurnFailed(UpstreamFailed("It broke.")), TurnIncomplete("content_filter", USAGE)],
    ids=["failed", "incomplete"],
)
async def test_what_was_said_in_the_last_batch_of_a_turn_is_passed_on(ending: TurnEvent) -> None:
    events, _, _ = await applied(ASKED, [[*WORDS, ending]])
    assert events == [*WORDS, ending]


async def test_what_was_said_beside_calls_that_cannot_be_corrected_is_passed_on() -> None:
    wrong: list[TurnEvent] = [called("a", "{"), CallsAwaited(USAGE)]
    events, _, _ = await applied(ASKED, [wrong], [wrong], [[*WORDS, *wrong]])
    assert events[:-1] == WORDS


async def test_what_was_said_in_place_of_a_required_call_is_passed_on() -> None:
    said: list[TurnEvent] = [*WORDS, TurnCompleted(USAGE)]
    events, _, _ = await applied(changed(ASKED, must_call=True), [said], [said])
    assert events[:-1] == [*WORDS, *WORDS]


async def test_a_model_that_does_not_learn_fails_with_the_usage_of_its_corrections() -> None:
    wrong: list[TurnEvent] = [called("a", "{"), CallsAwaited(USAGE)]
    events, rules, _ = await applied(ASKED, [wrong], [wrong], [wrong])
    (failed,) = events
    assert isinstance(failed, TurnFailed)
    assert isinstance(failed.error, OutputRejected)
    assert (failed.error.error_code, failed.usage) == ("invalid_tool_arguments", USAGE + USAGE + USAGE)
    assert rules.leg is None


async def test_a_reminder_is_recorded_and_counted() -> None:
    events, rules, backend = await applied(
        changed(ASKED, must_call=True), saying("No.", usage=USAGE), [[called("a"), CallsAwaited(USAGE)]]
    )
    assert events[-2:] == [called("a"), CallsAwaited(USAGE + USAGE)]
    reminder = Message(role="user", parts=(TextPart(text=CALL_NOW),))
    assert backend.added == [(), [reminder]]
    answer = Message(role="assistant", parts=(TextPart(text="No."),))
    assert rules.leg == Leg(items=(answer, reminder, call("a")), shown=("a",), intervened=True)


async def test_a_search_meets_the_demand_for_a_call_and_is_remembered() -> None:
    search = WebSearchDone("ws", {"type": "search", "query": "q"})
    ending: list[TurnEvent] = [MessageDone("m", None, "Found."), TurnCompleted(USAGE)]
    events, rules, backend = await applied(changed(ASKED, must_call=True), [[search], ending])
    assert events == [search, *ending]
    assert backend.added == [()]
    action: JsonObject = {"type": "search", "query": "q"}
    item: JsonObject = {"type": "web_search_call", "id": "ws", "status": "completed", "action": action}
    assert rules.said[0] == RawItem(item=item)


async def test_only_calls_of_the_strict_function_itself_are_corrected() -> None:
    crm = Namespace(name="crm", description="")
    request = changed(ASKED, tools=(replace(TOOL, strict=False), replace(TOOL, namespace=crm)))
    wrong = called("a", '{"n": "x"}')
    loose: list[TurnEvent] = [wrong, CallsAwaited(USAGE)]
    events, *_ = await applied(request, [loose])
    assert events == [wrong, CallsAwaited(USAGE)]
    strict: list[TurnEvent] = [replace(wrong, namespace="crm"), CallsAwaited(USAGE)]
    right = replace(called("b"), namespace="crm")
    events, *_ = await applied(request, [strict], [[right, CallsAwaited(USAGE)]])
    assert events == [right, CallsAwaited(USAGE + USAGE)]
