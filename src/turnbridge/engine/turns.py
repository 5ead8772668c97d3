"""Runs one turn: shows the model the request, ends the answer where the client wants, checks it."""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import aclosing
from typing import Literal, assert_never

from turnbridge.engine.media_items import ready_items
from turnbridge.engine.output_limits import Gated, OutputLimit
from turnbridge.engine.parked_turns import ParkedTurns
from turnbridge.engine.ports import (
    Backend,
    Batches,
    Judge,
    MediaLoader,
    Thread,
    Tokenizer,
)
from turnbridge.engine.structured_output import repair_instruction
from turnbridge.engine.tool_rules import NO_PROBLEMS, ToolRules
from turnbridge.engine.turn_clock import TurnClock, Watch
from turnbridge.engine.warm_threads import Told, WarmThreads
from turnbridge.turn.errors import (
    BackendLost,
    GatewayError,
    OutputRejected,
    without_frames,
)
from turnbridge.turn.events import (
    CallsAwaited,
    MessageStarted,
    ReasoningDelta,
    SummaryDelta,
    TextDelta,
    ThreadUse,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnIncomplete,
    TurnServed,
    Usage,
)
from turnbridge.turn.items import (
    NARRATION,
    FunctionCallOutput,
    Item,
    JsonObject,
    Message,
    TextPart,
    is_models,
)
from turnbridge.turn.request import (
    AnyJsonObject,
    JsonOfSchema,
    PlainText,
    TurnRequest,
)
from turnbridge.turn.values import replace

# Where a provider says that it gives no reasoning summaries.
SUMMARY_PARAM = "reasoning.summary"


class TurnRun:
    """One turn as it runs: its events, and what is known of it before there are any."""

    def __init__(self, runner: "TurnRunner", request: TurnRequest) -> None:
        self._runner = runner
        self._request = request
        self.thread: Thread | None = None
        """Where it runs, as soon as that is decided; another one if it is run again."""

    @property
    def retrying(self) -> bool:
        """Tell whether Codex retries a provider that has just failed."""
        return self.thread is not None and self.thread.retrying

    @property
    def heard(self) -> bool:
        """Tell whether the model has sent anything yet."""
        return self.thread is not None and self.thread.heard

    def events(self) -> Batches:
        """Run the turn. The first event is `TurnServed`, the last one a `Terminal`: a `GatewayError` becomes one.

        Closing the iterator interrupts the turn in Codex.
        """
        return self._runner.events(self._request, self)


class TurnRunner:
    """Runs turns on a backend."""

    def __init__(
        self,
        backend: Backend,
        media: MediaLoader,
        tokenizer: Tokenizer,
        judge: Judge,
        calls: ParkedTurns,
        warm: WarmThreads,
        watch: Watch,
    ) -> None:
        self._backend = backend
        self._media = media
        self._tokenizer = tokenizer
        self._judge = judge
        self._calls = calls
        self._warm = warm
        self._watch = watch
        self._without_summary: set[str] = set()

    def start(self, request: TurnRequest) -> TurnRun:
        """Return a turn that runs when its events are asked for."""
        return TurnRun(self, request)

    async def events(self, request: TurnRequest, run: TurnRun) -> Batches:
        """Yield the events of a turn in batches; see `TurnRun.events`."""
        try:
            ready = await self._ready(request)
            # A turn may run again for as long as nothing of its answer has left.
            for attempt in itertools.count(1):
                turn: _Turn | None = None
                try:
                    try:
                        turn, how = await self._open(ready)
                        run.thread = turn.thread
                        yield [TurnServed(how, turn.thread.fidelity)]
                        first = await self._first(turn)
                    except BackendLost as error:
                        first = [TurnFailed(without_frames(error))]
                    if (again := await self._again(ready, turn, first, attempt)) is not None:
                        ready = again
                        continue
                    yield first
                    if turn is not None:
                        async for batch in turn.batches:
                            if not isinstance(batch[-1], TextDelta):
                                self._keep(turn, batch[-1])
                            yield batch
                    return
                finally:
                    if turn is not None:
                        await turn.over()
        except GatewayError as error:
            yield [TurnFailed(without_frames(error))]

    async def _first(self, turn: "_Turn") -> list[TurnEvent]:
        """Return the first batch of a turn; all of them if its client does not stream."""
        first: list[TurnEvent] = []
        async for batch in turn.batches:
            first += batch
            self._keep(turn, batch[-1])
            if turn.told.request.streamed:
                break
        return first

    async def _open(self, request: TurnRequest) -> "tuple[_Turn, ThreadUse]":
        """Return the turn that answers a request: a parked one, one in a warm thread, or one in a thread of its own."""
        told = Told(request)
        if request.large:
            # Thousands of items, or calls with much JSON in them, are read in a thread.
            await asyncio.to_thread(lambda: told.hashes)
        if (claim := self._calls.claim(request)) is not None:
            turn = self._turn(told, claim.thread, claim.thread.resume(claim.outputs))
            turn.rules.intervened = claim.intervened
            return turn, "parked"
        if (warm := self._warm.take(told)) is not None:
            return self._turn(told, warm.thread, warm.thread.run(warm.rest, request)), "warm"
        history = self._calls.restored(request)
        how: ThreadUse = "replayed" if any(map(is_models, history)) else "fresh"
        thread = await self._backend.open(replace(request, items=history))
        return self._turn(told, thread, thread.run()), how

    def _turn(self, told: Told, thread: Thread, source: Batches) -> "_Turn":
        clock = TurnClock(self._watch, thread)
        return _Turn(told, thread, clock, self._tokenizer, self._judge, source)

    async def _again(
        self, request: TurnRequest, turn: "_Turn | None", first: Sequence[TurnEvent], attempt: int
    ) -> TurnRequest | None:
        """Return what to run instead of a turn that failed before it said anything, if something may help."""
        failed = first[-1]
        if not isinstance(failed, TurnFailed) or (request.streamed and len(first) > 1):
            return None
        if turn is None or isinstance(failed.error, BackendLost):
            # Codex died under the turn, or while it waited. If that happens again, the turn itself may be the cause.
            return request if attempt == 1 else None
        if failed.error.param == SUMMARY_PARAM and request.summary is not None and not request.summary_needed:
            # Providers give summaries to some accounts only.
            self._without_summary.add(request.model)
            return replace(request, summary=None)
        otherwise = await self._backend.serves_otherwise(request, turn.thread, failed.error)
        return request if otherwise else None

    def _keep(self, turn: "_Turn", ending: TurnEvent) -> None:
        """Keep a conversation that waits for its client, or that its client may go on with.

        Before the client hears the end: its next request may come at once.
        """
        request, thread, rules = turn.told.request, turn.thread, turn.rules
        if isinstance(ending, CallsAwaited) and rules.leg is not None:
            if ending.usage.estimated or not request.awaits_outputs or not thread.alive:
                # After an answer that broke off, the turn would only fail, and a replay does not. Nor does every Codex
                # wait for outputs.
                self._calls.remember(request.client, rules.leg)
                return
            self._calls.park(request, thread, rules.leg)
            turn.kept = True
            return
        whole = isinstance(ending, TurnCompleted) and not ending.usage.estimated
        if whole and not rules.intervened and thread.alive:
            self._warm.keep(turn.told, rules.said, thread)
            turn.kept = True

    async def _ready(self, request: TurnRequest) -> TurnRequest:
        """Return the request as it can be shown to the model."""
        items = await ready_items(request, self._media)
        ready = request if items == request.items else replace(request, items=items)
        if ready.model in self._without_summary and not ready.summary_needed:
            return replace(ready, summary=None)
        return ready


class _Turn:
    """A turn that runs, in a conversation that is given up when it is over unless somebody keeps it."""

    def __init__(
        self,
        told: Told,
        thread: Thread,
        clock: TurnClock,
        tokenizer: Tokenizer,
        judge: Judge,
        source: Batches,
    ) -> None:
        self.told = told
        self.thread = thread
        self.rules = ToolRules(thread, told.request)
        self.kept = False
        self._clock = clock
        self._tokenizer = tokenizer
        self._judge = judge
        self.batches = self._shaped(source)

    async def over(self) -> None:
        """Listen no more."""
        try:
            await self.batches.aclose()
        finally:
            self._clock.stop()
            if not self.kept:
                self.thread.close()

    def _shaped(self, source: Batches) -> Batches:
        """Return an answer of the shape that the client asked for."""
        request = self.told.request
        limited = self._limited(source)
        match request.output:
            case PlainText():
                return limited
            case AnyJsonObject():
                schema: JsonObject = {"type": "object"}
            case JsonOfSchema():
                schema = request.output.schema
            case _:
                assert_never(request.output)
        return self._checked(schema, limited) if request.streamed else self._repaired(schema, limited)

    async def _checked(self, schema: JsonObject, source: Batches) -> Batches:
        """Yield a streamed answer; what its client has read cannot be taken back, so one that is wrong has failed."""
        events: list[TurnEvent] = []
        async with aclosing(source) as batches:
            async for batch in batches:
                events += batch
                problem = await self._problem(schema, events)
                yield batch if problem is None else [*batch[:-1], _rejected(problem, self.rules.spent)]

    async def _repaired(self, schema: JsonObject, source: Batches) -> Batches:
        """Yield an answer that conforms; one that does not is first given one chance to be repaired."""
        events = await _whole(source)
        problem = await self._problem(schema, events)
        if problem is not None:
            correction = Message(role="user", parts=(TextPart(text=repair_instruction(problem)),))
            self.rules.intervened = True
            events = await _whole(self._limited(self.thread.run([correction], self.told.request)))
            problem = await self._problem(schema, events)
        yield events if problem is None else [*events[:-1], _rejected(problem, self.rules.spent)]

    async def _problem(self, schema: JsonObject, events: Sequence[TurnEvent]) -> str | None:
        """Return what is wrong with an answer, if the model ended it: one that was cut off is as its client wished."""
        ending = events[-1]
        if not isinstance(ending, TurnCompleted) or ending.usage.estimated:
            return None
        narrated = {e.item_id for e in events if isinstance(e, MessageStarted) and e.phase == NARRATION}
        spoken = (e.text for e in events if isinstance(e, TextDelta) and e.item_id not in narrated)
        return await self._judge.problem(schema, "".join(spoken))

    async def _limited(self, source: Batches) -> Batches:
        """Yield the answer up to the client's stop sequence or token limit; the turn is interrupted right there.

        Legs that only correct the model join the one that the client sees.
        """
        rules, clock, limit = self.rules, self._clock, self._limit()
        following: Batches | None = source
        while following is not None:
            current, following = following, None
            said: list[Sequence[TurnEvent]] = []
            async with aclosing(current) as batches:
                clock.wait()
                async for batch in batches:
                    clock.heard()
                    calls = isinstance(batch[-1], CallsAwaited)
                    problems = await rules.problems(batch, self._judge) if calls else NO_PROBLEMS
                    allowed, following = rules.judge(batch, problems)
                    events, cut = (allowed, None) if limit is None else await self._fed(limit, allowed)
                    said.append(events)
                    if cut is not None:
                        self.thread.close()
                        # Codex gives no count for a turn that was interrupted.
                        yield [*events, _cut(cut, rules.spent + await self._estimate(said))]
                        return
                    ending = batch[-1]
                    if isinstance(ending, TurnIncomplete) and ending.usage.estimated:
                        # Nor for one that the provider cut off.
                        counted = rules.spent + await self._estimate(said)
                        events = [*events[:-1], replace(ending, usage=counted)]
                    if events:
                        yield events
                    if following is not None:
                        break
                    clock.wait()

    def _limit(self) -> OutputLimit | None:
        request = self.told.request
        if not request.stop and request.max_output_tokens is None:
            return None
        # The vocabulary is loaded while the model thinks.
        self._tokenizer.prepare()
        return OutputLimit(request.stop, request.max_output_tokens, self._tokenizer)

    async def _fed(self, limit: OutputLimit, events: Sequence[TurnEvent]) -> Gated:
        await self._tokenizer.ready()
        return limit.feed(events)

    async def _estimate(self, said: Sequence[Sequence[TurnEvent]]) -> Usage:
        await self._tokenizer.ready()
        # The request may be megabytes.
        return await asyncio.to_thread(self._counted, said)

    def _counted(self, said: Sequence[Sequence[TurnEvent]]) -> Usage:
        request = self.told.request
        shown = [request.instructions or "", *(_text_of(item) for item in request.items)]
        told = [event for events in said for event in events]
        answer = "".join(event.text for event in told if isinstance(event, TextDelta))
        # Of what the model thought, only this is known.
        thoughts = "".join(event.text for event in told if isinstance(event, SummaryDelta | ReasoningDelta))
        reasoning = self._tokenizer.count(thoughts)
        return Usage(
            input=self._tokenizer.count("\n".join(shown)),
            output=self._tokenizer.count(answer) + reasoning,
            reasoning=reasoning,
            estimated=True,
        )


def _cut(at: Literal["stop", "length"], usage: Usage) -> TurnEvent:
    """Return the end of an answer that was cut where the client wished."""
    return TurnCompleted(usage) if at == "stop" else TurnIncomplete("max_output_tokens", usage)


async def _whole(source: Batches) -> list[TurnEvent]:
    async with aclosing(source) as batches:
        return [event async for batch in batches for event in batch]


def _rejected(problem: str, usage: Usage) -> TurnFailed:
    return TurnFailed(OutputRejected(f"The model's answer does not conform to the requested format: {problem}"), usage)


def _text_of(item: Item) -> str:
    if isinstance(item, Message):
        return "".join(part.text for part in item.parts if isinstance(part, TextPart))
    if isinstance(item, FunctionCallOutput) and isinstance(item.output, str):
        return item.output
    return ""
