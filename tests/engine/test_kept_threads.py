"""Which threads a runner keeps warm after a turn that waited for its client."""

from collections.abc import Sequence

import pytest

from tests.engine.scripted_backend import (
    USAGE,
    DirectJudge,
    NoServers,
    ScriptedBackend,
    ScriptedMedia,
    Turn,
    WordTokenizer,
    saying,
)
from tests.support.turn_requests import changed, turn_request
from turnbridge.engine.kept_threads import ParkedTurns, WarmThreads
from turnbridge.engine.turn_rules import Watch
from turnbridge.engine.turns import TurnRunner
from turnbridge.turn.events import CallsAwaited, FunctionCallDone, TurnCompleted
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Item, Message, TextPart
from turnbridge.turn.request import Tool, TurnRequest

pytestmark = pytest.mark.anyio

TOOL = Tool(
    name="f", description="", parameters={"type": "object", "properties": {"n": {"type": "integer"}}}, strict=True
)
ASKED = turn_request(model="m", items=(Message(role="user", parts=(TextPart(text="hi"),)),), tools=(TOOL,))
RIGHT, WRONG = '{"n": 1}', '{"n": "one"}'


def calling(*call_ids: str, arguments: str = RIGHT) -> Turn:
    return [[*(FunctionCallDone(f"fc_{each}", each, "f", arguments) for each in call_ids), CallsAwaited(USAGE)]]


async def threads_kept(request: TurnRequest, turns: Sequence[Turn], answered: Sequence[str]) -> int:
    """Run turns that end in an answer, giving the outputs of these calls in between, and count the warm threads."""
    warm = WarmThreads(most=9, ttl_s=60)
    calls = ParkedTurns(ttl_s=60)
    backend = ScriptedBackend([*turns, saying("Done.")])
    runner = TurnRunner(
        backend,
        ScriptedMedia(),
        WordTokenizer(),
        DirectJudge(),
        calls,
        warm,
        Watch(silence_s=60, whole_s=60),
        NoServers(),
    )
    endings = [[event async for batch in runner.start(request).events() for event in batch][-1]]
    for call_id in answered:
        told: tuple[Item, ...] = (
            FunctionCall(call_id=call_id, name="f", arguments=RIGHT),
            FunctionCallOutput(call_id=call_id, output=""),
        )
        request = changed(request, items=(*request.items, *told))
        endings.append([event async for batch in runner.start(request).events() for event in batch][-1])
    assert [type(each) for each in endings] == [*[CallsAwaited] * len(answered), TurnCompleted]
    assert len(backend.opened) == 1, "all in one thread"
    kept = len(warm)
    warm.close()
    return kept


@pytest.mark.parametrize(
    ("request_", "turns", "answered", "kept"),
    [
        (ASKED, [calling("a")], ["a"], 1),
        (ASKED, [calling("a"), calling("b")], ["a", "b"], 1),
        (ASKED, [calling("a", arguments=WRONG), calling("b")], ["b"], 0),
        (ASKED, [calling("a", arguments=WRONG), calling("b"), calling("c")], ["b", "c"], 0),
        (changed(ASKED, parallel_calls=False), [calling("a", "b")], ["a"], 0),
    ],
    ids=["calls", "calls twice", "a correction", "a correction before the last wait", "a call that is not run"],
)
async def test_a_thread_in_which_the_gateway_spoke_before_it_waited_is_not_kept_warm(
    request_: TurnRequest, turns: Sequence[Turn], answered: Sequence[str], kept: int
) -> None:
    assert await threads_kept(request_, turns, answered) == kept
