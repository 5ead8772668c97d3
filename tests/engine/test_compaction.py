"""When a history is compacted, what the model is asked for that, and what the request is afterwards."""

import pytest

from tests.engine.scripted_backend import USAGE, WordTokenizer, saying
from tests.support.turn_requests import turn_request
from turnbridge.engine.compaction import compacted, is_due, summary_in, summary_request
from turnbridge.engine.input_tokens import counted
from turnbridge.turn.errors import OutputRejected, UpstreamFailed
from turnbridge.turn.events import TurnEvent, TurnFailed, TurnIncomplete
from turnbridge.turn.items import Message, TextPart
from turnbridge.turn.mcp import McpServer
from turnbridge.turn.request import AnyJsonObject, Compaction, Tool, WebSearch

pytestmark = pytest.mark.anyio


def said(text: str, role: str = "user") -> Message:
    return Message(role=role, parts=(TextPart(text=text),))  # type: ignore[arg-type]  # One of the roles.


OLD, NEW, KEPT, PROMPT = said("old"), said("new"), said("kept"), said("Sum up.")
ASKED = turn_request(items=(OLD, NEW))
TOKENIZER = WordTokenizer()
TOKENS = counted(ASKED.spec, ASKED.items, TOKENIZER)


def plan(*, threshold: int = 0, tail: int = 1) -> Compaction:
    return Compaction(threshold=threshold, prompt=PROMPT, kept=(KEPT,), introduction="So far: ", tail=tail)


@pytest.mark.parametrize(
    ("threshold", "tail", "due"),
    [(TOKENS - 1, 1, True), (TOKENS, 1, False), (TOKENS - 1, 0, True), (TOKENS - 1, 2, False)],
    ids=["beyond", "just within", "nothing new", "all new"],
)
async def test_a_history_is_compacted_beyond_its_threshold_unless_all_of_it_is_new(
    threshold: int, tail: int, due: bool
) -> None:
    assert await is_due(ASKED, plan(threshold=threshold, tail=tail), TOKENIZER) is due


@pytest.mark.parametrize(("tail", "left"), [(0, ()), (1, (NEW,))])
def test_the_summary_stands_for_all_but_what_is_new(tail: int, left: tuple[Message, ...]) -> None:
    told = said("So far: it was old.", "developer")
    assert compacted(ASKED, plan(tail=tail), "it was old.").items == (KEPT, told, *left)
    replaced = ASKED.items[: 2 - tail]
    assert summary_request(ASKED, plan(tail=tail)).items == (*replaced, PROMPT)


def test_the_model_can_do_nothing_but_write_the_summary() -> None:
    server = McpServer(label="wx", url="https://mcp.example", param="tools[0]")
    tool = Tool(name="f", description="", parameters={})
    able = {"tools": (tool,), "servers": (server,), "web_search": WebSearch(), "image_generation": True}
    asked = turn_request(items=(OLD, NEW), output=AnyJsonObject(), **able)
    assert summary_request(asked, plan()).spec == ASKED.spec


def test_an_answer_that_is_whole_is_the_summary() -> None:
    assert summary_in(events("It was ", "old.")) == ("It was old.", USAGE)


def events(*pieces: str) -> list[TurnEvent]:
    return [event for batch in saying(*pieces) for event in batch]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (events(" "), OutputRejected),
        ([*events("It was")[:-1], TurnIncomplete("max_output_tokens", USAGE)], OutputRejected),
        ([TurnFailed(UpstreamFailed("x"))], UpstreamFailed),
    ],
    ids=["blank", "cut off", "failed"],
)
def test_without_a_whole_summary_the_turn_fails(answer: list[TurnEvent], error: type[Exception]) -> None:
    with pytest.raises(error):
        summary_in(answer)
