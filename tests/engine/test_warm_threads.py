"""How many threads are kept, for how long, and how much of their text: the oldest makes room."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.engine.scripted_backend import ScriptedBackend, ScriptedConversation
from turnbridge.engine.warm_threads import Told, WarmRules, WarmThreads
from turnbridge.turn.items import Message, TextPart
from turnbridge.turn.request import TurnRequest

pytestmark = pytest.mark.anyio


class Thread(ScriptedConversation):
    """A thread that tells when it is given up."""

    def __init__(self) -> None:
        super().__init__(ScriptedBackend([]))
        self.given_up = asyncio.Event()

    def close(self) -> None:
        self.given_up.set()


def said(text: str) -> TurnRequest:
    return TurnRequest(model="m", items=(Message(role="user", parts=(TextPart(text=text),)),))


def kept_after(rules: WarmRules, texts: Sequence[str]) -> tuple[list[bool], int]:
    """Return which of these histories still have their thread, and how many threads are held."""
    warm, threads = WarmThreads(rules), [Thread() for _ in texts]
    for text, thread in zip(texts, threads, strict=True):
        warm.keep(Told(said(text)), (), thread)
    found = [not thread.given_up.is_set() for thread in threads], len(warm)
    warm.close()
    assert all(thread.given_up.is_set() for thread in threads)
    return found


@pytest.mark.parametrize(
    ("most", "characters", "texts", "kept"),
    [
        (3, 1000, ["a", "b", "c"], [True, True, True]),
        (2, 1000, ["a", "b", "c", "d"], [False, False, True, True]),
        (0, 1000, ["a"], [False]),
        (9, 100, ["a" * 40, "b" * 40, "c" * 40], [False, True, True]),
        (9, 100, ["a", "b", "c" * 90], [False, True, True]),
        (9, 100, ["a", "b" * 101], [False, False]),
        (9, 1000, ["a", "a"], [False, True]),
    ],
    ids=["room for all", "number", "none at all", "text", "a large one", "too large for itself", "the same history"],
)
async def test_the_oldest_makes_room(most: int, characters: int, texts: list[str], kept: list[bool]) -> None:
    rules = WarmRules(most=most, ttl_s=60, most_characters=characters)
    assert kept_after(rules, texts) == (kept, sum(kept))


async def test_a_thread_is_given_up_when_its_time_is_over() -> None:
    warm, thread = WarmThreads(WarmRules(most=9, ttl_s=0.01, most_characters=1000)), Thread()
    warm.keep(Told(said("a")), (), thread)
    async with asyncio.timeout(5):
        await thread.given_up.wait()
    assert len(warm) == 0
