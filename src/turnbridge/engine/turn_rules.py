"""What a turn is held to that Codex does not know: rules for calls, stop sequences, a token limit, timeouts."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from turnbridge.engine.admission import key_ended
from turnbridge.engine.kept_threads import Leg
from turnbridge.engine.ports import Batches, Conversation, Judge, Thread, Tokenizer
from turnbridge.turn.errors import GatewayError, OutputRejected, TurnTimeout
from turnbridge.turn.events import (
    CallsAwaited,
    FunctionCallDone,
    ImageDone,
    McpApprovalAsked,
    McpCallDone,
    McpCallStarted,
    MessageDone,
    MessageStarted,
    ReasoningDone,
    Terminal,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnIncomplete,
    Usage,
    WebSearchDone,
)
from turnbridge.turn.items import (
    NARRATION,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    RawItem,
    Reasoning,
    TextPart,
    image_item,
    replace,
)
from turnbridge.turn.request import TurnRequest, tool_key

Judged: TypeAlias = tuple[Sequence[TurnEvent], Batches | None]
"""What the client may see, and how the turn continues if it does not end here."""

# A model that was corrected twice does not get it right the third time.
MOST_CORRECTIONS = 2

NOT_RUN_ALONE = "Not run: this client runs one call at a time. Call it again if it is still needed."
NOT_RUN_WITH_INVALID = "Not run: another call made at the same time had invalid arguments. Call it again."
CALL_NOW = "You must call one of the available tools now; an answer without a tool call is not accepted here."


class ToolRules:
    """The client's rules for calls, applied to one turn: valid arguments, one at a time, at least one.

    What the model says up to its calls is recorded; what the gateway itself says to enforce the rules is a part of it.
    """

    def __init__(self, thread: Conversation, request: TurnRequest) -> None:
        self._thread = thread
        self._request = request
        self._namespaces = {server.label: server.namespace for server in request.spec.servers}
        self._served: list[str] = []
        self.said: list[Item] = []
        """What the model has said so far, as the items of a later history."""
        self.spent = Usage()
        """The tokens of the legs and attempts that are over."""
        self._corrections = 0
        self._reminded = False
        self.leg: Leg | None = None
        self.intervened = False
        """Whether the gateway said something in this turn that no client's history has, also before it was parked."""

    async def problems(self, batch: Sequence[TurnEvent], judge: Judge) -> dict[str, str]:
        """Return what is wrong with the arguments of calls to strict tools, by call id."""
        strict = {tool.key: tool.parameters for tool in self._request.spec.tools if tool.strict}
        found: dict[str, str] = {}
        for call in [event for event in batch if isinstance(event, FunctionCallDone)]:
            schema = strict.get(tool_key(call.name, call.namespace))
            problem = await judge.problem(schema, call.arguments) if schema is not None else None
            if problem is not None:
                found[call.call_id] = problem
        return found

    def judge(self, batch: Sequence[TurnEvent], problems: Mapping[str, str] | None = None) -> Judged:
        """Apply the rules to a batch of events; `problems` are those of the calls in it."""
        # Nearly all events are deltas, which no rule concerns.
        for event in [event for event in batch if not isinstance(event, TextDelta)]:
            if (item := self._item_of(event)) is not None:
                self.said.append(item)
            if isinstance(event, McpCallDone):
                self._served.append(event.call_id)
        ending = batch[-1]
        if isinstance(ending, TextDelta):
            return batch, None
        if isinstance(ending, CallsAwaited):
            self.spent += ending.usage
            # Calls are reported last, and may have been made before other items.
            order: dict[str | None, int] = {item_id: place for place, item_id in enumerate(ending.order)}
            self.said.sort(key=lambda item: order.get(item.id, -1))
            return self._judge_calls(batch, ending.order, problems)
        if isinstance(ending, TurnCompleted):
            self.spent += ending.usage
            # A search, an image and a call that an MCP server has answered count as calls, and need no output.
            called = bool(self._served) or any(isinstance(item, RawItem) for item in self.said)
            if self._request.must_call and not called:
                return self._remind(batch[:-1])
            return [*batch[:-1], replace(ending, usage=self.spent)], None
        if isinstance(ending, TurnIncomplete | TurnFailed) and not ending.usage.estimated:
            return [*batch[:-1], replace(ending, usage=self.spent + ending.usage)], None
        return batch, None

    def _judge_calls(
        self, batch: Sequence[TurnEvent], order: tuple[str, ...], problems: Mapping[str, str] | None
    ) -> Judged:
        calls = [event for event in batch if isinstance(event, FunctionCallDone)]
        asked = [event for event in batch if isinstance(event, McpApprovalAsked)]
        if problems:
            rest = [event for event in batch[:-1] if not isinstance(event, FunctionCallDone | McpApprovalAsked)]
            return self._correct(rest, [*calls, *asked], problems)
        shown = calls if self._request.parallel_calls else calls[:1]
        presets = tuple(FunctionCallOutput(call_id=call.call_id, output=NOT_RUN_ALONE) for call in calls[len(shown) :])
        self.intervened = self.intervened or bool(presets)
        self.leg = Leg(
            items=tuple(self.said),
            shown=(*(call.call_id for call in shown), *(event.call_id for event in asked)),
            presets=presets,
            intervened=self.intervened,
            served=frozenset(self._served),
        )
        passed = [event for event in batch[:-1] if not isinstance(event, FunctionCallDone) or event in shown]
        return [*passed, CallsAwaited(self.spent, order)], None

    def _correct(
        self,
        rest: Sequence[TurnEvent],
        calls: Sequence[FunctionCallDone | McpApprovalAsked],
        problems: Mapping[str, str],
    ) -> Judged:
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
        self.said += outputs
        return rest, self._thread.resume(outputs)

    def _remind(self, rest: Sequence[TurnEvent]) -> Judged:
        """Ask once more for the call that the client requires."""
        if self._reminded:
            problem = "The model answered without the tool call that `tool_choice` requires."
            return [*rest, TurnFailed(OutputRejected(problem, code="tool_call_missing"), self.spent)], None
        self._reminded = self.intervened = True
        reminder = Message(role="user", parts=(TextPart(text=CALL_NOW),))
        self.said.append(reminder)
        return rest, self._thread.run([reminder], self._request)

    def _item_of(self, event: TurnEvent) -> Item | None:
        """Return the item that a later history has for a finished output."""
        match event:
            case MessageDone(item_id, phase, text):
                return Message(role="assistant", parts=(TextPart(text=text),), phase=phase, id=item_id)
            case ReasoningDone():
                content = event.content or None
                return Reasoning(id=event.item_id, summary=event.summary, content=content, encrypted=event.encrypted)
            case FunctionCallDone(item_id, call_id, name, arguments, namespace):
                return FunctionCall(call_id=call_id, name=name, arguments=arguments, namespace=namespace, id=item_id)
            case McpApprovalAsked(item_id, call_id, label, name, arguments):
                namespace = self._namespaces[label]
                return FunctionCall(call_id=call_id, name=name, arguments=arguments, namespace=namespace, id=item_id)
            case McpCallStarted(call_id, label, name, arguments):
                return FunctionCall(call_id=call_id, name=name, arguments=arguments, namespace=self._namespaces[label])
            case McpCallDone(call_id, result):
                return FunctionCallOutput(call_id=call_id, output=result.shown)
            case WebSearchDone(item_id, action):
                return RawItem(item={"type": "web_search_call", "id": item_id, "status": "completed", "action": action})
            case ImageDone(item_id, prompt, image):
                return RawItem(item=image_item(item_id, prompt, image))
            case _:
                return None


OPEN_CHARACTERS = 16_384
"""So much text is counted even if the limit is far away: a large limit must not end in one long count."""

Cut: TypeAlias = Literal["stop", "length"]


class Gated(NamedTuple):
    """The events that may pass, and why the answer ends after them, if it does."""

    events: Sequence[TurnEvent]
    cut: Cut | None = None


class OutputLimit:
    """Passes the events of an answer on until a stop sequence or the token limit."""

    def __init__(self, stop: tuple[str, ...], max_tokens: int | None, tokenizer: Tokenizer) -> None:
        self._stop = stop
        self._budget = _TokenBudget(max_tokens, tokenizer) if max_tokens is not None else None
        self._held = ""
        self._item_id = ""
        self._narrating = False
        self.met: str | None = None
        """The stop sequence that was found."""

    def feed(self, events: Sequence[TurnEvent]) -> Gated:
        """Return which of `events` may pass."""
        passed: list[TurnEvent] = []
        for event in events:
            cut: Cut | None = None
            if isinstance(event, TextDelta):
                cut = self._pass_text(event, passed)
            elif isinstance(event, MessageStarted):
                self._item_id = event.item_id
                self._narrating = event.phase == NARRATION
                if self._budget is not None:
                    self._budget.next_message()
            elif isinstance(event, MessageDone | Terminal) and self._held:
                held, self._held = self._held, ""
                cut = self._spend(self._item_id, held, passed)
            if cut is not None:
                return Gated(passed, cut)
            if not isinstance(event, TextDelta):
                passed.append(event)
        return Gated(passed)

    def _pass_text(self, delta: TextDelta, passed: list[TurnEvent]) -> Cut | None:
        if not self._stop or self._narrating:
            return self._spend(delta.item_id, delta.text, passed)
        text = self._held + delta.text
        # The sequence that ends first, as if the text had come character by character.
        found = [(place + len(stop), place, stop) for stop in self._stop if (place := text.find(stop)) >= 0]
        if found:
            _, place, self.met = min(found)
            return self._spend(delta.item_id, text[:place], passed) or "stop"
        end = len(text) - max(_overlap(text, stop) for stop in self._stop)
        self._held = text[end:]
        return self._spend(delta.item_id, text[:end], passed)

    def _spend(self, item_id: str, text: str, passed: list[TurnEvent]) -> Cut | None:
        text, exhausted = (text, False) if self._budget is None else self._budget.spend(text)
        if text:
            passed.append(TextDelta(item_id, text))
        return "length" if exhausted else None


class _TokenBudget:
    """Cuts the text of a turn at a number of tokens.

    A token is at least one byte, so the tokenizer is called only when the bytes since its last call could exceed the
    rest: a few times for each answer, not for each delta. Text whose tokens can no longer change is not counted again,
    so that the work is linear.
    """

    def __init__(self, limit: int, tokenizer: Tokenizer) -> None:
        self._left = limit
        self._tokenizer = tokenizer
        self._open = ""
        """The end of the message so far, whose tokens depend on what follows."""
        self._counted = 0
        self._unchecked_bytes = 0

    def next_message(self) -> None:
        """Begin a message: no token spans two messages."""
        self._left -= self._tokenizer.count(self._open) if self._open else 0
        self._open, self._counted, self._unchecked_bytes = "", 0, 0

    def spend(self, text: str) -> tuple[str, bool]:
        """Return the part of `text` within the limit, and whether the limit is reached."""
        before = len(self._open)
        self._open += text
        self._unchecked_bytes += len(text.encode(errors="surrogatepass"))
        if self._counted + self._unchecked_bytes <= self._left and len(self._open) < OPEN_CHARACTERS:
            return text, False
        counted = self._tokenizer.count(self._open)
        if counted > self._left:
            kept = self._tokenizer.cut(self._open, max(self._left, 0))
            return kept[before:], True
        self._open = self._open[self._tokenizer.settled(self._open) :]
        self._counted, self._unchecked_bytes = self._tokenizer.count(self._open), 0
        self._left -= counted - self._counted
        return text, False


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that could be the beginning of `stop`."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)


class Watch:
    """How long a turn may be silent, and how long it may take; and the end of all turns at once."""

    def __init__(self, *, silence_s: float, whole_s: float) -> None:
        self.silence_s = silence_s
        self.whole_s = whole_s
        self.first_sign_s = silence_s / 3
        """How long the provider may take before its first sign.

        A model that thinks has begun to answer. One that has not may be loading, or its provider hangs: Codex tells
        neither. At the default of 15 minutes for silence this is 5, which is less than SDKs wait for an answer (10).
        """
        self.stopped: GatewayError | None = None
        """Why no turn may run any more."""
        self.barred: frozenset[str] = frozenset()
        """Clients whose key ended."""
        self.turns: set[TurnClock] = set()

    def stop(self, error: GatewayError) -> None:
        """End every turn that runs, now, with this error."""
        self.stopped = error
        for turn in self.turns:
            turn.thread.fail(error)

    def bar(self, clients: frozenset[str]) -> None:
        """End every turn of these clients, now, and those that are just beginning."""
        self.barred = clients
        for turn in self.turns:
            if turn.client in clients:
                turn.thread.fail(key_ended())


class TurnClock:
    """The time of one turn, from now until it is stopped. A turn whose time is up ends as failed.

    It has one timer, and only when it fires is the time of the last event compared: setting and cancelling one for
    every batch took a fifth of what a delta costs.
    """

    def __init__(self, watch: Watch, thread: Thread, client: str = "") -> None:
        self._watch = watch
        self.thread = thread
        self.client = client
        # Held, because to ask for it takes a system call.
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + watch.whole_s
        self._waiting_since: float | None = None
        """Since when the model is waited for; None while its client is."""
        self._timer: asyncio.TimerHandle | None = None
        watch.turns.add(self)

    def wait(self) -> None:
        """Begin to wait for the model."""
        now = self._waiting_since = self._loop.time()
        if self._watch.stopped is not None:
            self.thread.fail(self._watch.stopped)
        elif self.client in self._watch.barred:
            self.thread.fail(key_ended())
        elif self._timer is None or now >= self._end:
            self._look()

    def heard(self) -> None:
        """Wait for the client instead, who has something to read."""
        self._waiting_since = None

    def stop(self) -> None:
        """Watch the turn no more."""
        self._watch.turns.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """End a turn whose time is up; otherwise set the timer for when it could be."""
        now = self._loop.time()
        waiting_since = self._waiting_since
        begun = self.thread.heard
        allowed = self._watch.silence_s if begun else self._watch.first_sign_s
        silence = (now if waiting_since is None else waiting_since) + allowed
        if waiting_since is not None and now >= min(silence, self._end):
            self.thread.fail(self._too_late(silent=silence < self._end, begun=begun))
            return
        # While the client is waited for, nothing times out: once the turn's end is past, `wait` checks it.
        due = silence if now >= self._end else min(silence, self._end)
        self._timer = self._loop.call_at(due, self._look)

    def _too_late(self, *, silent: bool, begun: bool) -> TurnTimeout:
        watch = self._watch
        if silent and not begun:
            return TurnTimeout(
                f"The provider sent nothing for {watch.first_sign_s:.3g} seconds; the turn was interrupted. "
                "Check that the provider is up, or raise PROXY_IDLE_TIMEOUT_MS if its models need longer to begin."
            )
        if silent:
            return TurnTimeout(f"The model was silent for {watch.silence_s:g} seconds; the turn was interrupted.")
        return TurnTimeout(f"The turn took longer than {watch.whole_s:g} seconds and was interrupted.")
