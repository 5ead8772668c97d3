"""Turns that wait for a client: which request goes on with them, how long they are kept, and what is remembered."""

import asyncio
import dataclasses
import sys

import pytest

from tests.engine.scripted_backend import ScriptedBackend, ScriptedThread
from tests.support.turn_requests import changed, turn_request
from turnbridge.engine.history import History
from turnbridge.engine.kept_threads import MOST_PARKED, Leg, ParkedTurns
from turnbridge.turn.items import (
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    JsonObject,
    Message,
    ModelVisible,
    Part,
    RawItem,
    Reasoning,
    Role,
    TextPart,
    replace,
)
from turnbridge.turn.request import Tool, TurnRequest

pytestmark = pytest.mark.anyio


def said(text: str, role: Role = "user", phase: str | None = None) -> Message:
    return Message(role=role, parts=(TextPart(text=text),), phase=phase)


def call(call_id: str, arguments: str = '{"n": 1}') -> FunctionCall:
    return FunctionCall(call_id=call_id, name="f", arguments=arguments)


def output(call_id: str, text: str | tuple[Part, ...] = "done") -> FunctionCallOutput:
    return FunctionCallOutput(call_id=call_id, output=text)


TOOL = Tool(name="f", description="", parameters={"type": "object"})
ASKED = turn_request(model="m", items=(said("hi"),), tools=(TOOL,))
THOUGHT = Reasoning(id="rs", summary=("Hm.",), content=None, encrypted="SECRET")
SEARCH = RawItem(item={"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}})
NARRATED = said("I look.", "assistant", "commentary")
ANSWERED = said("Wait.", "assistant")
LEG = Leg(items=(THOUGHT, NARRATED, SEARCH, ANSWERED, call("a"), call("b")), shown=("a", "b"))
TOLD = (ANSWERED, call("a"), call("b"))
OUTPUTS = (output("a"), output("b"))


def thread() -> ScriptedThread:
    return ScriptedThread(ScriptedBackend([], running=1))


def parked(leg: Leg = LEG, *, ttl_s: float = 60) -> tuple[ParkedTurns, ScriptedThread]:
    """Return calls among which one turn waits."""
    calls, waiting = ParkedTurns(ttl_s=ttl_s), thread()
    calls.park(History(ASKED), waiting, leg)
    return calls, waiting


def restored(calls: ParkedTurns, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return what is replayed of a history."""
    return calls.restored(changed(ASKED, items=items))


def continued(*items: Item) -> TurnRequest:
    return changed(ASKED, items=(*ASKED.items, *items))


async def test_a_default_that_the_client_adds_to_a_call_does_not_count() -> None:
    declared: JsonObject = {"properties": {"n": {"type": "integer"}, "all": {"type": "boolean", "default": False}}}
    tools = (replace(TOOL, parameters=declared),)
    for arguments, resumes in (('{"all": false, "n": 1}', True), ('{"all": true, "n": 1}', False), ("[1]", False)):
        calls, waiting = ParkedTurns(ttl_s=60), thread()
        calls.park(History(changed(ASKED, tools=tools)), waiting, LEG)
        told = (ANSWERED, call("a", arguments), call("b"))
        claim = calls.claim(History(changed(continued(*told, *OUTPUTS), tools=tools)))
        assert (claim is not None) is resumes, arguments
        kept = calls.restored(changed(ASKED, items=told, tools=tools))
        assert (kept == LEG.items) is resumes, arguments
        calls.close()


@pytest.mark.parametrize(
    "account",
    [
        TOLD,
        (NARRATED, *TOLD),
        (THOUGHT, NARRATED, SEARCH, *TOLD),
        (replace(THOUGHT, encrypted=None), *TOLD),
        (replace(THOUGHT, summary=()), *TOLD),
        (said("I look.\n\nWait.", "assistant"), *TOLD[1:]),
        (ANSWERED, call("a", '{ "n" : 1 }'), call("b")),
    ],
    ids=["chat", "narrated", "whole", "without secrets", "without summaries", "joined", "arguments written anew"],
)
async def test_a_request_with_a_true_account_and_all_outputs_goes_on(account: tuple[Item, ...]) -> None:
    calls, waiting = parked()
    claim = calls.claim(History(continued(*account, *reversed(OUTPUTS))))
    assert claim is not None
    assert (claim.thread, claim.outputs, len(calls)) == (waiting, list(OUTPUTS), 0)
    assert waiting.open


@pytest.mark.parametrize("text", ["", "\n", " "])
async def test_a_call_without_a_text_may_be_told_with_a_blank_one(text: str) -> None:
    calls, _ = parked(Leg(items=(THOUGHT, call("a")), shown=("a",)))
    account = said(text, "assistant"), call("a"), output("a")
    assert restored(calls, account) == (THOUGHT, call("a"), output("a"))
    assert calls.claim(History(continued(*account))) is not None


@pytest.mark.parametrize(
    "items",
    [
        (*TOLD, output("a")),
        (*TOLD, *OUTPUTS, said("And?")),
        (said("More."), *TOLD, *OUTPUTS),
        (*TOLD[1:], *OUTPUTS),
        (said("Wait!", "assistant"), *TOLD[1:], *OUTPUTS),
        (ANSWERED, call("b"), call("a"), *OUTPUTS),
        (ANSWERED, call("a", '{"n": true}'), call("b"), *OUTPUTS),
        (ANSWERED, call("a", "[" * 100_000), call("b"), *OUTPUTS),
        (ANSWERED, replace(call("a"), namespace="crm"), call("b"), *OUTPUTS),
        (replace(THOUGHT, summary=("Ha!",)), *TOLD, *OUTPUTS),
        (replace(THOUGHT, encrypted="OTHER"), *TOLD, *OUTPUTS),
        (RawItem(item={**SEARCH.item, "id": "other"}), *TOLD, *OUTPUTS),
    ],
    ids=[
        "an output missing",
        "text after",
        "text before",
        "answer left out",
        "answer edited",
        "order changed",
        "1 is not true",
        "endless arguments",
        "namespace added",
        "thought edited",
        "secret edited",
        "search edited",
    ],
)
async def test_any_other_history_does_not_go_on_and_the_turn_still_waits(items: tuple[Item, ...]) -> None:
    calls, waiting = parked()
    assert calls.claim(History(continued(*items))) is None
    assert (waiting.open, len(calls)) == (True, 1)


@pytest.mark.parametrize(
    "request_",
    [
        changed(continued(*TOLD, *OUTPUTS), model="other"),
        changed(continued(*TOLD, *OUTPUTS), instructions="Be kind."),
        changed(continued(*TOLD, *OUTPUTS), tools=()),
        changed(continued(*TOLD, *OUTPUTS), effort="low"),
        changed(ASKED, items=(said("ho"), *TOLD, *OUTPUTS)),
    ],
    ids=["model", "instructions", "tools", "effort", "history"],
)
async def test_a_request_that_asks_otherwise_does_not_go_on(request_: TurnRequest) -> None:
    calls, _ = parked()
    assert calls.claim(History(request_)) is None


async def test_a_turn_goes_on_once() -> None:
    calls, _ = parked()
    assert calls.claim(History(continued(*TOLD, *OUTPUTS))) is not None
    assert calls.claim(History(continued(*TOLD, *OUTPUTS))) is None


async def test_a_turn_whose_codex_is_gone_does_not_go_on() -> None:
    calls, waiting = parked()
    waiting.alive = False
    assert calls.claim(History(continued(*TOLD, *OUTPUTS))) is None


async def test_a_turn_whose_output_codex_would_bend_is_given_up() -> None:
    calls, waiting = parked()
    image = ImagePart(url="data:image/png;base64,AA==", detail="high", param="p")
    assert calls.claim(History(continued(*TOLD, output("a", (image,)), output("b")))) is None
    assert (waiting.open, len(calls)) == (False, 0)


@pytest.mark.parametrize("named", [{"name": "f"}, {"namespace": "crm"}], ids=["name", "namespace"])
async def test_a_turn_whose_output_names_its_function_is_given_up(named: dict[str, str]) -> None:
    """Codex would leave the name out."""
    calls, waiting = parked()
    assert calls.claim(History(continued(*TOLD, OUTPUTS[0], replace(OUTPUTS[1], **named)))) is None
    assert (waiting.open, len(calls)) == (False, 0)


async def test_a_namespace_may_be_missing_from_an_account_but_not_be_another() -> None:
    made = replace(call("a"), namespace="functions")
    for told_as, goes_on in ((None, True), ("functions", True), ("crm", False)):
        calls, _ = parked(Leg(items=(made,), shown=("a",)))
        claim = calls.claim(History(continued(replace(made, namespace=told_as), output("a"))))
        assert (claim is not None) is goes_on


async def test_outputs_that_the_gateway_gives_itself_go_along() -> None:
    alone = Leg(items=(call("a"), call("b")), shown=("a",), presets=(output("b", "Not run."),))
    calls, _ = parked(alone)
    claim = calls.claim(History(continued(call("a"), output("a"))))
    assert claim is not None
    assert claim.outputs == [output("a"), output("b", "Not run.")]


async def test_a_turn_that_nobody_comes_back_to_is_given_up_in_time() -> None:
    given_up = asyncio.Event()

    class Leaving(ScriptedThread):
        def close(self) -> None:
            given_up.set()

    calls = ParkedTurns(ttl_s=0.01)
    calls.park(History(ASKED), Leaving(ScriptedBackend([])), LEG)
    async with asyncio.timeout(25):
        await given_up.wait()
    assert len(calls) == 0


@pytest.mark.promise("tools.parked.bounded")
async def test_the_oldest_turn_makes_room() -> None:
    calls = ParkedTurns(ttl_s=60)
    waiting = [thread() for _ in range(MOST_PARKED + 2)]
    for number, each in enumerate(waiting):
        calls.park(History(ASKED), each, Leg(items=(call(f"c{number}"),), shown=(f"c{number}",)))
    assert [each.open for each in waiting] == [False, False, *[True] * MOST_PARKED]
    assert len(calls) == MOST_PARKED
    calls.close()
    assert (any(each.open for each in waiting), len(calls)) == (False, 0)


async def test_what_was_said_here_is_told_to_other_replicas_and_what_was_learnt_from_them_is_not() -> None:
    calls, told = ParkedTurns(ttl_s=60), list[tuple[str, Leg]]()
    calls.share = lambda client, leg: told.append((client, leg))
    calls.remember("elsewhere", LEG)
    calls.said("gone", LEG)
    calls.park(History(changed(ASKED, client="here")), thread(), LEG)
    assert told == [("gone", LEG), ("here", LEG)]
    calls.close()


async def test_a_client_repeats_the_calls_that_a_server_answered_and_their_outputs() -> None:
    answered, given_by = call("s"), output("s", "sunny")
    leg = Leg(items=(answered, given_by, call("a")), shown=("a",), served=frozenset("s"))
    for told, fits in (((answered, given_by, call("a")), True), ((call("a"),), False)):
        assert leg.is_repeated_by(told, ()) is fits


async def test_the_client_with_most_parked_turns_loses_the_oldest_of_its_own() -> None:
    calls, mine = ParkedTurns(ttl_s=60), thread()
    calls.park(History(changed(ASKED, client="me")), mine, LEG)
    theirs = [thread() for _ in range(MOST_PARKED + 1)]
    for number, each in enumerate(theirs):
        calls.park(
            History(changed(ASKED, client="them")), each, Leg(items=(call(f"c{number}"),), shown=(f"c{number}",))
        )
    assert mine.open
    assert [each.open for each in theirs] == [False, False, *[True] * (MOST_PARKED - 1)]
    calls.close()


async def test_parked_turns_are_bounded_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParkedTurns, "most_parked_characters", 1000)
    calls, waiting = ParkedTurns(ttl_s=60), [thread() for _ in range(3)]
    for number, each in enumerate(waiting):
        calls.park(History(ASKED), each, Leg(items=(call(f"c{number}", "x" * 400),), shown=(f"c{number}",)))
    assert [each.open for each in waiting] == [False, True, True]
    calls.close()


async def test_a_parked_turn_holds_nothing_of_its_history() -> None:
    calls, large = ParkedTurns(ttl_s=60), "x" * 999
    held = sys.getrefcount(large)
    calls.park(History(changed(ASKED, items=(said(large),), instructions=large)), thread(), LEG)
    assert sys.getrefcount(large) == held
    following = changed(ASKED, items=(said(large), *LEG.items, *map(output, LEG.shown)), instructions=large)
    assert calls.claim(History(following)) is not None


async def test_a_dead_turn_is_not_counted_and_goes_before_one_that_waits() -> None:
    calls, waiting = ParkedTurns(ttl_s=60), [thread() for _ in range(MOST_PARKED + 1)]
    for number, each in enumerate(waiting):
        calls.park(History(ASKED), each, Leg(items=(call(f"c{number}"),), shown=(f"c{number}",)))
        waiting[1].alive = False
    assert waiting[0].open
    assert len(calls) == MOST_PARKED
    calls.close()


async def test_what_one_client_has_said_is_not_forgotten_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParkedTurns, "most_remembered", 3)
    calls = ParkedTurns(ttl_s=60)
    calls.remember("me", Leg(items=(call("mine"),), shown=("mine",)))
    for number in range(5):
        calls.remember("them", Leg(items=(call(f"c{number}"),), shown=(f"c{number}",)))
    assert calls.knows("me", "mine")
    assert [calls.knows("them", f"c{number}") for number in range(5)] == [False, False, False, True, True]


async def test_a_call_id_that_comes_again_gives_the_earlier_turn_up() -> None:
    calls, first = parked()
    second = thread()
    calls.park(History(ASKED), second, LEG)
    assert (first.open, second.open, len(calls)) == (False, True, 1)


async def test_another_turn_that_waits_for_one_of_the_call_ids_too_is_no_hindrance() -> None:
    calls, waiting = parked()
    other = thread()
    elsewhere = History(changed(ASKED, items=(said("something else"),)))
    calls.park(elsewhere, other, Leg(items=(call("b"),), shown=("b",)))
    claim = calls.claim(History(continued(*TOLD, *OUTPUTS)))
    assert claim is not None
    assert (claim.thread, other.open, len(calls)) == (waiting, True, 1)


async def test_the_same_call_id_at_another_client_is_another_turn() -> None:
    calls, first = parked()
    second = thread()
    calls.park(History(changed(ASKED, client="other")), second, LEG)
    assert (first.open, second.open, len(calls)) == (True, True, 2)
    claims = [
        calls.claim(History(changed(continued(*TOLD, *OUTPUTS), client=client))) for client in ("other", "", "third")
    ]
    assert [claim and claim.thread for claim in claims] == [second, first, None]


@pytest.mark.parametrize("intervened", [False, True])
async def test_a_turn_that_goes_on_knows_whether_the_gateway_spoke_in_it(intervened: bool) -> None:
    calls, _ = parked(dataclasses.replace(LEG, intervened=intervened))
    claim = calls.claim(History(continued(*TOLD, *OUTPUTS)))
    assert claim is not None
    assert claim.intervened is intervened


async def test_deep_arguments_are_compared_as_they_are() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    calls, _ = parked(Leg(items=(call("a", deep),), shown=("a",)))
    assert calls.claim(History(continued(call("a", f"{deep} "), output("a")))) is None
    assert calls.claim(History(continued(call("a", deep), output("a")))) is not None


async def test_the_models_own_words_are_put_back_into_a_history() -> None:
    calls, _ = parked()
    calls.close()
    history: tuple[Item, ...] = (
        said("hi"),
        *TOLD,
        *reversed(OUTPUTS),
        said("Thanks."),
        said("You're welcome.", "assistant"),
    )
    assert restored(calls, history) == (said("hi"), *LEG.items, *OUTPUTS, *history[-2:])


@pytest.mark.parametrize(
    "history",
    [
        (said("hi"), ANSWERED, call("a", '{"n": 2}'), call("b"), *OUTPUTS),
        (said("hi"), *TOLD[:2], output("a")),
        (said("hi"), call("x"), output("x")),
        (said("hi"), THOUGHT, said("Hm?"), *TOLD, *OUTPUTS),
        (said("hi"), replace(THOUGHT, summary=()), said("Hm?"), *TOLD, *OUTPUTS),
        (RawItem(item={"type": "custom_tool_call", "call_id": "a"}), said("hi", "assistant")),
    ],
    ids=["edited", "a call dropped", "unknown", "a thought moved", "a part of it moved", "others' items"],
)
async def test_a_history_that_tells_it_otherwise_is_left_as_it_is(history: tuple[Item, ...]) -> None:
    calls, _ = parked()
    assert restored(calls, history) == history


async def test_outputs_of_other_calls_are_not_lost_when_words_are_put_back() -> None:
    calls, _ = parked()
    history: tuple[Item, ...] = (call("x"), said("hi"), *TOLD, *OUTPUTS, output("x"))
    assert restored(calls, history) == (call("x"), said("hi"), *LEG.items, *OUTPUTS, output("x"))


async def test_the_output_of_another_call_stays_behind_the_leg() -> None:
    calls, _ = parked()
    history: tuple[Item, ...] = (call("x"), said("hi"), *TOLD, OUTPUTS[0], output("x"), OUTPUTS[1])
    assert restored(calls, history) == (*history[:2], *LEG.items, OUTPUTS[0], output("x"), OUTPUTS[1])


async def test_a_reminder_of_the_gateway_is_not_expected_in_the_clients_history() -> None:
    calls, _ = parked(Leg(items=(ANSWERED, said("Call now."), call("a")), shown=("a",), intervened=True))
    assert calls.claim(History(continued(ANSWERED, call("a"), output("a")))) is not None


async def test_a_turn_that_was_claimed_does_not_expire() -> None:
    """Its timer would close the next turn with the same call id."""
    calls, _ = parked()
    (expiry,) = [kept.expiry for kept in calls._kept.values()]
    assert calls.claim(History(continued(*TOLD, *OUTPUTS))) is not None
    assert expiry.cancelled()


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParkedTurns, "most_remembered", 1)
    calls, _ = parked()
    calls.park(History(ASKED), thread(), Leg(items=(THOUGHT, call("c")), shown=("c",)))
    assert restored(calls, (*TOLD, *OUTPUTS)) == (*TOLD, *OUTPUTS)
    assert restored(calls, (call("c"), output("c"))) == (THOUGHT, call("c"), output("c"))


@pytest.mark.parametrize(
    ("sizes", "known"),
    [
        ([400, 400], [True, True]),
        ([400, 400, 400], [False, True, True]),
        ([100, 100, 900], [False, False, True]),
        ([100, 2000], [False, False]),
    ],
    ids=["room for all", "the oldest goes", "a large one", "too large for itself"],
)
async def test_what_is_remembered_is_bounded_in_size(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], known: list[bool]
) -> None:
    monkeypatch.setattr(ParkedTurns, "most_remembered_characters", 1000)
    calls = ParkedTurns(ttl_s=60)
    for number, size in enumerate(sizes):
        calls.remember("me", Leg(items=(call(f"c{number}", "x" * size),), shown=(f"c{number}",)))
    assert [calls.knows("me", f"c{number}") for number in range(len(sizes))] == known


async def test_what_is_remembered_again_takes_its_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParkedTurns, "most_remembered_characters", 1000)
    calls = ParkedTurns(ttl_s=60)
    for call_id in ("a", "b", "b", "b"):
        calls.remember("me", Leg(items=(call(call_id, "x" * 400),), shown=(call_id,)))
    assert calls.knows("me", "a")


async def test_a_long_history_is_put_right_without_comparing_all_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, compared = 200, 0
    calls = ParkedTurns(ttl_s=60)
    history: list[Item] = [said("hi")]
    for number in range(rounds):
        thought, made = replace(THOUGHT, encrypted=f"SECRET {number}"), call(f"c{number}")
        calls.remember("", Leg(items=(thought, made), shown=(made.call_id,)))
        history += [thought, made, output(made.call_id)]
    equal = ModelVisible.__eq__

    def counted(self: ModelVisible, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equal(self, other)

    monkeypatch.setattr(ModelVisible, "__eq__", counted)
    result = restored(calls, tuple(history))
    assert compared <= 5 * rounds
    assert result == tuple(history)
