"""A history that has grown too long is compacted before its turn: the model writes a summary, which then stands for it.

What is asked of the model for that, and what the request is afterwards; the turns themselves are run by `engine.turns`.
"""

import asyncio
from collections.abc import Sequence

from turnbridge.engine.input_tokens import counted
from turnbridge.engine.ports import Tokenizer
from turnbridge.turn.errors import OutputRejected
from turnbridge.turn.events import TextDelta, TurnCompleted, TurnEvent, TurnFailed, Usage
from turnbridge.turn.items import Item, Message, TextPart, replace
from turnbridge.turn.request import Compaction, PlainText, TurnRequest


async def is_due(request: TurnRequest, plan: Compaction, tokenizer: Tokenizer) -> bool:
    """Tell whether the history is longer than the client wants it, and has a part that a summary can replace."""
    if plan.tail == len(request.items):
        return False
    await tokenizer.ready()
    # The history may be megabytes.
    return await asyncio.to_thread(counted, request.spec, request.items, tokenizer) > plan.threshold


def summary_request(request: TurnRequest, plan: Compaction) -> TurnRequest:
    """Return the turn that writes the summary: it has no tools, so that the model can do nothing else."""
    spec = replace(request.spec, tools=(), servers=(), web_search=None, image_generation=False, output=PlainText())
    items = (*_replaced(request, plan), plan.prompt)
    return TurnRequest(spec=spec, items=items, metadata=request.metadata, large=request.large)


def summary_in(events: Sequence[TurnEvent]) -> tuple[str, Usage]:
    """Return the summary of a turn that has ended, and its tokens; raises why there is none."""
    ending = events[-1]
    if isinstance(ending, TurnFailed):
        raise ending.error
    summary = "".join(event.text for event in events if isinstance(event, TextDelta))
    if not isinstance(ending, TurnCompleted) or not summary.strip():
        problem = "The history exceeds `compact_threshold`, and the model wrote no whole summary of it. Try again."
        raise OutputRejected(problem, code="compaction_failed")
    return summary, ending.usage


def compacted(request: TurnRequest, plan: Compaction, summary: str) -> TurnRequest:
    """Return the request with the summary in place of its history."""
    told = Message(role="developer", parts=(TextPart(text=plan.introduction + summary),))
    tail = request.items[len(request.items) - plan.tail :]
    return replace(request, items=(*plan.kept, told, *tail))


def _replaced(request: TurnRequest, plan: Compaction) -> tuple[Item, ...]:
    return request.items[: len(request.items) - plan.tail]
