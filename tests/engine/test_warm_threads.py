"""Which threads are kept, how many and for how long, whose go first, and that nothing of their text is held."""

import asyncio
import sys
from collections.abc import Sequence

import pytest

from tests.engine.scripted_backend import ScriptedBackend, ScriptedThread
from tests.support.turn_requests import changed, turn_request
from turnbridge.engine.history import History
from turnbridge.engine.kept_threads import WarmThreads
from turnbridge.turn.items import (
    NARRATION,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Message,
    RawItem,
    Reasoning,
    TextPart,
    replace,
)
from turnbridge.turn.request import AnyJsonObject, Tool, TurnRequest

pytestmark = pytest.mark.anyio


class Thread(ScriptedThread):
    """A thread that tells when it is given up."""

    def __init__(self) -> None:
        super().__init__(ScriptedBackend([]))
        self.given_up = asyncio.Event()

    def close(self) -> None:
        self.given_up.set()


LARGE = "x" * 999_900
THOUGHT = Reasoning(id="rs", summary=(), content=None, encrypted="SECRET")
SEARCH = RawItem(item={"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}})
ANSWER = Message(role="assistant", parts=(TextPart(text="Yes."),))
NARRATED = replace(ANSWER, phase=NARRATION)
CALL = FunctionCall(call_id="c", name="f", arguments="{}")


def user(text: str) -> Message:
    return Message(role="user", parts=(TextPart(text=text),))


def asked(*items: Item) -> TurnRequest:
    return turn_request(model="m", items=items)


def kept_after(most: int, requests: Sequence[TurnRequest]) -> tuple[list[bool], int]:
    """Return which of these histories still have their thread, and how many threads are held."""
    warm, threads = WarmThreads(most=most, ttl_s=60), [Thread() for _ in requests]
    for request, thread in zip(requests, threads, strict=True):
        warm.keep_after(History(request), (ANSWER,), thread)
    found = [not thread.given_up.is_set() for thread in threads], len(warm)
    warm.close()
    assert all(thread.given_up.is_set() for thread in threads)
    return found


def taken(request: TurnRequest, said: Sequence[Item], following: TurnRequest) -> tuple[object, tuple[Item, ...]] | None:
    """Return the thread of a request, if another one goes on with it."""
    warm = WarmThreads(most=9, ttl_s=60)
    warm.keep_after(History(request), said, Thread())
    found = warm.take_for(History(following))
    warm.close()
    return found


@pytest.mark.parametrize(
    ("most", "texts", "kept"),
    [
        (3, ["a", "b", "c"], [True, True, True]),
        (2, ["a", "b", "c", "d"], [False, False, True, True]),
        (0, ["a"], [False]),
        (9, ["a", "a"], [False, True]),
    ],
    ids=["room for all", "number", "none at all", "the same history"],
)
async def test_the_oldest_makes_room(most: int, texts: list[str], kept: list[bool]) -> None:
    assert kept_after(most, [asked(user(text)) for text in texts]) == (kept, sum(kept))


@pytest.mark.parametrize(
    "large",
    [
        asked(Message(role="user", parts=(ImagePart(url=LARGE, param="p"),))),
        asked(user("a"), replace(CALL, arguments=LARGE), FunctionCallOutput(call_id="c", output="")),
        asked(user("a"), CALL, FunctionCallOutput(call_id="c", output=LARGE)),
        asked(user("a"), CALL, FunctionCallOutput(call_id="c", output=(TextPart(text=LARGE), TextPart(text="")))),
        asked(user("a"), RawItem(item={"type": "custom", "deep": [{"inside": LARGE}]})),
        changed(asked(user("a")), instructions=LARGE),
        changed(asked(user("a")), tools=(Tool(name="f", description="", parameters={"description": LARGE}),)),
    ],
    ids=["image", "arguments", "output", "output of parts", "other item", "instructions", "tool"],
)
async def test_nothing_of_a_large_conversation_is_held(large: TurnRequest) -> None:
    warm = WarmThreads(most=9, ttl_s=60)
    held = sys.getrefcount(LARGE)
    warm.keep_after(History(large), (ANSWER,), Thread())
    assert (len(warm), sys.getrefcount(LARGE)) == (1, held)
    assert warm.take_for(History(changed(large, items=(*large.items, ANSWER, user("And?"))))) is not None


async def test_the_client_that_keeps_most_threads_loses_the_oldest_of_its_own() -> None:
    mine, theirs = changed(asked(user("mine")), client="me"), changed(asked(user("theirs")), client="them")
    many = [changed(mine, items=(user(str(number)),)) for number in range(5)]
    kept, count = kept_after(3, [theirs, *many])
    assert (kept, count) == ([True, False, False, False, True, True], 3)


async def test_a_dead_thread_goes_before_one_that_lives() -> None:
    warm = WarmThreads(most=2, ttl_s=60)
    threads = [Thread() for _ in range(3)]
    for number, thread in enumerate(threads):
        warm.keep_after(History(asked(user(str(number)))), (ANSWER,), thread)
        threads[1].alive = False
    assert len(warm) == 2
    assert [thread.given_up.is_set() for thread in threads] == [False, True, False]
    warm.close()


async def test_a_thread_is_given_up_when_its_time_is_over() -> None:
    warm, thread = WarmThreads(most=9, ttl_s=0.01), Thread()
    warm.keep_after(History(asked(user("a"))), (ANSWER,), thread)
    async with asyncio.timeout(25):
        await thread.given_up.wait()
    assert len(warm) == 0


@pytest.mark.parametrize("before", [(), (THOUGHT,), (ANSWER,)], ids=["question", "thought", "answer"])
@pytest.mark.parametrize(
    "said",
    [(), (THOUGHT,), (THOUGHT, NARRATED), (SEARCH,)],
    ids=["nothing", "only a thought", "only narration", "only a search"],
)
async def test_a_thread_without_an_answer_is_not_kept(before: tuple[Item, ...], said: tuple[Item, ...]) -> None:
    warm, thread = WarmThreads(most=9, ttl_s=60), Thread()
    warm.keep_after(History(asked(user("a"), *before)), said, thread)
    assert (len(warm), thread.given_up.is_set()) == (0, True)


@pytest.mark.parametrize(
    "told", [(ANSWER,), (THOUGHT, ANSWER), (THOUGHT, NARRATED, ANSWER)], ids=["answer", "thought", "all"]
)
async def test_what_a_thread_holds_is_not_shown_to_it_again(told: tuple[Item, ...]) -> None:
    found = taken(asked(user("a")), (THOUGHT, NARRATED, ANSWER), asked(user("a"), *told, user("b")))
    assert found is not None
    assert found[1] == (user("b"),)


async def test_a_request_that_adds_nothing_continues_nothing() -> None:
    assert taken(asked(user("a")), (ANSWER,), asked(user("a"), ANSWER)) is None


async def test_a_dead_thread_is_closed_and_not_taken() -> None:
    warm, thread = WarmThreads(most=9, ttl_s=60), Thread()
    warm.keep_after(History(asked(user("a"))), (ANSWER,), thread)
    thread.alive = False
    assert warm.take_for(History(asked(user("a"), ANSWER, user("b")))) is None
    assert thread.given_up.is_set()


async def test_the_thread_that_holds_most_of_a_history_is_taken() -> None:
    warm, short, long = WarmThreads(most=9, ttl_s=60), Thread(), Thread()
    warm.keep_after(History(asked(user("a"))), (ANSWER,), short)
    warm.keep_after(History(asked(user("a"), ANSWER, user("b"))), (ANSWER,), long)
    following = History(asked(user("a"), ANSWER, user("b"), ANSWER, user("c")))
    assert warm.take_for(following) == (long, (user("c"),))
    assert warm.take_for(following) == (short, (user("b"), ANSWER, user("c")))
    warm.close()


async def test_a_thread_does_not_go_on_if_a_function_is_named_otherwise() -> None:
    call = replace(CALL, namespace="crm")
    output = FunctionCallOutput(call_id="c", output="", name="f", namespace="crm")
    before = asked(user("a"), call, output)
    assert taken(before, (ANSWER,), asked(*before.items, ANSWER, user("b"))) is not None
    for edited in (
        (replace(call, namespace=None), output),
        (call, replace(output, namespace=None)),
        (call, replace(output, name=None)),
    ):
        assert taken(before, (ANSWER,), asked(user("a"), *edited, ANSWER, user("b"))) is None


@pytest.mark.parametrize("arguments", ["[" * 100_000 + "]" * 100_000, "[" * 100_000], ids=["deep", "endless"])
async def test_arguments_that_are_nested_too_deep_to_be_read_are_compared_as_they_are(arguments: str) -> None:
    call, output = replace(CALL, arguments=arguments), FunctionCallOutput(call_id="c", output="")
    before = asked(user("a"), call, output)
    assert taken(before, (ANSWER,), asked(*before.items, ANSWER, user("b"))) is not None
    edited = asked(user("a"), replace(call, arguments=f"{arguments} "), output, ANSWER, user("b"))
    assert taken(before, (ANSWER,), edited) is None


def tool(constant: bool | float) -> tuple[Tool, ...]:
    return (Tool(name="f", description="", parameters={"properties": {"a": {"const": constant}}}),)


@pytest.mark.parametrize(
    ("kept", "following"),
    [
        (changed(asked(), tools=tool(1)), changed(asked(), tools=tool(True))),
        (changed(asked(), tools=tool(1)), changed(asked(), tools=tool(1.0))),
        (changed(asked(), tools=tool(False)), changed(asked(), tools=tool(0))),
        (asked(), changed(asked(), output=AnyJsonObject())),
    ],
    ids=["1 is not true", "1 is not 1.0", "false is not 0", "any text is not any JSON"],
)
async def test_settings_that_python_or_json_might_take_for_equal_differ(
    kept: TurnRequest, following: TurnRequest
) -> None:
    before, after = (user("a"),), (user("a"), ANSWER, user("b"))
    assert taken(changed(kept, items=before), (ANSWER,), changed(kept, items=after)) is not None
    assert taken(changed(kept, items=before), (ANSWER,), changed(following, items=after)) is None
