"""The client's rules for calls that Codex does not know: valid arguments, one at a time, at least one.

What the gateway itself says to the model to enforce them is part of the turn, and is recorded with it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from turnbridge.engine.history_match import Leg
from turnbridge.engine.ports import Batches, Judge, Thread
from turnbridge.turn.errors import OutputRejected
from turnbridge.turn.events import (
    CallsAwaited,
    FunctionCallDone,
    MessageDone,
    ReasoningDone,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnIncomplete,
    Usage,
    WebSearchDone,
)
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Item, Json, Message, RawItem, Reasoning, TextPart
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import replace

Judged: TypeAlias = tuple[Sequence[TurnEvent], Batches | None]
"""What the client may see, and how the turn continues if it does not end here."""

NO_PROBLEMS: Mapping[str, str] = MappingProxyType({})

# A model that was corrected twice does not get it right the third time.
MOST_CORRECTIONS = 2

NOT_RUN_ALONE = "Not run: this client runs one call at a time. Call it again if it is still needed."
NOT_RUN_WITH_INVALID = "Not run: another call made at the same time had invalid arguments. Call it again."
CALL_NOW = "You must call one of the available tools now; an answer without a tool call is not accepted here."


class ToolRules:
    """Applies the rules to the turn of one request, and records what the model said up to its calls."""

    def __init__(self, thread: Thread, request: TurnRequest) -> None:
        self._thread = thread
        self._request = request
        self._said: list[Item] = []
        self.spent = Usage()
        """The tokens of the legs and attempts that are over."""
        self._corrections = 0
        self._reminded = False
        # A web search counts as a call, and needs no output.
        self._searched = False
        self.leg: Leg | None = None
        self.intervened = False
        """Whether the gateway said something in this turn that no client's history has, also before it was parked."""

    @property
    def said(self) -> tuple[Item, ...]:
        """Return what the model has said so far, as the items of a later history."""
        return tuple(self._said)

    async def problems(self, batch: Sequence[TurnEvent], judge: Judge) -> dict[str, str]:
        """Return what is wrong with the arguments of calls to strict tools, by call id."""
        strict = {tool.name: tool.parameters for tool in self._request.spec.tools if tool.strict}
        calls = [event for event in batch if isinstance(event, FunctionCallDone) and event.name in strict]
        found = [(call.call_id, await judge.problem(strict[call.name], call.arguments)) for call in calls]
        return {call_id: problem for call_id, problem in found if problem is not None}

    def judge(self, batch: Sequence[TurnEvent], problems: Mapping[str, str] = NO_PROBLEMS) -> Judged:
        """Apply the rules to a batch of events; `problems` are those of the calls in it."""
        # Nearly all events are deltas, which no rule concerns.
        for event in [event for event in batch if not isinstance(event, TextDelta)]:
            if (item := _item_of(event)) is not None:
                self._said.append(item)
            self._searched = self._searched or isinstance(event, WebSearchDone)
        ending = batch[-1]
        if isinstance(ending, TextDelta):
            return batch, None
        if isinstance(ending, CallsAwaited):
            self.spent += ending.usage
            # Calls are reported last, and may have been made before other items.
            order: dict[Json, int] = {item_id: place for place, item_id in enumerate(ending.order)}
            self._said.sort(key=lambda item: order.get(_id_of(item), -1))
            return self._judge_calls(batch, ending.order, problems)
        if isinstance(ending, TurnCompleted):
            self.spent += ending.usage
            if self._request.must_call and not self._searched:
                return self._remind(batch[:-1])
            return [*batch[:-1], replace(ending, usage=self.spent)], None
        if isinstance(ending, TurnIncomplete | TurnFailed) and not ending.usage.estimated:
            return [*batch[:-1], replace(ending, usage=self.spent + ending.usage)], None
        return batch, None

    def _judge_calls(self, batch: Sequence[TurnEvent], order: tuple[str, ...], problems: Mapping[str, str]) -> Judged:
        calls = [event for event in batch if isinstance(event, FunctionCallDone)]
        if problems:
            rest = [event for event in batch[:-1] if not isinstance(event, FunctionCallDone)]
            return self._correct(rest, calls, problems)
        shown = calls if self._request.parallel_calls else calls[:1]
        presets = tuple(FunctionCallOutput(call_id=call.call_id, output=NOT_RUN_ALONE) for call in calls[len(shown) :])
        self.intervened = self.intervened or bool(presets)
        call_ids = tuple(call.call_id for call in shown)
        self.leg = Leg(items=self.said, shown=call_ids, presets=presets, intervened=self.intervened)
        passed = [event for event in batch[:-1] if not isinstance(event, FunctionCallDone) or event in shown]
        return [*passed, CallsAwaited(self.spent, order)], None

    def _correct(self, rest: Sequence[TurnEvent], calls: list[FunctionCallDone], problems: Mapping[str, str]) -> Judged:
        """Answer the calls as failed, so that the model repeats them."""
        if self._corrections == MOST_CORRECTIONS:
            problem = f"The model called a strict tool with invalid arguments: {next(iter(problems.values()))}"
            return [*rest, TurnFailed(OutputRejected(problem, code="invalid_tool_arguments"), self.spent)], None
        self._corrections += 1
        self.intervened = True
        texts = {
            call_id: f"Invalid arguments, not run: {problem} Call it again with valid arguments."
            for call_id, problem in problems.items()
        }
        outputs = [
            FunctionCallOutput(call_id=call.call_id, output=texts.get(call.call_id, NOT_RUN_WITH_INVALID))
            for call in calls
        ]
        self._said += outputs
        return rest, self._thread.resume(outputs)

    def _remind(self, rest: Sequence[TurnEvent]) -> Judged:
        """Ask once more for the call that the client requires."""
        if self._reminded:
            problem = "The model answered without the tool call that `tool_choice` requires."
            return [*rest, TurnFailed(OutputRejected(problem, code="tool_call_missing"), self.spent)], None
        self._reminded = self.intervened = True
        reminder = Message(role="user", parts=(TextPart(text=CALL_NOW),))
        self._said.append(reminder)
        return rest, self._thread.run([reminder], self._request)


def _id_of(item: Item) -> Json:
    return item.item.get("id") if isinstance(item, RawItem) else item.id


def _item_of(event: TurnEvent) -> Item | None:
    """Return the item that a later history has for a finished output."""
    match event:
        case MessageDone(item_id, phase, text):
            return Message(role="assistant", parts=(TextPart(text=text),), phase=phase, id=item_id)
        case ReasoningDone():
            content = event.content or None
            return Reasoning(id=event.item_id, summary=event.summary, content=content, encrypted=event.encrypted)
        case FunctionCallDone(item_id, call_id, name, arguments, namespace):
            return FunctionCall(call_id=call_id, name=name, arguments=arguments, namespace=namespace, id=item_id)
        case WebSearchDone(item_id, action):
            return RawItem(item={"type": "web_search_call", "id": item_id, "status": "completed", "action": action})
        case _:
            return None
