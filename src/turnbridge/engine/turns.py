"""Runs one turn: shows the model the request, ends the answer where the client wants, checks it."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, assert_never

from turnbridge.engine.compaction import compacted, is_due, summary_in, summary_request
from turnbridge.engine.history import History
from turnbridge.engine.input_tokens import estimated_usage
from turnbridge.engine.kept_threads import ParkedTurns, WarmThreads
from turnbridge.engine.media_items import ready_items
from turnbridge.engine.ports import (
    Backend,
    Batches,
    Conversation,
    Judge,
    MediaLoader,
    Thread,
    Tokenizer,
    ToolServers,
)
from turnbridge.engine.structured_output import repair_instruction
from turnbridge.engine.tool_serving import ApprovedResults, ServedThread, ToolServing
from turnbridge.engine.turn_rules import Cut, OutputLimit, ToolRules, TurnClock, Watch
from turnbridge.turn.errors import BackendLost, GatewayError, OutputRejected, without_frames
from turnbridge.turn.events import (
    CallsAwaited,
    HistoryCompacted,
    ItemEvent,
    MessageStarted,
    Terminal,
    TextDelta,
    ThreadUse,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnIncomplete,
    TurnServed,
    Usage,
    has_open_item,
)
from turnbridge.turn.items import (
    NARRATION,
    JsonObject,
    Message,
    Part,
    TextPart,
    is_models,
    replace,
)
from turnbridge.turn.request import AnyJsonObject, Compaction, JsonOfSchema, PlainText, TurnRequest

# Where a provider says that it gives no reasoning summaries.
SUMMARY_PARAM = "reasoning.summary"


@dataclass(frozen=True, slots=True)
class TurnRunner:
    """What turns run on."""

    backend: Backend
    media: MediaLoader
    tokenizer: Tokenizer
    judge: Judge
    calls: ParkedTurns
    warm: WarmThreads
    watch: Watch
    servers: ToolServers
    approved: ApprovedResults = field(default_factory=ApprovedResults)
    without_summary: set[tuple[str | None, str | None, str]] = field(default_factory=set)
    """The models whose provider gives no reasoning summaries."""

    def start(self, request: TurnRequest) -> "TurnRun":
        """Return a turn that runs when its events are asked for; raises if one of its MCP servers is not allowed."""
        served = ToolServing(self.servers, self.judge, self.approved, request) if request.spec.servers else None
        return TurnRun(self, request, served)


class TurnRun:
    """One turn as it runs: its events, and what is known of it before there are any."""

    def __init__(self, runner: TurnRunner, request: TurnRequest, serving: ToolServing | None = None) -> None:
        self._runner = runner
        self._request = request
        self.serving = serving
        self._prelude: list[ItemEvent] = [] if serving is None else serving.prelude
        self.spent = Usage()
        """The tokens of what the model was asked before the turn."""
        self.thread: Thread | None = None
        """Where it runs, as soon as that is decided; another one if it is run again."""
        self.cut = False
        """Whether the turn is to end at the next boundary of an item, since its client wants to add something."""
        self.linked: Mapping[str, Part] = {}
        """What the parts that link to something have become, by their place in the request."""

    @property
    def retrying(self) -> bool:
        """Tell whether Codex retries a provider that has just failed."""
        return self.thread is not None and self.thread.retrying

    @property
    def heard(self) -> bool:
        """Tell whether the model has sent anything yet."""
        return self.thread is not None and self.thread.heard

    async def events(self) -> Batches:
        """Run the turn. The first event is `TurnServed`, the last one a `Terminal`: a `GatewayError` becomes one.

        Closing the iterator interrupts the turn in Codex.
        """
        try:
            request = await self._ready()
            lost = False
            # A turn may run again for as long as nothing of its answer has left.
            for attempt in itertools.count(1):
                turn: _Turn | None = None
                try:
                    try:
                        turn, how = await self._open(request, suspect=lost)
                        self.thread = turn.thread
                        yield [TurnServed(how, turn.thread.fidelity)]
                        first = await turn.first()
                    except BackendLost as error:
                        first = [TurnFailed(without_frames(error))]
                    lost = isinstance(first[-1], TurnFailed) and isinstance(first[-1].error, BackendLost)
                    if (again := await self._again(request, turn, first, attempt)) is not None:
                        request = again
                        continue
                    yield self._with_prelude(first)
                    if turn is not None:
                        async for batch in turn.batches:
                            if not isinstance(batch[-1], TextDelta):
                                turn.keep(batch[-1])
                            yield batch
                    return
                finally:
                    if turn is not None:
                        await turn.over()
        except GatewayError as error:
            yield [TurnFailed(without_frames(error))]
        finally:
            if self.serving is not None:
                self.serving.close()

    async def _ready(self) -> TurnRequest:
        """Return the request as it can be shown to the model."""
        request = self._request
        items, self.linked = await ready_items(request, self._runner.media)
        ready = request if items is request.items else replace(request, items=items)
        if self.serving is not None:
            ready = await self.serving.ready(ready)
        if ready.compaction is not None and await is_due(ready, ready.compaction, self._runner.tokenizer):
            ready = await self._compacted(ready, ready.compaction)
        if ready.spec.served_model in self._runner.without_summary and not ready.spec.summary_needed:
            return _without_summary(ready)
        return ready

    async def _compacted(self, request: TurnRequest, plan: Compaction) -> TurnRequest:
        """Return the request with a summary of its history, which the model writes in a turn of its own."""
        inner, events = TurnRun(self._runner, summary_request(request, plan)), list[TurnEvent]()
        async with aclosing(inner.events()) as batches:
            async for batch in batches:
                self.thread = inner.thread
                events += batch
        summary, self.spent = summary_in(events)
        self._prelude.append(HistoryCompacted(summary))
        return compacted(request, plan, summary)

    def _with_prelude(self, first: Sequence[TurnEvent]) -> Sequence[TurnEvent]:
        """Return the first events after what happened before them, unless the turn has failed without any."""
        failed = len(first) == 1 and isinstance(first[0], TurnFailed)
        return first if failed or not self._prelude else [*self._prelude, *first]

    async def _open(self, request: TurnRequest, *, suspect: bool) -> "tuple[_Turn, ThreadUse]":
        """Return the turn that answers a request: a parked one, one in a warm thread, or one in a thread of its own."""
        runner, history = self._runner, History(request)
        if request.large:
            # Thousands of items, or calls with much JSON in them, are read in a thread.
            await asyncio.to_thread(lambda: history.digests)
        if (claim := runner.calls.claim(history)) is not None:
            turn = _Turn(self, runner, history, claim.thread, lambda parked: parked.resume(claim.outputs))
            turn.rules.intervened = claim.intervened
            return turn, "parked"
        if (warm := runner.warm.take_for(history)) is not None:
            thread, rest = warm
            return _Turn(self, runner, history, thread, lambda idle: idle.run(rest, request)), "warm"
        items = runner.calls.restored(request)
        how: ThreadUse = "replayed" if any(map(is_models, items)) else "fresh"
        thread = await runner.backend.open(replace(request, items=items), suspect=suspect)
        return _Turn(self, runner, history, thread, lambda opened: opened.run()), how

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
        if failed.error.param == SUMMARY_PARAM and request.spec.summary is not None and not request.spec.summary_needed:
            # Providers give summaries to some accounts only.
            self._runner.without_summary.add(request.spec.served_model)
            return _without_summary(request)
        otherwise = await self._runner.backend.serves_otherwise(request, turn.thread, failed.error)
        return request if otherwise else None


class _Turn:
    """A running turn, in a thread that is closed at its end unless it is kept, parked or warm."""

    def __init__(
        self,
        run: TurnRun,
        runner: TurnRunner,
        history: History,
        thread: Thread,
        begin: Callable[[Conversation], Batches],
    ) -> None:
        self._run = run
        self._runner = runner
        self._history = history
        self._request = request = history.request
        self._tokenizer = runner.tokenizer
        self._clock = TurnClock(runner.watch, thread, request.spec.client)
        self._kept = False
        self.thread = thread
        self._asked: Conversation = thread if run.serving is None else ServedThread(thread, run.serving)
        self.rules = ToolRules(self._asked, request)
        self.rules.spent = run.spent
        self.batches = self._limited(begin(self._asked))
        """The answer, in the shape that the client asked for."""
        match request.spec.output:
            case PlainText():
                return
            case AnyJsonObject():
                schema: JsonObject = {"type": "object"}
            case JsonOfSchema():
                schema = request.spec.output.schema
            case _:
                assert_never(request.spec.output)
        shaped = self._checked if request.streamed else self._repaired
        self.batches = shaped(schema, self.batches)

    async def first(self) -> list[TurnEvent]:
        """Return the first batch of the answer; all of them if its client does not stream."""
        first: list[TurnEvent] = []
        async for batch in self.batches:
            first += batch
            self.keep(batch[-1])
            if self._request.streamed:
                break
        return first

    def keep(self, ending: TurnEvent) -> None:
        """Park a thread that waits for its client, or keep it warm for the next request.

        Before the client is sent the end: its next request may follow immediately.
        """
        request, thread, rules = self._request, self.thread, self.rules
        if isinstance(ending, CallsAwaited) and rules.leg is not None:
            if self._run.serving is not None and self._run.serving.unmatched:
                return
            if ending.usage.estimated or not request.awaits_outputs or not thread.alive:
                # After an answer that broke off, the turn would only fail, and a replay does not. Nor does every Codex
                # wait for outputs.
                self._runner.calls.said(request.spec.client, rules.leg)
                return
            self._runner.calls.park(self._history, thread, rules.leg)
            self._kept = True
            return
        whole = isinstance(ending, TurnCompleted) and not ending.usage.estimated
        if whole and not rules.intervened and thread.alive:
            self._runner.warm.keep_after(self._history, rules.said, thread)
            self._kept = True

    async def over(self) -> None:
        """Close the turn, and its thread unless it is kept."""
        try:
            await self.batches.aclose()
        finally:
            self._clock.stop()
            if not self._kept:
                self.thread.close()

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
            events = await _whole(self._limited(self._asked.run([correction], self._request)))
            problem = await self._problem(schema, events)
        yield events if problem is None else [*events[:-1], _rejected(problem, self.rules.spent)]

    async def _problem(self, schema: JsonObject, events: Sequence[TurnEvent]) -> str | None:
        """Return what is wrong with an answer, if the model ended it: one that was cut off is as its client wished."""
        ending = events[-1]
        if not isinstance(ending, TurnCompleted) or ending.usage.estimated:
            return None
        narrated = {e.item_id for e in events if isinstance(e, MessageStarted) and e.phase == NARRATION}
        spoken = (e.text for e in events if isinstance(e, TextDelta) and e.item_id not in narrated)
        return await self._runner.judge.problem(schema, "".join(spoken))

    async def _limited(self, source: Batches) -> Batches:
        """Yield the answer up to the client's stop sequence or token limit; the turn is interrupted right there.

        Legs that only correct the model join the one that the client sees.
        """
        rules, clock, request, limit = self.rules, self._clock, self._request, None
        if request.stop or request.max_output_tokens is not None:
            # The vocabulary is loaded while the model thinks.
            self._tokenizer.prepare()
            limit = OutputLimit(request.stop, request.max_output_tokens, self._tokenizer)
        following: Batches | None = source
        while following is not None:
            current, following = following, None
            said: list[Sequence[TurnEvent]] = []
            async with aclosing(current) as batches:
                clock.wait()
                async for batch in batches:
                    clock.heard()
                    ending = batch[-1]
                    if self._run.cut and not isinstance(ending, Terminal) and not has_open_item(said):
                        yield [await self._cut_off("steered", rules.spent, said)]
                        return
                    calls = isinstance(ending, CallsAwaited)
                    problems = await rules.problems(batch, self._runner.judge) if calls else None
                    spent, cut = rules.spent, None
                    events, following = rules.judge(batch, problems)
                    if limit is not None:
                        await self._tokenizer.ready()
                        events, cut = limit.feed(events)
                    said.append(events)
                    if cut is not None:
                        met = None if limit is None else limit.met
                        yield [*events, await self._cut_off(cut, spent, said, met=met)]
                        return
                    if isinstance(ending, TurnIncomplete) and ending.usage.estimated:
                        # Nor for one that the provider cut off.
                        counted = rules.spent + await self._estimate(said)
                        events = [*events[:-1], replace(ending, usage=counted)]
                    if events:
                        yield events
                    clock.wait()

    async def _cut_off(
        self,
        why: Cut | Literal["steered"],
        spent: Usage,
        said: Sequence[Sequence[TurnEvent]],
        *,
        met: str | None = None,
    ) -> Terminal:
        """Interrupt the turn, and return the end that the client sees; `met` is the stop sequence that was found.

        Codex gives no count for a turn that was interrupted. If this one ended meanwhile, its count is of more than
        the client gets.
        """
        self.thread.close()
        usage = spent + await self._estimate(said)
        if why == "stop":
            return TurnCompleted(usage, stop=met)
        return TurnIncomplete("max_output_tokens" if why == "length" else why, usage)

    async def _estimate(self, said: Sequence[Sequence[TurnEvent]]) -> Usage:
        await self._tokenizer.ready()
        # The request may be megabytes.
        return await asyncio.to_thread(estimated_usage, self._request, said, self._tokenizer)


def _without_summary(request: TurnRequest) -> TurnRequest:
    return replace(request, spec=replace(request.spec, summary=None))


async def _whole(source: Batches) -> list[TurnEvent]:
    async with aclosing(source) as batches:
        return [event async for batch in batches for event in batch]


def _rejected(problem: str, usage: Usage) -> TurnFailed:
    return TurnFailed(OutputRejected(f"The model's answer does not conform to the requested format: {problem}"), usage)
